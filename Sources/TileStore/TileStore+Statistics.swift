extension TileStore {
    /// Figures of the whole cache.
    ///
    /// Costs a pass over the entries: about 25 ms for a million.
    public func statistics() throws -> StoreStatistics {
        try catchUp()
        return counted(try manifestFigures()).figures
    }

    /// The sizes of the manifest's files, and the number of the newest checkpoint.
    func manifestFigures() throws -> ManifestFigures {
        var figures = ManifestFigures()
        do throws(FileError) {
            for name in try files.list("manifest") ?? [] {
                guard name != "reserve", let status = try files.status(at: "manifest/" + name) else { continue }
                let size = Int(status.size)
                figures.all += size
                if Ledger.generation(of: name, "checkpoint-", ".json") != nil {
                    figures.checkpoint += size
                } else if Ledger.generation(of: name, "journal-", ".jsonl") != nil {
                    figures.journal += size
                } else if Ledger.generation(of: name, "index-", ".bin") != nil {
                    figures.image += size
                }
            }
            // Files of that name that the store did not write are passed over.
            figures.newest = try files.newestCheckpoint() ?? 0
        } catch { throw StoreError(error, in: files.location) }
        return figures
    }

    /// Walks over the entries.
    func counted(_ manifest: ManifestFigures) -> CountedFigures {
        let now = environment.now()
        var result = CountedFigures(at: now)
        manifest.enter(&result.figures)
        // In slices, so that writers come in between: what they do meanwhile may be counted or not.
        let start = result
        var sources: [SourceStatistics] = []
        var owners = BlobOwners()
        var next: UInt32 = 0
        var isOver = false
        var counted: Tables?
        while !isOver {
            tables.read { t, _ in
                if counted !== t {
                    // The first slice, or the tables were loaded anew: their slots are other ones.
                    (counted, next, result, sources, owners) = (t, 0, start, [], BlobOwners())
                    t.enterAccounts(&result.figures)
                }
                while sources.count < t.names.sources.count {
                    sources.append(SourceStatistics(name: t.names.sources[sources.count]))
                }
                owners.makeRoom(for: t.blobs.count)
                let end = min(t.entries.count, next &+ 16384)
                for slot in next..<max(next, end) { count(slot, t, now, &result, &sources, &owners) }
                next = end
                isOver = end >= t.entries.count
            }
            if !isOver { giveWay() }
        }
        result.figures.sources = sources.filter { $0.entries > 0 }.sorted { $0.name < $1.name }
        return result
    }

    private func count(
        _ slot: UInt32, _ t: Tables, _ now: Timestamp, _ result: inout CountedFigures,
        _ sources: inout [SourceStatistics], _ owners: inout BlobOwners
    ) {
        let record = t.entries[slot].pointee
        guard record.isLive, record.blob == noSlot || t.blobs[record.blob].pointee.isLive else { return }
        let size = record.blob == noSlot ? 0 : Int(t.blobs[record.blob].pointee.size)
        result.figures.entries += 1
        result.figures.logicalBytes += size
        let (expires, storedAt) = (Int64(record.expires), Int64(record.storedAt))
        let isEarly = storedAt > now.adding(seconds: 60).seconds
        if expires <= now.seconds || isEarly { result.figures.stale += 1 } else { result.figures.fresh += 1 }
        if isEarly { result.nextChange = min(result.nextChange, storedAt - 60) }
        if expires > now.seconds { result.nextChange = min(result.nextChange, expires) }
        let status = t.fields(record.set).status
        if status >= 400 || status == 204 { result.figures.negative += 1 }
        if record.isPinned { result.figures.pinnedEntries += 1 }
        let key = record.key
        sources[Int(key.source)].entries += 1
        sources[Int(key.source)].bytes += size
        if record.blob != noSlot { owners.add(record.blob, t.allocated(size), of: key.source, to: &sources) }
        if !key.isResource {
            let zooms = sources[Int(key.source)].zooms ?? key.zoom...key.zoom
            sources[Int(key.source)].zooms = min(zooms.lowerBound, key.zoom)...max(zooms.upperBound, key.zoom)
        }
    }
}

/// The sizes of the manifest's files.
struct ManifestFigures {
    var all = 0
    var checkpoint = 0
    var journal = 0
    var image = 0
    /// The number of the newest checkpoint.
    var newest: UInt64 = 0

    func enter(_ figures: inout StoreStatistics) {
        figures.manifestBytes = all
        figures.checkpointBytes = checkpoint
        figures.journalBytes = journal
        figures.imageBytes = image
    }
}

/// Figures as a walk over the entries found them.
struct CountedFigures {
    var figures = StoreStatistics()
    let at: Timestamp
    /// The time (in seconds since 1970) at which the first entry turns stale, or fresh, if nothing else changes.
    var nextChange = Int64.max

    init(at: Timestamp) { self.at = at }

    /// The same figures at a later moment, up to which nothing changed.
    init(_ earlier: CountedFigures, at: Timestamp) {
        (figures, nextChange, self.at) = (earlier.figures, earlier.nextChange, at)
    }
}

extension Tables {
    /// The figures that need no walk.
    func enterAccounts(_ figures: inout StoreStatistics) {
        figures.blobs = blobAccount.count
        figures.bytes = blobAccount.bytes
        figures.allocatedBytes = blobAccount.allocated
        figures.pinnedBytes = blobAccount.allocatedPinned
        figures.limits = limits
    }
}
