// What regions keep from being evicted.
extension Tables {
    func isPinned(_ key: PackedKey) -> Bool {
        if key.isResource {
            guard !pinnedResources.isEmpty, let texts = pinnedResources[key.source],
                let name = names.resource(key.resourceNumber)
            else { return false }
            return texts.contains(ResourceAddress.textForAllVariants(name.text))
        }
        guard !regionIndexes.isEmpty, let index = regionIndexes[key.source] else { return false }
        return index.contains(z: key.zoom, x: key.column, y: key.row)
    }

    /// Whether a region pins a key, whether it has an entry or not.
    func isPinned(_ key: TileKey) -> Bool {
        guard !(regionIndexes.isEmpty && pinnedResources.isEmpty), let source = names.source(key.source.description)
        else { return false }
        switch key.address {
        case .tile(let tile): return regionIndexes[source]?.contains(z: tile.z, x: tile.x, y: tile.y) ?? false
        case .resource(let resource): return pinnedResources[source]?.contains(resource.forAllVariants.text) ?? false
        }
    }

    func pin(_ blobSlot: UInt32) {
        let blob = blobs.change(blobSlot)
        blob.pointee.pins += 1
        guard blob.pointee.pins == 1 else { return }
        blobOrder.remove(blobSlot, in: blobs)
        blobAccount.pin(blob.pointee.size)
        sharePinned(blobSlot, isPinned: true)
    }

    /// - Parameter list: Whether it goes back into the order of use at once.
    func unpin(_ blobSlot: UInt32, list: Bool) {
        let blob = blobs.change(blobSlot)
        blob.pointee.pins -= 1
        guard blob.pointee.pins == 0 else { return }
        blobAccount.unpin(blob.pointee.size)
        sharePinned(blobSlot, isPinned: false)
        if list, !loading { blobOrder.insert(blobSlot, in: blobs) }
    }

    /// Replaces or removes a region and settles what is pinned.
    ///
    /// Costs a pass over the entries. While tables are loaded, ``settleLoadedRegions()`` does it once for all.
    func setRegion(_ name: String, _ region: PinnedRegion?) {
        let old = regions[name]
        regions[name] = region
        guard !loading else { return }
        settlePins(index((old?.sources ?? []).union(region?.sources ?? [])))
    }

    /// Settles what the regions pin that were loaded.
    func settleLoadedRegions() {
        settlePins(indexRegions())
    }

    /// Indexes what all regions pin; returns the numbers of the sources.
    @discardableResult
    func indexRegions() -> Set<UInt16> {
        index(regions.values.reduce(into: []) { $0.formUnion($1.sources) })
    }

    /// Indexes what all regions together pin of some sources; returns the sources' numbers.
    private func index(_ sources: Set<SourceName>) -> Set<UInt16> {
        var numbers: [SourceName: UInt16] = [:]
        for source in sources {
            let name = Array(source.description.utf8)
            numbers[source] = name.withUnsafeBytes { names.enter(source: $0) }
        }
        var spans: [UInt16: [TileSpan]] = [:]
        for number in numbers.values { (spans[number], pinnedResources[number]) = ([], nil) }
        for region in regions.values {
            for tiles in region.tiles {
                if let number = numbers[tiles.source] { spans[number]?.append(contentsOf: tiles.spans) }
            }
            for key in region.resources {
                guard case .resource(let resource) = key.address, let number = numbers[key.source] else { continue }
                pinnedResources[number, default: []].insert(resource.text)
            }
        }
        for (number, spans) in spans { regionIndexes[number] = spans.isEmpty ? nil : RegionIndex(spans) }
        return Set(numbers.values)
    }

    /// - Parameter sources: The sources whose entries are looked at.
    private func settlePins(_ sources: Set<UInt16>) {
        guard !sources.isEmpty else { return }
        var isMeant = [Bool](repeating: false, count: names.sources.count)
        for source in sources { isMeant[Int(source)] = true }
        var unpinnedSlots: [UInt32] = []
        var unpinnedBlobs: [UInt32] = []
        for slot in 0..<entries.count {
            let record = entries[slot]
            guard record.pointee.isLive, isMeant[Int(record.pointee.key.source)] else { continue }
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
