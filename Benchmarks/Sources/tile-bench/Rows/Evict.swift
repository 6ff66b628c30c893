import Foundation
import TileStore

extension Bench {
    /// Eviction of everything, beside unlinking equal files in the same order.
    ///
    /// All rounds are prepared before the first is measured: creating files after many were deleted is slow.
    func evict() throws -> [Figure] {
        let rounds = scaled(5, quick: 3)
        let count = scaled(10_240, quick: 2_048)
        let puts = try zip(keys(source: "old", count: count), TileSet.distinct(count: count, bytes: 5_120, seed: 6))
            .enumerated().map { TilePut(key: $1.0, data: $1.1, metadata: metadata(UInt64($0))) }
        let batches = stride(from: 0, to: count, by: 256).map { puts[$0..<min($0 + 256, count)] }

        let stores = try (0..<rounds).map { _ in
            let store = try TileStore(at: workspace.fresh("evict"))
            for batch in batches { try store.put(Array(batch)) }
            return store
        }
        let folders = try (0..<rounds).map { _ in
            let objects = try RawObjects(at: workspace.fresh("evict"))
            defer { objects.close() }
            return try puts.map { try objects.write($0.data.orThrow()) }
        }
        let peers = try (0..<rounds).map { _ in
            let peers = try openPeers(at: workspace.fresh("evict"))
            for (_, peer) in peers {
                for batch in batches { try peer.put(batch, use: batch.startIndex) }
                try peer.checkpoint()
            }
            return peers
        }
        settle()

        var contest = Contest()
        try contest.run(
            rounds: rounds,
            [
                (
                    "floor",
                    { round in
                        let time = try seconds {
                            for path in folders[round] { try require(unlink(path) == 0, "unlink failed") }
                        }
                        return Double(count) / time
                    }
                ),
                (
                    "ours",
                    { round in
                        var report = RemovalReport()
                        let time = try seconds { report = try stores[round].evict(toBytes: 0) }
                        try require(report.removedBlobs == count, "\(report.removedBlobs) blobs of \(count) evicted")
                        return Double(count) / time
                    }
                ),
            ]
                + peers[0].indices.map { index in
                    let name = peers[0][index].name
                    return (
                        name,
                        { round in
                            let peer = peers[round][index].peer
                            let time = try seconds { try peer.evict(entries: count) }
                            try require(try peer.count() == 0, "\(name) kept entries")
                            return Double(count) / time
                        }
                    )
                })
        for store in stores { try store.close() }
        for (_, peer) in peers.joined() { try peer.close() }
        return [
            Figure(
                "evict", "eviction of 5 KB blobs", .perSecond, contest, floorIs: "unlink of the same files",
                target: .ratioAtLeast(0.8))
        ]
    }
}
