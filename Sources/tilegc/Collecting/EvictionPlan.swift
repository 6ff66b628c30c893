import TileStore

/// What an eviction would remove from a cache from which other entries have gone before.
///
/// The store plans evictions for the cache as it is. This follows the same rules for a part of its entries: whole
/// blobs in the order of their last use while there are too many bytes, then single entries. Memory: about 150 bytes an
/// entry, for a dry run that combines ages with limits only.
struct EvictionPlan {
    private struct Blob {
        var allocated = 0
        var recency: UInt64 = 0
        var isPinned = false
        var entries = 0
        var isGone = false
    }
    private struct Entry {
        var blob: BlobDigest?
        var recency: UInt64
    }

    /// The unit in which the disk gives out space.
    let blockSize: Int
    private var blobs: [BlobDigest: Blob] = [:]
    private var unpinned: [Entry] = []

    init(blockSize: Int) { self.blockSize = max(1, blockSize) }

    /// Counts an entry that is still there.
    mutating func add(_ entry: TileEntry) {
        if let digest = entry.blob {
            var blob = blobs[digest] ?? Blob()
            blob.allocated = (entry.size + blockSize - 1) / blockSize * blockSize
            blob.recency = max(blob.recency, entry.recency)
            blob.isPinned = blob.isPinned || entry.isPinned
            blob.entries += 1
            blobs[digest] = blob
        }
        if !entry.isPinned { unpinned.append(Entry(blob: entry.blob, recency: entry.recency)) }
    }

    /// Removes until both limits hold; `nil` bytes for no limit.
    mutating func evict(toBytes bytes: Int?, entries: Int) -> RemovalReport {
        var report = RemovalReport()
        var count = unpinned.count
        if let bytes {
            let candidates = blobs.filter { !$0.value.isPinned }.sorted { $0.value.recency < $1.value.recency }
            var allocated = candidates.reduce(0) { $0 + $1.value.allocated }
            for (digest, blob) in candidates where allocated > bytes {
                allocated -= blob.allocated
                count -= blob.entries
                report.removedEntries += blob.entries
                report.removedBlobs += 1
                report.freedBytes += blob.allocated
                blobs[digest]?.isGone = true
            }
        }
        guard count > entries else { return report }
        for entry in unpinned.sorted(by: { $0.recency < $1.recency }) where count > entries {
            if let digest = entry.blob, var blob = blobs[digest] {
                if blob.isGone { continue }
                blob.entries -= 1
                if blob.entries == 0 {
                    blob.isGone = true
                    report.removedBlobs += 1
                    report.freedBytes += blob.allocated
                }
                blobs[digest] = blob
            }
            report.removedEntries += 1
            count -= 1
        }
        return report
    }
}
