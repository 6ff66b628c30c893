import Foundation
import TileStore

extension Bench {
    /// A put of the ocean tile under a new key: nothing but a record is written.
    func putDuplicate() throws -> [Figure] {
        let count = scaled(102_400, quick: 10_240)
        let puts = try keys(source: "sea", count: count).enumerated().map {
            TilePut(key: $1, data: TileSet.ocean, metadata: metadata(UInt64($0)))
        }
        let first = try keys(source: "first", count: 1)

        func ours(batch: Int) throws -> Double {
            let store = try TileStore(at: workspace.fresh("duplicate"))
            try store.put(TileSet.ocean, for: first[0], metadata: metadata(0))
            let batches = stride(from: 0, to: count, by: batch).map { Array(puts[$0..<min($0 + batch, count)]) }
            let time = try seconds {
                if batch == 1 {
                    for put in puts { try store.put(put.data, for: put.key, metadata: put.metadata) }
                } else {
                    for batch in batches { try store.put(batch) }
                }
            }
            try store.close()
            return Double(count) / time
        }
        func floor(batch: Int) throws -> Double {
            let objects = try RawObjects(at: workspace.fresh("duplicate"))
            let records = RawObjects.records(batch)
            let time = try seconds {
                for index in 0..<count {
                    let digest = digest(TileSet.ocean)
                    withExtendedLifetime(digest) {}
                    if (index + 1) % batch == 0 { try objects.append(records: records) }
                }
            }
            objects.close()
            return Double(count) / time
        }
        func rate(of peer: Peer, batch: Int) throws -> Double {
            let cache = try peer.open(at: workspace.fresh("duplicate." + peer.rawValue))
            let time = try seconds {
                if batch == 1 {
                    for (index, put) in puts.enumerated() { try cache.put(put, use: index) }
                } else {
                    for start in stride(from: 0, to: count, by: batch) {
                        try cache.put(puts[start..<min(start + batch, count)], use: start)
                    }
                }
            }
            try cache.close()
            return Double(count) / time
        }

        settle()
        var single = Contest()
        var batched = Contest()
        try single.run(
            rounds: scaled(7, quick: 3),
            [
                ("floor", { _ in try floor(batch: 1) }), ("ours", { _ in try ours(batch: 1) }),
            ] + Peer.installed.map { peer in (peer.rawValue, { _ in try rate(of: peer, batch: 1) }) })
        try batched.run(
            rounds: scaled(7, quick: 3),
            [
                ("floor", { _ in try floor(batch: 256) }), ("ours", { _ in try ours(batch: 256) }),
            ] + Peer.installed.map { peer in (peer.rawValue, { _ in try rate(of: peer, batch: 256) }) })
        let floorIs = "SHA-256 + append of 190 bytes under flock, with a look at its length"
        return [
            Figure(
                "put-duplicate", "put, duplicate, one by one", .perSecond, single, floorIs: floorIs,
                target: .atLeast(250_000)),
            Figure(
                "put-duplicate", "put, duplicates, batches of 256", .perSecond, batched, floorIs: floorIs,
                target: .atLeast(800_000)),
        ]
    }
}
