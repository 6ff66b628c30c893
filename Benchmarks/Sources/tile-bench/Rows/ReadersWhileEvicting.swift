import Foundation
import TileStore

extension Bench {
    /// How long reads take at the worst while another thread evicts: disk hits of pinned tiles, the memory tier off.
    func readersWhileEvicting() throws -> [Figure] {
        let count = scaled(100_000, quick: 10_000)
        let hotCount = 1_024
        let hot = TileSet.distinct(count: hotCount, bytes: 5_120, seed: 7)
        let hotSource = try SourceName("hot")
        let hotKeys = try (0..<hotCount).map {
            TileKey(source: hotSource, tile: try TileAddress(z: 5, x: $0 & 31, y: $0 >> 5))
        }
        let doomedKeys = try keys(source: "old", count: count)

        let rounds = scaled(3, quick: 1)

        // All rounds are prepared before the first is measured: creating files after many were deleted is slow.
        let stores = try (0..<rounds).map { _ in
            var configuration = StoreConfiguration()
            configuration.memoryTierBytes = 0
            let store = try TileStore(at: workspace.fresh("readers"), configuration: configuration)
            try store.pin(
                PinnedRegion(
                    name: "hot", source: hotSource, spans: [TileSpan(zoom: 5, columns: 0...31, rows: 0...31)]))
            try store.put(zip(hotKeys, hot).map { TilePut(key: $0, data: $1, metadata: metadata(1)) })
            var random = SplitMix64(seed: 8)
            for start in stride(from: 0, to: count, by: 512) {
                try store.put(
                    doomedKeys[start..<min(start + 512, count)].map {
                        TilePut(key: $0, data: random.data(count: 64), metadata: metadata(UInt64(start)))
                    })
            }
            for key in hotKeys { _ = try store.read(key) }
            return store
        }
        let folders = try (0..<rounds).map { _ in
            let objects = try RawObjects(at: workspace.fresh("readers"))
            defer { objects.close() }
            var random = SplitMix64(seed: 8)
            return (
                hot: try hot.map { try objects.write($0) },
                doomed: try (0..<count).map { _ in try objects.write(random.data(count: 64)) }
            )
        }
        settle()

        let buffer = ReadBuffer()
        func floor(_ round: Int) throws -> Double {
            let (hotPaths, doomed) = folders[round]
            return try readerLatency(
                of: { number in
                    hotPaths[number % hotCount].withUnsafeBufferPointer { path in
                        path.baseAddress.map { (try? RawFiles.read($0, into: buffer.bytes)) == 5_120 } ?? false
                    }
                },
                during: { for path in doomed { unlink(path) } })
        }
        func ours(_ round: Int) throws -> Double {
            let store = stores[round]
            let evicted = Box(0)
            let latency = try readerLatency(
                of: { number in (try? store.read(hotKeys[number % hotCount]))??.data?.count == 5_120 },
                during: { evicted.content = (try? store.evict(toBytes: 0).removedEntries) ?? 0 })
            try require(evicted.content == count, "evicted \(evicted.content) entries instead of \(count)")
            return latency
        }
        var contest = Contest()
        try contest.run(rounds: rounds, [("floor", floor), ("ours", ours)])
        for store in stores { try store.close() }
        return [
            Figure(
                "readers-while-evicting", "p99.9 of disk hits while \(count) entries are evicted", .milliseconds,
                contest,
                floorIs: "open + fstat + read + close while the same files are unlinked", target: .atMost(5))
        ]
    }
}

/// Reads on one thread for as long as another is busy; returns the 99.9th percentile of a read in milliseconds.
private func readerLatency(
    of read: @escaping @Sendable (Int) -> Bool, during work: @escaping @Sendable () -> Void
) throws -> Double {
    let finished = Signal()
    let latencies = Box<[UInt32]>([])
    let failures = Box(0)
    _ = onThreads(2) { thread in
        if thread == 0 {
            work()
            finished.set()
            return
        }
        var mine: [UInt32] = []
        mine.reserveCapacity(4 << 20)
        var failed = 0
        var number = 0
        while !finished.isSet, mine.count < 4 << 20 {
            let start = nanoseconds()
            if !read(number) { failed += 1 }
            mine.append(UInt32(clamping: nanoseconds() - start))
            number &+= 7
        }
        latencies.content = mine
        failures.content = failed
    }
    try require(failures.content == 0, "\(failures.content) reads of kept tiles failed")
    return percentile(0.999, of: latencies.content) / 1e6
}

/// A buffer that one thread reads into.
private final class ReadBuffer: @unchecked Sendable {
    // Written by the one reading thread alone.
    let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 16, alignment: 4096)
    deinit { bytes.deallocate() }
}
