/// Which of the 256 folders of `objects/` are known to be there, and to be folders and not links to elsewhere.
struct ShardSet {
    private var known = [Bool](repeating: false, count: 256)

    func contains(_ shard: UInt8) -> Bool { known[Int(shard)] }
    mutating func insert(_ shard: UInt8) { known[Int(shard)] = true }

    static func path(_ shard: UInt8) -> String {
        "objects/" + (shard < 16 ? "0" : "") + String(shard, radix: 16)
    }
}

extension TileStore {
    /// Makes sure that a blob's folder is there, and that it is one: blobs are never written through a planted link.
    func prepareShard(_ shard: UInt8) throws {
        if shards.withLock({ $0.contains(shard) }) { return }
        let path = ShardSet.path(shard)
        if try !files.makeFolder(path), let status = try files.status(at: path), status.kind != .folder {
            throw StoreError(
                .damaged, "\(files.location)/\(path) is no folder; remove it, then run tilegc verify --repair")
        }
        if isDurable { try files.syncFolder("objects") }
        shards.withLock { $0.insert(shard) }
    }
}

/// Names for files in `staging/` that no other store of any process gives.
final class StagingNames: Sendable {
    private let prefix: String
    private let count = Locked(0)

    /// - Parameter random: 64 bits that no other store has.
    init(_ random: UInt64) { prefix = "staging/" + String(random, radix: 36) + "-" }

    func next() -> String {
        let number = count.withLock {
            $0 += 1
            return $0
        }
        return prefix + String(number, radix: 36)
    }
}
