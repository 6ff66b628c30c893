import Foundation
import Testing
import TileStore
import TileStoreTesting

/// A real second process works on a cache whose first one is suspended while it stores and compacts.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct SuspendedProcessTests {
    @Test func anotherProcessCollectsAndCompactsMeanwhile() throws {
        let scratch = try Scratch()
        let cache = scratch("cache")
        var configuration = StoreConfiguration()
        configuration.lockWait = 3600
        let store = try TileStore(at: cache, configuration: configuration)
        let isDone = Locked(false)
        let faults = Locked<[String]>([])
        let group = DispatchGroup()
        for writer in 0..<2 {
            group.enter()
            let thread = Thread {
                defer { group.leave() }
                var puts = 0
                while !isDone.withLock({ $0 }) {
                    do {
                        let key = try TileKey(source: "lab", z: 12, x: puts % 4096, y: writer)
                        try store.put(
                            Data("\(writer) \(puts)".utf8), for: key,
                            metadata: TileMetadata(storedAt: Timestamp(seconds: 1), expires: .distantFuture))
                        puts += 1
                    } catch { return faults.withLock { $0.append("\(error)") } }
                }
            }
            thread.start()
        }
        for arguments in [["compact", cache], ["gc", cache, "--max-entries", "100"], ["verify", cache]] {
            store.suspend()
            let outcome = try Child(arguments).wait()
            #expect(outcome.status == 0, "\(arguments): \(outcome.messages)")
            store.resume()
        }
        isDone.withLock { $0 = true }
        group.wait()
        #expect(faults.withLock { $0 } == [])
        try store.close()
        #expect(try Child(["verify", cache]).wait().status == 0)
    }
}
