import Foundation
import TileStore

extension Bench {
    /// A put of bytes that the cache does not have, one by one and in batches; fresh folders in every round.
    ///
    /// The price of creating a file drifts, so within a round the contestants take turns every 64 (256) puts.
    func putNew() throws -> [Figure] {
        let count = scaled(2_048, quick: 512)
        let puts = try zip(keys(source: "new", count: count), TileSet.distinct(count: count, bytes: 5_120, seed: 5))
            .enumerated().map { TilePut(key: $1.0, data: $1.1, metadata: metadata(UInt64($0))) }
        let openers = try zip(keys(source: "open", count: 256), shardOpeners).map {
            TilePut(key: $0, data: $1, metadata: metadata(0))
        }
        settle()

        func contest(batch: Int, chunk: Int) throws -> Contest {
            let chunks = stride(from: 0, to: count, by: chunk).map { puts[$0..<min($0 + chunk, count)] }
            let records = RawObjects.records(batch)
            var contest = Contest()
            for _ in 0..<rounds {
                let store = try TileStore(at: workspace.fresh("put"))
                try store.put(openers)
                let objects = try RawObjects(at: workspace.fresh("put"))
                for opener in openers { _ = try objects.write(opener.data.orThrow()) }
                let peers = try openPeers(at: workspace.fresh("put"))
                let paths = try puts.map { objects.path(of: digest(try $0.data.orThrow())) }
                let staging = puts.indices.map { objects.stagingPath($0) }

                func ours(_ step: Int) throws {
                    if batch > 1 {
                        try store.put(Array(chunks[step]))
                    } else {
                        for put in chunks[step] { try store.put(put.data, for: put.key, metadata: put.metadata) }
                    }
                }
                func floor(_ step: Int) throws {
                    let chunk = chunks[step]
                    for index in chunk.indices {
                        guard let data = chunk[index].data else { continue }
                        let digest = digest(data)
                        withExtendedLifetime(digest) {}
                        try staging[index].withUnsafeBufferPointer { staging in
                            try paths[index].withUnsafeBufferPointer { path in
                                try RawFiles.write(
                                    data, staging: staging.baseAddress.orThrow(), to: path.baseAddress.orThrow())
                            }
                        }
                        if (index + 1) % batch == 0 { try objects.append(records: records) }
                    }
                }
                func put(_ step: Int, into peer: any PeerCache) throws {
                    let chunk = chunks[step]
                    if batch > 1 {
                        try peer.put(chunk, use: chunk.startIndex)
                    } else {
                        for index in chunk.indices { try peer.put(chunk[index], use: index) }
                    }
                }
                try contest.run(
                    steps: chunks.count, dividingBy: Double(count) / 1e6,
                    [("floor", floor), ("ours", ours)]
                        + peers.map { name, peer in (name, { try put($0, into: peer) }) })
                try store.close()
                objects.close()
                for (_, peer) in peers { try peer.close() }
            }
            return contest
        }

        let floorIs = "SHA-256 + create + write + close + rename + append of 190 bytes under flock"
        return [
            Figure(
                "put-new", "put, new 5 KB blob, one by one", .microseconds, try contest(batch: 1, chunk: 64),
                floorIs: floorIs, target: .ratioAtMost(1.2)),
            Figure(
                "put-new", "put, new 5 KB blobs, batches of 256", .microseconds, try contest(batch: 256, chunk: 256),
                floorIs: floorIs),
        ]
    }
}
