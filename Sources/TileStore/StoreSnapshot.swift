/// All that a cache's tables say, for comparing stores with each other and with a model.
package struct StoreSnapshot: Equatable, Sendable {
    package var entries: [TileEntry]
    package var blobs: [BlobState]
    package var limits: StoreLimits
    package var regions: [PinnedRegion]
    package var nextSequence: UInt64

    package init(
        entries: [TileEntry], blobs: [BlobState], limits: StoreLimits, regions: [PinnedRegion], nextSequence: UInt64
    ) {
        self.entries = entries
        self.blobs = blobs
        self.limits = limits
        self.regions = regions
        self.nextSequence = nextSequence
    }
}

/// A blob's state in the tables.
package struct BlobState: Equatable, Sendable {
    package var digest: BlobDigest
    package var size: Int
    package var references: Int
    package var pins: Int
    package var recency: UInt64

    package init(digest: BlobDigest, size: Int, references: Int, pins: Int, recency: UInt64) {
        self.digest = digest
        self.size = size
        self.references = references
        self.pins = pins
        self.recency = recency
    }
}

extension TileStore {
    /// What the tables say now, without catching up.
    package func snapshot() throws -> StoreSnapshot {
        tables.read { t, _ in
            var entries: [TileEntry] = []
            for slot in 0..<t.entries.count {
                let record = t.entries[slot].pointee
                guard record.isLive, record.blob == noSlot || t.blobs[record.blob].pointee.isLive else { continue }
                entries.append(t.entry(slot))
            }
            var blobs: [BlobState] = []
            for slot in 0..<t.blobs.count {
                let blob = t.blobs[slot].pointee
                guard blob.isLive else { continue }
                blobs.append(
                    BlobState(
                        digest: blob.digest, size: Int(blob.size), references: Int(blob.references),
                        pins: Int(blob.pins), recency: blob.recency))
            }
            return StoreSnapshot(
                entries: entries.sorted { $0.key < $1.key }, blobs: blobs.sorted { $0.digest < $1.digest },
                limits: t.limits, regions: t.regions.values.sorted { $0.name < $1.name }, nextSequence: t.nextSequence)
        }
    }
}
