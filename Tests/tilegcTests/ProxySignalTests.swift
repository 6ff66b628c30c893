import Foundation
import Testing
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// What a `tileproxy` does with signals.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct ProxySignalTests {
    /// Service managers and scripts stop a proxy as soon as it says that it listens: the signal was lost, or ended it with the cache open.
    @Test(arguments: [SIGTERM, SIGINT])
    func aSignalRightAfterItListensStopsItInOrder(signal: Int32) throws {
        let scratch = try Scratch()
        for _ in 0..<8 {
            let child = try Child(
                ["serve", "--cache", scratch("cache"), "--source", "a=\(scratch("tiles"))/{z}/{x}/{y}.png"]
                    + ["--port", "0"], of: Child.tileproxy)
            while !child.said.contains("] listening\n"), !child.hasEnded(within: 0) {}
            child.send(signal)
            let outcome = try child.wait()
            #expect(outcome.status == 0 && outcome.messages.contains("stopping"), "\(outcome.messages)")
        }
    }
}
