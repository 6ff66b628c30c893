import Foundation
import TileStore

extension Bench {
    /// A read that the memory tier answers, on one thread and on two at once.
    func memoryHit() throws -> [Figure] {
        let count = 2_000
        let reads = scaled(400_000, quick: 50_000)
        let store = try TileStore(at: workspace.path("memory-hit"))
        let blobs = TileSet.distinct(count: count, bytes: 5_120, seed: 3)
        let allKeys = try keys(source: "hit", count: count)
        try store.put(
            zip(allKeys, blobs).enumerated().map {
                TilePut(key: $1.0, data: $1.1, metadata: metadata(UInt64($0)))
            })
        for key in allKeys + allKeys { _ = try store.read(key) }
        try require(
            try allKeys.allSatisfy { try store.read($0)?.origin == .memory }, "the memory tier does not hold them all")

        let orders = (0..<2).map { thread in
            var random = SplitMix64(seed: 4 + UInt64(thread))
            return allKeys.shuffled(using: &random)
        }
        let plain = LockedDictionary(Dictionary(uniqueKeysWithValues: zip(allKeys, blobs)))
        let wrong = Box(0)
        func loop(threads: Int, _ read: @escaping @Sendable (TileKey) -> Int) -> Double {
            let time = onThreads(threads) { thread in
                var bytes = 0
                for pass in 0..<(reads / count) {
                    _ = pass
                    for key in orders[thread] { bytes &+= read(key) }
                }
                if bytes != reads / count * count * 5_120 { wrong.content += 1 }
            }
            return time * 1e6 / Double(reads)
        }
        let ours: @Sendable (TileKey) -> Int = { key in (try? store.read(key))??.data?.count ?? 0 }
        let floor: @Sendable (TileKey) -> Int = { key in plain[key]?.count ?? 0 }
        _ = (loop(threads: 1, ours), loop(threads: 1, floor))

        var contest = Contest()
        try contest.run(
            rounds: rounds,
            [
                ("floor", { _ in loop(threads: 1, floor) }),
                ("ours", { _ in loop(threads: 1, ours) }),
                // The time of two threads for the same number of reads each.
                ("ours two threads", { _ in loop(threads: 2, ours) }),
                ("floor two threads", { _ in loop(threads: 2, floor) }),
            ])
        try require(wrong.content == 0, "a read returned too little")
        try store.close()

        // Twice the reads in that time: throughput of two threads to that of one.
        func speedUps(_ name: String) -> [Double] {
            zip(contest.samples[name] ?? [], contest.samples[name + " two threads"] ?? []).map { 2 * $0 / $1 }
        }
        let (gain, floorGain) = (speedUps("ours"), speedUps("floor"))
        return [
            Figure(
                "memory-hit", "memory hit, 5 KB, one thread", .microseconds, contest,
                floorIs: "a dictionary under a lock", target: .atMost(0.5)),
            Figure(
                row: "memory-hit", what: "memory hits of two threads to one", unit: .factor, ours: median(gain),
                floor: median(floorGain), floorIs: "a dictionary under a lock", target: .atLeast(1.6),
                samples: ["ours": gain, "floor": floorGain]),
        ]
    }
}

/// What a memory cache is at the least.
private final class LockedDictionary: Sendable {
    private let lock = NSLock()
    // Never changed after it is made; the lock is there for its price.
    private let content: [TileKey: Data]

    init(_ content: [TileKey: Data]) { self.content = content }

    subscript(key: TileKey) -> Data? { lock.withLock { content[key] } }
}
