extension TileStore {
    /// A hold of the lock unlinks for so long, then lets others in.
    static var holdNanoseconds: UInt64 { 5_000_000 }

    /// The lasting limits.
    public func limits() throws -> StoreLimits {
        try catchUp()
        return tables.read { t, _ in t.limits }
    }

    /// Sets the lasting limits and evicts down to them at once.
    public func setLimits(_ limits: StoreLimits) throws {
        try enforcingLimits {
            try hold { ledger in
                // A durable store says of nothing that it is kept because a record says so that may not be on the disk.
                guard isDurable || tables.read({ t, _ in t.limits != limits }) else { return }
                var lines = LineBuffer(capacity: 128)
                lines.limits(limits)
                // Lower limits make room on a full disk, so they must get onto it.
                try appendRemoval(lines, [], ledger)
            }
        }
    }

    /// Sets the capacities that sources have of their own, in place of those that this store was opened with.
    ///
    /// See ``StoreConfiguration/sourceCapacities``. What sources hold too much by that is evicted in the background. If a source had
    /// none before, it costs a pass over the entries, for which nobody else can read.
    public func setSourceCapacities(_ capacities: [SourceName: Int]) throws {
        let capacities = capacities.mapValues { max(0, $0) }
        guard commit.withLock({ $0.sourceCapacities }) != capacities else { return }
        try hold { ledger in
            ledger.sourceCapacities = capacities
            tables.write { t in
                t.setCapacities(capacities)
                ledger.note(t)
            }
        }
        try settleShares()
    }

    /// Has evicted what sources hold beyond their capacities: in the background, where there is one.
    private func settleShares() throws {
        let evictor = evictorOfSources
        guard !evictor.isDone else { return }
        if let maintenance { return maintenance.scheduleEviction(evictor) }
        try enforceLimits()
    }

    /// What sources hold too much now.
    var evictorOfSources: Evictor { tables.read { t, _ in Evictor(sourcesOf: t) } }

    /// Evicts for one hold's time what sources hold too much; returns what is left to do.
    func evictOfSources(_ evictor: Evictor) throws -> Evictor {
        try hold { ledger in
            try flushUsesIfPossible(ledger)
            return try evict(evictor, ledger)
        }
    }

    /// At opening: takes over the limits that the configuration names, and makes sure that there are some.
    func settleLimits() throws {
        try settleShares()
        guard configuration.capacity != nil || configuration.entryLimit != nil else { return }
        let known = tables.read { t, _ in t.limits }
        let capacity = configuration.capacity ?? known.capacity
        let entries = configuration.entryLimit ?? (configuration.capacity == nil ? known.entryLimit : nil)
        let wanted = StoreLimits(capacity: capacity, entryLimit: entries)
        if wanted != known { try setLimits(wanted) }
    }

    /// Changes what the limits are or count, and evicts until they are kept: also where the change threw, because its record may
    /// stand all the same.
    func enforcingLimits<R>(_ change: () throws -> R) throws -> R {
        let result: R
        do { result = try change() } catch {
            guard tables.read({ t, _ in t.exceedsLimits }) else { throw error }
            do { try enforceLimits() } catch is StoreError {
                // What went wrong first says more; the next put evicts.
            }
            throw error
        }
        try enforceLimits()
        return result
    }

    /// Evicts until the limits are kept, in as many holds as it takes.
    func enforceLimits() throws {
        var work = beginLongWork()
        var evictor = try hold { ledger -> Evictor in
            if tables.read({ t, _ in t.exceedsLimits }) { try flushUsesIfPossible(ledger) }
            return try evictToLimits(ledger)
        }
        while !evictor.isDone {
            work.letOthersIn()
            evictor = try hold { try evict(evictor, $0) }
        }
    }

    /// Evicts the least recently used until a budget is met, for this once; ``setLimits(_:)`` sets a lasting one.
    ///
    /// Pinned tiles stay and do not count. Files that a crash left in `objects/` are removed as well.
    /// - Parameters:
    ///   - bytes: Allocated bytes of unpinned blobs; `nil` takes the lasting capacity.
    ///   - entries: Unpinned entries; `nil` takes the lasting limit.
    public func evict(toBytes bytes: Int? = nil, entries: Int? = nil) throws -> RemovalReport {
        var report = RemovalReport()
        var work = beginLongWork()
        var evictor = try hold { ledger -> Evictor in
            try flushUsesIfPossible(ledger)
            return try counting(into: &report) { try evict(self.evictor(bytes, entries), ledger) }
        }
        while !evictor.isDone {
            work.letOthersIn()
            evictor = try hold { ledger in try counting(into: &report) { try evict(evictor, ledger) } }
        }
        for shard in 0...255 { try removeOrphans(inShard: UInt8(shard), as: &work) }
        return report
    }

    private func evictor(_ bytes: Int?, _ entries: Int?) -> Evictor {
        let limits = tables.read { t, _ in t.limits }
        return Evictor(
            bytes: bytes.map { max(0, $0) } ?? limits.capacity, entries: max(0, entries ?? limits.entryLimit))
    }

    /// What ``evict(toBytes:entries:)`` would remove now.
    ///
    /// Changes nothing.
    public func eviction(toBytes bytes: Int? = nil, entries: Int? = nil) throws -> RemovalReport {
        try catchUp()
        let evictor = evictor(bytes, entries)
        return tables.read { t, _ in evictor.preview(t) }
    }

    /// Uses come before victims; on a full disk the removal matters more than their order.
    private func flushUsesIfPossible(_ ledger: Ledger) throws {
        do { try flushUses(ledger) } catch let failure as AppendFailure where failure.cause.isFull {}
    }

    /// Runs a removal and adds up what it did, by the accounts.
    func counting<R>(into report: inout RemovalReport, _ body: () throws -> R) rethrows -> R {
        func accounts() -> (Int, Int, Int) {
            tables.read { t, _ in (t.entryAccount.count, t.blobAccount.count, t.blobAccount.allocated) }
        }
        let before = accounts()
        // What fails in its middle has removed something, too.
        defer {
            let after = accounts()
            report.removedEntries += before.0 - after.0
            report.removedBlobs += before.1 - after.1
            report.freedBytes += before.2 - after.2
        }
        return try body()
    }

    // MARK: Under the lock

    /// Begins to evict if a limit is exceeded: then down to a low-water mark, so that it pays.
    ///
    /// - Parameter found: As in ``Evictor/init(keeping:since:)``.
    func evictToLimits(_ ledger: Ledger, since found: FoundExcess = FoundExcess()) throws -> Evictor {
        let evictor = tables.read { t, _ in Evictor(keeping: t, since: found) }
        return evictor.isDone ? evictor : try evict(evictor, ledger)
    }

    /// Evicts for at most one hold's time; returns what is left to do.
    func evict(_ begun: Evictor, _ ledger: Ledger) throws -> Evictor {
        var report = RemovalReport()
        defer { evicted.withLock { $0 += report } }
        return try counting(into: &report) { try evictSome(begun, ledger) }
    }

    /// What this process has evicted since it opened the cache, by its limits or because it was asked to.
    package var evictedHere: RemovalReport { evicted.withLock { $0 } }

    private func evictSome(_ begun: Evictor, _ ledger: Ledger) throws -> Evictor {
        var evictor = begun
        tables.read { t, _ in evictor.renew(t) }
        let limit = environment.ticks() &+ Self.holdNanoseconds
        defer { maintenance?.scheduleOrphanSweep() }
        var lines = LineBuffer(capacity: 8192)
        while let blobs = tables.read({ t, _ in evictor.plan(t, &lines) }) {
            // A step may have looked at many blobs and chosen none.
            if lines.count > 0 { try appendRemoval(lines, blobs, ledger) }
            lines.removeAll()
            if environment.ticks() > limit { break }
        }
        return evictor
    }

    /// Records a removal, whatever it takes: on a full disk the reserve is given up, then blobs go before their record.
    func appendRemoval(_ lines: borrowing LineBuffer, _ blobs: [BlobDigest], _ ledger: Ledger) throws {
        do {
            try appendRecords(lines, ledger)
        } catch let failure as AppendFailure where failure.cause.isFull {
            // Records are absolute, so those that stand already may be written again.
            try ledger.reserve.giveUp()
            do {
                try appendRecords(lines, ledger)
            } catch let failure as AppendFailure where failure.cause.isFull {
                // An entry without its blob is a miss, so this order is safe too; it makes the room for the record.
                guard let folder = try ledger.confirmFolder() else { throw failure }
                for digest in blobs { try unlink(ledger.unrecorded.giveUp(digest), folder) }
                try appendRecords(lines, ledger)
                ledger.unrecorded.recorded(blobs)
            }
        }
        ledger.reserve.makeAgain()
    }
}
