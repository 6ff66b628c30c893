extension TileStore {
    /// Figures of the whole cache.
    ///
    /// Costs a pass over the entries: about 25 ms for a million.
    public func statistics() throws -> StoreStatistics {
        try catchUp()
        let now = environment.now()
        var figures = StoreStatistics()
        var sources: [SourceStatistics] = []
        do throws(FileError) {
            for name in try files.list("manifest") ?? [] {
                if let status = try files.status(at: "manifest/" + name), name != "reserve" {
                    figures.manifestBytes += Int(status.size)
                }
            }
        } catch { throw StoreError(error, in: files.location) }
        // In slices, so that writers come in between: what they do meanwhile may be counted or not.
        let start = figures
        var next: UInt32 = 0
        var isOver = false
        var counted: Tables?
        while !isOver {
            tables.read { t, _ in
                if counted !== t {
                    // The first slice, or the tables were loaded anew: their slots are other ones.
                    (counted, next, figures, sources) = (t, 0, start, [])
                    figures.blobs = t.blobCount
                    figures.bytes = t.blobBytes
                    figures.allocatedBytes = t.allocatedUnpinned + t.allocatedPinned
                    figures.pinnedBytes = t.allocatedPinned
                    figures.limits = t.limits
                }
                while sources.count < t.sources.count {
                    sources.append(SourceStatistics(name: t.sources[sources.count]))
                }
                let end = min(t.entries.count, next &+ 16384)
                for slot in next..<max(next, end) { count(slot, t, now, &figures, &sources) }
                next = end
                isOver = end >= t.entries.count
            }
            if !isOver { giveWay() }
        }
        figures.sources = sources.filter { $0.entries > 0 }.sorted { $0.name < $1.name }
        return figures
    }

    private func count(
        _ slot: UInt32, _ t: Tables, _ now: Timestamp, _ figures: inout StoreStatistics,
        _ sources: inout [SourceStatistics]
    ) {
        let record = t.entries[slot].pointee
        guard record.isLive, record.blob == noSlot || t.blobs[record.blob].pointee.isLive else { return }
        let size = record.blob == noSlot ? 0 : Int(t.blobs[record.blob].pointee.size)
        figures.entries += 1
        figures.logicalBytes += size
        let isStale =
            Int64(record.expires) <= now.seconds || Int64(record.storedAt) > now.adding(seconds: 60).seconds
        if isStale { figures.stale += 1 } else { figures.fresh += 1 }
        let status = t.fields(record.set).status
        if status >= 400 || status == 204 { figures.negative += 1 }
        if record.isPinned { figures.pinnedEntries += 1 }
        let key = record.key
        sources[Int(key.source)].entries += 1
        sources[Int(key.source)].bytes += size
        if !key.isResource {
            let zooms = sources[Int(key.source)].zooms ?? key.zoom...key.zoom
            sources[Int(key.source)].zooms = min(zooms.lowerBound, key.zoom)...max(zooms.upperBound, key.zoom)
        }
    }
}
