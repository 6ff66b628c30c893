import Foundation
import TileStore

extension Bench {
    /// A read that finds its blob on disk, in the page cache; the memory tier is off and every blob's digest has been
    /// checked before.
    func diskHit() throws -> [Figure] {
        let count = scaled(4_000, quick: 1_000)
        var configuration = StoreConfiguration()
        configuration.memoryTierBytes = 0
        let store = try TileStore(at: workspace.path("disk-hit"), configuration: configuration)
        let peers = try openPeers(at: workspace.path("disk-hit"))
        let puts = try zip(keys(source: "hit", count: count), TileSet.distinct(count: count, bytes: 5_120, seed: 1))
            .enumerated().map { TilePut(key: $1.0, data: $1.1, metadata: metadata(UInt64($0))) }
        for start in stride(from: 0, to: count, by: 256) {
            let batch = puts[start..<min(start + 256, count)]
            try store.put(Array(batch))
            for (_, peer) in peers { try peer.put(batch, use: start) }
        }
        var random = SplitMix64(seed: 2)
        let order = puts.shuffled(using: &random)
        let readKeys = order.map(\.key)
        let paths = try order.map { put in
            RawObjects.path(of: digest(try put.data.orThrow("no data")), in: workspace.path("disk-hit"))
        }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 16, alignment: 4096)
        defer { buffer.deallocate() }

        let passes = scaled(5, quick: 2)
        func microseconds(_ body: () throws -> Int) throws -> Double {
            var bytes = 0
            let time = try seconds { for _ in 0..<passes { bytes += try body() } }
            try require(bytes == passes * count * 5_120, "a read returned too little")
            return time * 1e6 / Double(passes * count)
        }
        func ours() throws -> Int {
            var bytes = 0
            for key in readKeys { bytes += try store.read(key)?.data?.count ?? 0 }
            return bytes
        }
        func floor() throws -> Int {
            var bytes = 0
            for path in paths {
                bytes += try path.withUnsafeBufferPointer { try RawFiles.read($0.baseAddress.orThrow(), into: buffer) }
            }
            return bytes
        }
        func read(_ peer: any PeerCache) throws -> Int {
            var bytes = 0
            for key in readKeys { bytes += try peer.read(key)?.count ?? 0 }
            return bytes
        }
        _ = try (ours(), ours(), floor())
        for (_, peer) in peers { _ = try read(peer) }
        let first = try readKeys.first.orThrow()
        try require(try store.read(first)?.origin == .disk, "the memory tier answered")

        var contest = Contest()
        try contest.run(
            rounds: rounds,
            [
                ("floor", { _ in try microseconds(floor) }),
                ("ours", { _ in try microseconds(ours) }),
            ] + peers.map { name, peer in (name, { _ in try microseconds { try read(peer) } }) })
        try store.close()
        for (_, peer) in peers { try peer.close() }
        return [
            Figure(
                "disk-hit", "disk hit, 5 KB, page cache warm", .microseconds, contest,
                floorIs: "open + fstat + read + close", target: .ratioAtMost(1.3))
        ]
    }
}

extension Optional {
    /// The value, or an error.
    func orThrow(_ message: String = "a value is missing") throws -> Wrapped {
        guard let self else { throw BenchError(message) }
        return self
    }
}
