import Foundation
import TileStore

extension GrowthRun {
    /// Hits on the hot tiles in random order: from disk, beside reading the same files of the same folders, and from memory.
    func hits() throws -> [Figure] {
        var random = SplitMix64(seed: 2)
        let order = (0..<GrowthCache.hotCount).shuffled(using: &random)
        let keys = try cache.hotKeys()
        let readKeys = order.map { keys[$0] }
        let bytes = (0..<GrowthCache.hotCount).reduce(0) { $0 + cache.hotBlob($1).count }
        let paths = order.map { RawObjects.path(of: digest(cache.hotBlob($0)), in: cache.path) }
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 16, alignment: 4096)
        defer { buffer.deallocate() }
        let passes = quick ? 2 : 5
        func microseconds(_ body: () throws -> Int) throws -> Double {
            var found = 0
            let time = try seconds { for _ in 0..<passes { found += try body() } }
            try require(found == passes * bytes, "the reads returned \(found) bytes instead of \(passes * bytes)")
            return time * 1e6 / Double(passes * readKeys.count)
        }
        func reads(_ store: TileStore) -> () throws -> Int {
            {
                var found = 0
                for key in readKeys { found += try store.read(key)?.data?.count ?? 0 }
                return found
            }
        }
        func floor() throws -> Int {
            var found = 0
            for path in paths {
                found += try path.withUnsafeBufferPointer { try RawFiles.read($0.baseAddress.orThrow(), into: buffer) }
            }
            return found
        }
        let rounds = quick ? 3 : 11
        var disk = Contest()
        do {
            let store = try cache.open()
            let ours = reads(store)
            _ = try (ours(), ours(), floor())
            try disk.run(
                rounds: rounds,
                [("floor", { _ in try microseconds(floor) }), ("ours", { _ in try microseconds(ours) })])
            try store.close()
        }
        var memory = Contest()
        let store = try TileStore(at: cache.path)
        let ours = reads(store)
        _ = try (ours(), ours())
        try require(try readKeys.allSatisfy { try store.read($0)?.origin == .memory }, "not all are in memory")
        try memory.run(rounds: rounds, [("ours", { _ in try microseconds(ours) })])
        try store.close()
        return [
            Figure(
                "growth-hit-disk", "disk hit of 10,000 hot tiles", .microseconds, disk,
                floorIs: "open + fstat + read + close of the same files"),
            Figure("growth-hit-memory", "memory hit of 10,000 hot tiles", .microseconds, memory),
        ]
    }
}
