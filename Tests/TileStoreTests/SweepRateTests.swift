import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// What the store does by itself besides what it is asked for.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct SweepRateTests {
    @Test("Thousands of evictions have orphans looked for once a second, and keep no compaction waiting")
    func evictionsDoNotQueueASweepEach() throws {
        let clock = ManualClock()
        let disk = SimulatedDisk(clock: clock)
        let files = SimulatedFileSystem(disk)
        var environment = clock.environment(files)
        environment.background = true
        var configuration = Lab.plain
        configuration.capacity = 4 * disk.blockSize
        let started = Date()
        let store = try TileStore(environment: environment, configuration: configuration)
        let count = 1500
        for x in 0..<count {
            try store.put(
                Data("\(x)".utf8), for: TileKey(source: "a", z: 12, x: x, y: 0),
                metadata: TileMetadata(storedAt: clock.now, expires: .distantFuture))
        }
        // It waits for what is in the queue before it.
        _ = try store.compact()
        let sweeps = files.shardListings
        #expect(sweeps <= 2 + Int(Date().timeIntervalSince(started)), "\(count) evictions had \(sweeps) folders swept")
        try store.close()
    }
}
