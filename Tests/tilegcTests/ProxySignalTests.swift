import Foundation
import Testing
import TileCacheTesting
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

    /// Before it says that it listens: the signal ended it with its socket left behind, or was swallowed, and it went on for ever.
    @Test func aSignalWhileItStartsStopsItInOrder() throws {
        let (scratch, folder) = (try Scratch(), try SocketFolder())
        for _ in 0..<16 {
            let child = try Child(
                ["serve", "--cache", scratch("cache"), "--source", "a=\(scratch("tiles"))/{z}/{x}/{y}.png"]
                    + ["--listen", "unix:\(folder("http"))"], of: Child.tileproxy)
            while try folder.names.isEmpty, !child.hasEnded(within: 0) {}
            child.send(SIGTERM)
            let outcome = try child.wait()
            #expect(outcome.status == 0 && outcome.messages.contains("stopping"), "\(outcome.messages)")
            #expect(try folder.names.isEmpty)
        }
    }
}
