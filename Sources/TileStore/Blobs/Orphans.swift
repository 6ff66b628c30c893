/// Something in `objects/` that no entry names.
///
/// Only ``Tables/orphan(at:)`` makes one: who decides that a file is an orphan are the tables.
struct Orphan {
    let path: String

    fileprivate init(_ path: String) { self.path = path }
}

extension Tables {
    /// What is at a path in `objects/`, if no entry names it.
    ///
    /// Under the lock, caught up. Blobs are put in place under the lock, in the hold that records them: so a file that is not
    /// counted is left over from a crash, or somebody has put it there.
    func orphan(at path: String) -> Orphan? {
        let parts = path.split(separator: "/")
        if parts.count == 3, let digest = BlobDigest(String(parts[2])), digest.path == path, find(digest) != nil {
            return nil
        }
        return Orphan(path)
    }
}

// Files that a crash left behind, or that somebody has put there.
extension TileStore {
    /// Under the lock: what is at a path in `objects/`, if there is anything and no entry names it.
    func orphan(at path: String) throws -> Orphan? {
        try blobs.contains(path) ? tables.read { t, _ in t.orphan(at: path) } : nil
    }

    /// Removes what no entry names from one folder of blobs.
    ///
    /// - Returns: How many files there were.
    @discardableResult
    func removeOrphans(inShard shard: UInt8) throws -> Int {
        var work = beginLongWork()
        return try removeOrphans(inShard: shard, as: &work)
    }

    /// The same as a part of longer work.
    @discardableResult
    func removeOrphans(inShard shard: UInt8, as work: inout LongWork) throws -> Int {
        let candidates = try orphanCandidates(inShard: shard)
        var (removed, next) = (0, 0)
        while next < candidates.count {
            work.letOthersIn()
            try hold { ledger in
                guard let folder = try ledger.confirmFolder() else { return next = candidates.count }
                // What left them without entries may not be on the disk: who wrote it may have died.
                if isDurable { try ledger.syncLines() }
                let limit = environment.ticks() &+ Self.holdNanoseconds
                repeat {
                    if let orphan = try orphan(at: candidates[next]) {
                        try blobs.remove(orphan, folder)
                        removed += 1
                    }
                    next += 1
                } while next < candidates.count && environment.ticks() <= limit
            }
        }
        return removed
    }

    /// Everything in `objects/` that does not look like a blob that is counted: to be confirmed under the lock.
    func orphanCandidates() throws -> [String] {
        var paths: [String]
        do throws(FileError) { paths = try blobs.shards.strangers() } catch {
            throw StoreError(error, in: files.location)
        }
        for shard in 0...255 { paths += try orphanCandidates(inShard: UInt8(shard)).sorted() }
        return paths
    }

    private func orphanCandidates(inShard shard: UInt8) throws -> [String] {
        do throws(FileError) {
            guard let (folder, names) = try blobs.shards.contents(of: shard) else { return [] }
            guard let names else { return [folder] }
            var found: [String] = []
            for start in stride(from: 0, to: names.count, by: 256) {
                // In slices: who changes the tables for a reader's sake waits meanwhile.
                tables.read { t, _ in
                    for name in names[start..<min(start + 256, names.count)] {
                        if let digest = BlobDigest(name), digest.shard == shard, t.find(digest) != nil { continue }
                        found.append(folder + "/" + name)
                    }
                }
            }
            return found
        } catch { throw StoreError(error, in: files.location) }
    }
}
