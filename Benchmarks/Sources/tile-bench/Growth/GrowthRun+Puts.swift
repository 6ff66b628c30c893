import Foundation
import TileStore

extension GrowthRun {
    /// Puts into the cache as large as it is: new blobs beside files that are staged and renamed into the same folders,
    /// and duplicates.
    func puts() throws -> [Figure] {
        let count = quick ? 512 : 2_048
        let chunk = 64
        let store = try cache.open()
        let objects = try RawObjects(at: scratch + "/floor-\(getpid())")
        defer { objects.close() }
        let record = RawObjects.records(1)
        var new = Contest()
        var made: [[CChar]] = []
        let rounds = quick ? 1 : 5
        for round in 0..<rounds {
            let first = cache.entries + round * count
            let ours = TileSet.distinct(count: count, bytes: 5_120, seed: 500 + UInt64(round) &+ UInt64(getpid()) << 8)
            let theirs = TileSet.distinct(
                count: count, bytes: 5_120, seed: 600 + UInt64(round) &+ UInt64(getpid()) << 8)
            let keys = try (first..<(first + count)).map { try cache.key($0) }
            let paths = theirs.map { RawObjects.path(of: digest($0), in: cache.path) }
            let staging = theirs.indices.map { Array("\(cache.path)/staging/floor-\($0)".utf8CString) }
            made += paths
            try new.run(
                steps: count / chunk, dividingBy: Double(count) / 1e6,
                [
                    (
                        "floor",
                        { step in
                            for index in (step * chunk)..<((step + 1) * chunk) {
                                withExtendedLifetime(digest(theirs[index])) {}
                                try staging[index].withUnsafeBufferPointer { staging in
                                    try paths[index].withUnsafeBufferPointer { path in
                                        try RawFiles.write(
                                            theirs[index], staging: staging.baseAddress.orThrow(),
                                            to: path.baseAddress.orThrow())
                                    }
                                }
                                try objects.append(records: record)
                            }
                        }
                    ),
                    (
                        "ours",
                        { step in
                            for index in (step * chunk)..<((step + 1) * chunk) {
                                try store.put(ours[index], for: keys[index], metadata: metadata(UInt64(index)))
                            }
                        }
                    ),
                ])
        }
        // Nothing is created after this that is measured: ext4 is slow at that where files have just been deleted.
        for path in made { unlink(path) }

        let duplicates = 20_480
        let puts = try (0..<duplicates).map { number in
            TilePut(
                key: try cache.key(cache.entries + 100_000 + number), data: TileSet.ocean,
                metadata: metadata(UInt64(number)))
        }
        var single: [Double] = []
        var batched: [Double] = []
        for _ in 0..<rounds {
            single.append(
                try seconds { for put in puts { try store.put(put.data, for: put.key, metadata: put.metadata) } } * 1e6
                    / Double(duplicates))
            batched.append(
                try seconds {
                    for start in stride(from: 0, to: duplicates, by: 256) {
                        try store.put(Array(puts[start..<min(start + 256, duplicates)]))
                    }
                } * 1e6 / Double(duplicates))
        }
        _ = try store.remove(puts.map(\.key))
        try store.close()
        return [
            Figure(
                "growth-put-new", "put, new 5 KB blob, one by one", .microseconds, new,
                floorIs: "SHA-256 + create + write + close + rename in the same folders + append under flock",
                target: .ratioAtMost(1.2)),
            Figure(
                row: "growth-put-duplicate", what: "put, duplicate, one by one", unit: .microseconds,
                ours: median(single), samples: ["ours": single]),
            Figure(
                row: "growth-put-duplicates", what: "put, duplicates, batches of 256", unit: .microseconds,
                ours: median(batched), samples: ["ours": batched]),
        ]
    }
}
