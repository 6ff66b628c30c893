import Foundation
import TileCache
import TileStore

extension Bench {
    /// A fresh tile through `TileCache`, over what the store's own read of it costs: from memory and from disk.
    func cacheHit() throws -> [Figure] {
        try [
            cacheHit("from memory", memoryTierBytes: 64 << 20, reads: scaled(400_000, quick: 50_000)),
            cacheHit("from disk", memoryTierBytes: 0, reads: scaled(40_000, quick: 10_000)),
        ]
    }

    private func cacheHit(_ name: String, memoryTierBytes: Int, reads: Int) throws -> Figure {
        let count = 2_000
        var configuration = TileCacheConfiguration()
        configuration.store.memoryTierBytes = memoryTierBytes
        let cache = try TileCache(
            at: workspace.path("cache-hit-" + String(memoryTierBytes)), transport: NoTransport(),
            configuration: configuration)
        let source = try TileSource("hit", template: "https://tiles.example/{z}/{x}/{y}.png")
        let keys = try keys(source: "hit", count: count)
        let now = Timestamp(Date())
        try cache.store.put(
            zip(keys, TileSet.distinct(count: count, bytes: 5_120, seed: 5)).enumerated().map {
                var described = metadata(UInt64($0))
                described.storedAt = now
                described.expires = now.adding(seconds: 604_800)
                return TilePut(key: $1.0, data: $1.1, metadata: described)
            })
        var random = SplitMix64(seed: 6)
        let order = keys.shuffled(using: &random)
        let passes = max(1, reads / count)
        func microseconds(_ read: @escaping @Sendable (TileKey) async throws -> Int) throws -> Double {
            try waiting {
                var bytes = 0
                let start = nanoseconds()
                for _ in 0..<passes { for key in order { bytes &+= try await read(key) } }
                let time = Double(nanoseconds() - start) / 1e3
                try require(bytes == passes * count * 5_120, "a read returned too little")
                return time / Double(passes * count)
            }
        }
        // Both loops call through the same kind of closure, so that its price is in both.
        let ours: @Sendable (TileKey) async throws -> Int = { try await cache.tile(source, $0)?.data?.count ?? 0 }
        let bare: @Sendable (TileKey) async throws -> Int = { try cache.store.read($0)?.data?.count ?? 0 }
        _ = try (microseconds(ours), microseconds(bare))

        var contest = Contest()
        try contest.run(
            rounds: rounds, [("bare", { _ in try microseconds(bare) }), ("ours", { _ in try microseconds(ours) })])
        try cache.close()
        let more = zip(contest.samples["ours"] ?? [], contest.samples["bare"] ?? []).map { $0 - $1 }
        return Figure(
            row: "cache-hit", what: "a fresh tile \(name), more than the store's read", unit: .microseconds,
            ours: median(more), floor: contest.median(of: "bare"), floorIs: "TileStore.read of the same tile",
            ratio: contest.ratio("ours", to: "bare"), target: .atMost(1.5), samples: contest.samples)
    }
}

/// For a cache that has everything.
private struct NoTransport: TileTransport {
    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        throw TransportError(.unsupported, "nothing is sent here")
    }
}

/// Runs a body that waits, from a thread that may block.
private func waiting<R: Sendable>(_ body: @escaping @Sendable () async throws -> R) throws -> R {
    let box = ResultBox<R>()
    Task {
        do { box.result = .success(try await body()) } catch { box.result = .failure(error) }
        box.done.signal()
    }
    box.done.wait()
    guard let result = box.result else { throw BenchError("a task was lost") }
    return try result.get()
}

/// Written before the semaphore is signalled, read after it was waited for.
private final class ResultBox<R: Sendable>: @unchecked Sendable {
    let done = DispatchSemaphore(value: 0)
    var result: Result<R, any Error>?
}
