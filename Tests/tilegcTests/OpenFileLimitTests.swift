import Foundation
import Testing
import TileStoreTesting

/// Programs that may have few files open: Dispatch and event loops ended them with a trap where they got no more.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct OpenFileLimitTests {
    /// Runs a program that may have so many files open, the standard ones included.
    private func run(_ program: String, files: Int, _ arguments: [String]) throws -> Outcome {
        try Child(["-c", "ulimit -c 0; ulimit -n \(files); exec \"$0\" \"$@\"", program] + arguments, of: "/bin/sh")
            .wait()
    }

    private func expectRefusal(_ outcome: Outcome, _ name: String) {
        #expect(outcome.signal == nil)
        #expect(outcome.status == 74)
        #expect(outcome.messages.hasPrefix(name + ": "))
        #expect(outcome.messages.contains("ulimit -n"))
        #expect(outcome.messages.split(separator: "\n").count == 1)
    }

    @Test(arguments: [5, 6, 7, 8, 9, 10, 11, 12])
    func aProgramThatMayOpenFewFilesEndedInATrap(_ files: Int) throws {
        let scratch = try Scratch()
        let tiles = scratch.path + "/tiles"
        try FileManager.default.createDirectory(atPath: tiles + "/9/1", withIntermediateDirectories: true)
        // More than one thread hashes in a check.
        for y in 0..<200 { try Data("tile \(y)".utf8).write(to: URL(fileURLWithPath: tiles + "/9/1/\(y).png")) }
        let cache = scratch.path + "/cache"
        try succeed("import", cache, tiles, "--source", "osm")
        let commands = [
            ["verify", cache], ["verify", "--quick", cache], ["stats", cache], ["ls", cache],
            ["gc", cache, "--max-bytes", "1"],
            ["import", cache, tiles, "--source", "osm"],
        ]
        for command in commands { expectRefusal(try run(Child.tilegc, files: files, command), "tilegc") }
        let serve = ["serve", "--cache", cache, "--port", "0", "--source", "osm=http://127.0.0.1:9/{z}/{x}/{y}.png"]
        expectRefusal(try run(Child.tileproxy, files: files, serve), "tileproxy")
        // What the message says to do does.
        #expect(try run(Child.tilegc, files: 256, ["gc", cache, "--max-bytes", "1"]).status == 0)
        #expect(try tilegc("verify", cache).status == 0)
    }
}
