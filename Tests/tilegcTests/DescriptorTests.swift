import Foundation
import Testing

/// A process that has hardly any file descriptors.
@Suite(.timeLimit(.minutes(30)), .ownThreads)
struct DescriptorTests {
    /// A read notes a use that is to be written down later; what waits for that must need no descriptor.
    @Test func withoutAFreeDescriptorThereIsAnErrorOrATileAndNoTrap() throws {
        let scratch = try Scratch()
        let cache = scratch("cache")
        try scratch.write(Data("tile".utf8), to: "tiles/0/0/0.png")
        let made = try Child(["import", cache, scratch("tiles"), "--source", "a"]).wait()
        try #require(made.status == 0, "\(made.messages)")
        let keys = try Child(["ls", cache, "--json"]).wait().jsonLines().compactMap { $0["key"] as? String }
        let key = try #require(keys.first)
        var (served, refused) = (0, 0)
        for limit in 3..<24 {
            let script = "ulimit -n \(limit) || exit 99; exec \"$0\" cat \"$1\" \"$2\""
            let outcome = try Child(["-c", script, Child.tilegc, cache, key], of: "/bin/sh").wait()
            #expect(outcome.signal == nil, "with \(limit) descriptors: \(outcome.messages)")
            if outcome.status == 0 {
                #expect(outcome.output == Data("tile".utf8), "with \(limit) descriptors")
                served += 1
            } else {
                refused += 1
            }
        }
        #expect(served > 0 && refused > 0, "\(served) served, \(refused) refused")
    }
}
