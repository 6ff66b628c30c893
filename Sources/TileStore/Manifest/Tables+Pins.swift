// What regions keep from being evicted.
extension Tables {
    func isPinned(_ key: PackedKey) -> Bool {
        guard !regionIndexes.isEmpty, !key.isResource, let index = regionIndexes[key.source] else { return false }
        return index.contains(z: key.zoom, x: key.column, y: key.row)
    }

    /// Whether a region pins a key, whether it has an entry or not.
    func isPinned(_ key: TileKey) -> Bool {
        guard !regionIndexes.isEmpty, let tile = key.tile, let source = names.source(key.source.description),
            let index = regionIndexes[source]
        else { return false }
        return index.contains(z: tile.z, x: tile.x, y: tile.y)
    }

    func pin(_ blobSlot: UInt32) {
        let blob = blobs.change(blobSlot)
        blob.pointee.pins += 1
        guard blob.pointee.pins == 1 else { return }
        blobOrder.remove(blobSlot, in: blobs)
        blobAccount.pin(blob.pointee.size)
    }

    /// - Parameter list: Whether it goes back into the order of use at once.
    func unpin(_ blobSlot: UInt32, list: Bool) {
        let blob = blobs.change(blobSlot)
        blob.pointee.pins -= 1
        guard blob.pointee.pins == 0 else { return }
        blobAccount.unpin(blob.pointee.size)
        if list, !loading { blobOrder.insert(blobSlot, in: blobs) }
    }

    /// Replaces or removes a region and settles what is pinned.
    ///
    /// Costs a pass over the entries. While tables are loaded, ``settleLoadedRegions()`` does it once for all.
    func setRegion(_ name: String, _ region: PinnedRegion?) {
        let old = regions[name]
        regions[name] = region
        guard !loading else { return }
        for source in Set([old?.source, region?.source].compactMap { $0 }) {
            if let number = indexRegions(of: source) { settlePins(number) }
        }
    }

    /// Settles what the regions pin that were loaded.
    func settleLoadedRegions() {
        indexRegions()
        if !regionIndexes.isEmpty { settlePins(nil) }
    }

    /// Indexes the regions of all sources.
    func indexRegions() {
        for source in Set(regions.values.map(\.source)) { _ = indexRegions(of: source) }
    }

    /// Indexes all regions of a source together; returns the source's number.
    private func indexRegions(of source: SourceName) -> UInt16? {
        let name = Array(source.description.utf8)
        guard let number = name.withUnsafeBytes({ names.enter(source: $0) }) else { return nil }
        let spans = regions.values.filter { $0.source == source }.flatMap(\.spans)
        regionIndexes[number] = spans.isEmpty ? nil : RegionIndex(spans)
        return number
    }

    /// - Parameter source: The source whose entries are looked at; `nil` for all.
    private func settlePins(_ source: UInt16?) {
        var unpinnedSlots: [UInt32] = []
        var unpinnedBlobs: [UInt32] = []
        for slot in 0..<entries.count {
            let record = entries[slot]
            guard record.pointee.isLive, source == nil || record.pointee.key.source == source else { continue }
            let blobSlot = record.pointee.blob
            if blobSlot != noSlot, !blobs[blobSlot].pointee.isLive { continue }
            let pinned = isPinned(record.pointee.key)
            guard pinned != record.pointee.isPinned else { continue }
            if pinned {
                entries.change(slot).pointee.flags |= EntryRecord.pinned
                entryOrder.remove(slot, in: entries)
                entryAccount.pin()
                if blobSlot != noSlot { pin(blobSlot) }
            } else {
                entries.change(slot).pointee.flags &= ~EntryRecord.pinned
                entryAccount.unpin()
                unpinnedSlots.append(slot)
                if blobSlot != noSlot {
                    unpin(blobSlot, list: false)
                    if blobs[blobSlot].pointee.pins == 0 { unpinnedBlobs.append(blobSlot) }
                }
            }
        }
        guard !loading else { return }
        entryOrder.merge(unpinnedSlots, in: entries)
        blobOrder.merge(
            unpinnedBlobs.filter { !blobOrder.contains($0, in: blobs) && blobs[$0].pointee.pins == 0 }, in: blobs)
    }
}
