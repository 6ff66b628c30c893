/// An entry whose blob is in the cache already: its key, the blob's name and size, and what is known of it.
package struct PresentBlob: Sendable {
    package let key: TileKey
    package let blob: BlobDigest
    package let size: Int
    package let metadata: TileMetadata

    package init(key: TileKey, blob: BlobDigest, size: Int, metadata: TileMetadata) {
        self.key = key
        self.blob = blob
        self.size = size
        self.metadata = metadata
    }
}

// For a published set: its blobs are stored first, and its keys are recorded when all of them are there.
extension TileStore {
    /// Whether an entry names a blob of this size, as far as this process has read the manifest.
    package func hasBlob(_ digest: BlobDigest, size: Int) -> Bool {
        tables.read { t, _ in t.find(digest).map { Int(t.blobs[$0].pointee.size) == size } ?? false }
    }

    /// Whether a blob is there: an entry names it, and its file has its length.
    ///
    /// Where a power cut may have damaged it, it has its bytes too. Blocks.
    package func hasSoundBlob(_ digest: BlobDigest, size: Int) throws -> Bool {
        guard hasBlob(digest, size: size) else { return false }
        let isDoubtful = suspicious.withLock { $0 }
        do throws(FileError) {
            return try isDoubtful
                ? blobs.reader.isIntact(digest, size: size) : blobs.reader.isThere(digest, size: size)
        } catch {
            throw StoreError(error, in: files.location)
        }
    }

    /// Records entries by the names of their blobs, in one hold of the lock; what is stored under the keys is replaced.
    ///
    /// - Returns: Those that were not recorded, as their blob or its file is not there.
    package func record(present tiles: [PresentBlob]) throws -> [PresentBlob] {
        for tile in tiles { try check(tile.metadata, size: tile.size) }
        let missing = try hold { try record(present: tiles, $0) }
        if tables.read({ t, _ in t.exceedsLimits }) { try enforceLimits() }
        return missing
    }

    private func record(present tiles: [PresentBlob], _ ledger: Ledger) throws -> [PresentBlob] {
        var lines = LineBuffer()
        var sets = PendingSets()
        var missing: [PresentBlob] = []
        var recency = tables.read { t, _ in t.nextSequence }
        var count = 0
        for tile in tiles {
            guard try isThere(tile, ledger) else {
                missing.append(tile)
                continue
            }
            let (set, bound) = tables.read { t, _ -> (UInt32?, TableBound?) in
                let packed = t.packed(tile.key)
                if !t.hasRoom(after: count, isNamed: packed != nil) {
                    let isNew = packed.flatMap { t.find($0) } == nil
                    if let bound = t.bound(beyond: tile.key, packed, needsEntry: isNew, needsBlob: false) {
                        return (nil, bound)
                    }
                }
                return (sets.number(for: tile.metadata.response, t, ledger, &lines), nil)
            }
            guard let set else {
                throw (bound ?? .sets).error(storing: "\(tile.key)", in: files.location, environment.bounds)
            }
            lines.put(tile.key, blob: tile.blob, size: tile.size, set: set, tile.metadata, recency: recency)
            recency += 1
            count += 1
        }
        if count > 0 { try appendRecords(lines, ledger) }
        if isCompactionDue(ledger) { maintenance?.scheduleCompaction() }
        return missing
    }

    private func isThere(_ tile: PresentBlob, _ ledger: Ledger) throws -> Bool {
        guard hasBlob(tile.blob, size: tile.size) else { return false }
        // What a durable store has acknowledged is on the disk, whoever wrote the bytes.
        if isDurable, tables.read({ t, _ in t.find(tile.blob).map { t.mayBeUnsynced($0) } ?? false }) {
            return try syncLive(tile.blob, tile.size)
        }
        do throws(FileError) { return try blobs.reader.isThere(tile.blob, size: tile.size) } catch {
            throw StoreError(error, in: files.location)
        }
    }
}
