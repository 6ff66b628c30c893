/// What an eviction still has to reach.
///
/// It is carried on from one hold of the lock to the next.
struct EvictionGoal {
    /// Allocated bytes of unpinned blobs to come down to.
    var bytes: Int?
    /// The blob used last is spared once the bytes are within this.
    var spareBytes = -1
    /// The most unpinned entries there may be (looked at when the bytes are done), and how many to come down to.
    var entryLimit: Int?
    var entries: Int?
    var spareEntries = -1
    /// Whether the numbers are those of the lasting limits, which others may change between two holds.
    var keepsLimits = false

    /// The goal that keeps the tables within their limits; it goes down a little further, so that it pays.
    init(keeping t: Tables) {
        keepsLimits = true
        guard t.exceedsLimits else { return }
        if t.limits.capacity.map({ t.allocatedUnpinned > $0 }) ?? false { bytes = 0 }
        entryLimit = 0
        renew(t)
    }

    init(bytes: Int? = nil, entries: Int? = nil) { (self.bytes, self.entries) = (bytes, entries) }

    /// Takes over the limits as they are now: of what is still to be reached, nothing else is kept from one hold of the lock
    /// to the next.
    mutating func renew(_ t: Tables) {
        guard keepsLimits else { return }
        if bytes != nil {
            bytes = t.limits.capacity.map { $0 - min($0 / 100, 4 << 20) }
            spareBytes = t.limits.capacity ?? -1
        }
        let most = t.limits.entryLimit
        if entryLimit != nil { entryLimit = most }
        if entries != nil { (entries, spareEntries) = (most - most / 100, most) }
    }

    var isReached: Bool { bytes == nil && entryLimit == nil && entries == nil }
}

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
        try hold { ledger in
            // A durable store says of nothing that it is kept because a record says so that may not be on the disk.
            guard isDurable || tables.read({ t, _ in t.limits != limits }) else { return }
            var lines = LineBuffer(capacity: 128)
            lines.limits(limits)
            // Lower limits make room on a full disk, so they must get onto it.
            try appendRemoval(lines, [], ledger)
        }
        try enforceLimits()
    }

    /// At opening: takes over the limits that the configuration names, and makes sure that there are some.
    func settleLimits() throws {
        guard configuration.capacity != nil || configuration.entryLimit != nil else { return }
        let known = tables.read { t, _ in t.limits }
        let capacity = configuration.capacity ?? known.capacity
        let entries = configuration.entryLimit ?? (configuration.capacity == nil ? known.entryLimit : nil)
        let wanted = StoreLimits(capacity: capacity, entryLimit: entries)
        if wanted != known { try setLimits(wanted) }
    }

    /// Evicts until the limits are kept, in as many holds as it takes.
    func enforceLimits() throws {
        var goal = try hold { ledger -> EvictionGoal in
            if tables.read({ t, _ in t.exceedsLimits }) { try flushUsesIfPossible(ledger) }
            return try evictToLimits(ledger)
        }
        while !goal.isReached { goal = try hold { try evict(goal, $0) } }
    }

    /// Evicts the least recently used until a budget is met, for this once; ``setLimits(_:)`` sets a lasting one.
    ///
    /// Pinned tiles stay and do not count. Files that a crash left in `objects/` are removed as well.
    /// - Parameters:
    ///   - bytes: Allocated bytes of unpinned blobs; `nil` takes the lasting capacity.
    ///   - entries: Unpinned entries; `nil` takes the lasting limit.
    public func evict(toBytes bytes: Int? = nil, entries: Int? = nil) throws -> RemovalReport {
        var report = RemovalReport()
        var goal = try hold { ledger -> EvictionGoal in
            try flushUsesIfPossible(ledger)
            return try counting(into: &report) { try evict(self.goal(bytes, entries), ledger) }
        }
        while !goal.isReached { goal = try hold { l in try counting(into: &report) { try evict(goal, l) } } }
        for shard in 0...255 { try removeOrphans(inShard: UInt8(shard)) }
        return report
    }

    private func goal(_ bytes: Int?, _ entries: Int?) -> EvictionGoal {
        let limits = tables.read { t, _ in t.limits }
        return EvictionGoal(
            bytes: bytes.map { max(0, $0) } ?? limits.capacity, entries: max(0, entries ?? limits.entryLimit))
    }

    /// What ``evict(toBytes:entries:)`` would remove now.
    ///
    /// Changes nothing.
    public func eviction(toBytes bytes: Int? = nil, entries: Int? = nil) throws -> RemovalReport {
        try catchUp()
        let goal = goal(bytes, entries)
        return tables.read { t, _ in
            var report = RemovalReport()
            var left = t.allocatedUnpinned
            var leftEntries = t.unpinnedEntries
            var doomed: Set<UInt32> = []
            var slot = t.blobOrder.first
            while let target = goal.bytes, left > target, slot != noSlot {
                let blob = t.blobs[slot].pointee
                left -= t.allocated(blob.size)
                leftEntries -= Int(blob.references)
                report.removedEntries += Int(blob.references)
                report.removedBlobs += 1
                report.freedBytes += t.allocated(blob.size)
                doomed.insert(slot)
                slot = blob.after
            }
            var references: [UInt32: UInt32] = [:]
            var entry = t.entryOrder.first
            while let target = goal.entries, leftEntries > target, entry != noSlot {
                let record = t.entries[entry].pointee
                entry = record.after
                if record.blob != noSlot {
                    let blob = t.blobs[record.blob].pointee
                    if doomed.contains(record.blob) || !blob.isLive { continue }
                    let count = references[record.blob, default: blob.references] - 1
                    references[record.blob] = count
                    if count == 0 {
                        report.removedBlobs += 1
                        report.freedBytes += t.allocated(blob.size)
                    }
                }
                leftEntries -= 1
                report.removedEntries += 1
            }
            return report
        }
    }

    /// Uses come before victims; on a full disk the removal matters more than their order.
    private func flushUsesIfPossible(_ ledger: Ledger) throws {
        do { try flushUses(ledger) } catch let failure as AppendFailure where failure.cause.isFull {}
    }

    /// Runs a removal and adds up what it did, by the accounts.
    func counting<R>(into report: inout RemovalReport, _ body: () throws -> R) rethrows -> R {
        func accounts() -> (Int, Int, Int) {
            tables.read { t, _ in (t.entryCount, t.blobCount, t.allocatedUnpinned + t.allocatedPinned) }
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
    func evictToLimits(_ ledger: Ledger) throws -> EvictionGoal {
        let goal = tables.read { t, _ in EvictionGoal(keeping: t) }
        return goal.isReached ? goal : try evict(goal, ledger)
    }

    /// Evicts for at most one hold's time; returns what is left to do.
    func evict(_ begun: EvictionGoal, _ ledger: Ledger) throws -> EvictionGoal {
        var report = RemovalReport()
        defer { evicted.withLock { $0 += report } }
        return try counting(into: &report) { try evictSome(begun, ledger) }
    }

    /// What this process has evicted since it opened the cache, by its limits or because it was asked to.
    package var evictedHere: RemovalReport { evicted.withLock { $0 } }

    private func evictSome(_ begun: EvictionGoal, _ ledger: Ledger) throws -> EvictionGoal {
        var goal = begun
        tables.read { t, _ in goal.renew(t) }
        let limit = environment.ticks() &+ Self.holdNanoseconds
        defer { maintenance?.scheduleOrphanSweep() }
        while let target = goal.bytes {
            let victims = tables.read { t, _ in t.oldestBlobs(downTo: target, sparing: goal.spareBytes, most: 64) }
            guard !victims.isEmpty else {
                goal.bytes = nil
                break
            }
            var lines = LineBuffer(capacity: 8192)
            for digest in victims { lines.drop(digest) }
            try appendRemoval(lines, victims, ledger)
            if environment.ticks() > limit { return goal }
        }
        if let most = goal.entryLimit {
            goal.entryLimit = nil
            if tables.read({ t, _ in t.unpinnedEntries > most }) {
                goal.entries = most - most / 100
                goal.spareEntries = most
            }
        }
        while let target = goal.entries {
            let (victims, blobs) = tables.read { t, _ in
                t.oldestEntries(downTo: target, sparing: goal.spareEntries, most: 256)
            }
            guard !victims.isEmpty else {
                goal.entries = nil
                break
            }
            var lines = LineBuffer(capacity: 8192)
            lines.gone(victims)
            try appendRemoval(lines, blobs, ledger)
            if environment.ticks() > limit { return goal }
        }
        return goal
    }

    /// Records a removal, whatever it takes: on a full disk the reserve is given up, then blobs go before their record.
    func appendRemoval(_ lines: borrowing LineBuffer, _ blobs: [BlobDigest], _ ledger: Ledger) throws {
        do {
            try appendRecords(lines, ledger)
        } catch let failure as AppendFailure where failure.cause.isFull {
            // Records are absolute, so those that stand already may be written again.
            try files.unlink("manifest/reserve")
            ledger.reserveGone = true
            do {
                try appendRecords(lines, ledger)
            } catch let failure as AppendFailure where failure.cause.isFull {
                // An entry without its blob is a miss, so this order is safe too; it makes the room for the record.
                guard let folder = try ledger.confirmFolder() else { throw failure }
                for digest in blobs { try unlink(ledger.giveUp(digest), folder) }
                try appendRecords(lines, ledger)
                ledger.unrecorded.subtract(blobs)
            }
        }
        if ledger.reserveGone { CacheFolder.makeReserve(ledger) }
    }
}

extension Tables {
    var exceedsLimits: Bool {
        unpinnedEntries > limits.entryLimit || limits.capacity.map { allocatedUnpinned > $0 } ?? false
    }

    /// The blobs that go first on the way down to a number of allocated bytes.
    func oldestBlobs(downTo target: Int, sparing: Int, most: Int) -> [BlobDigest] {
        var victims: [BlobDigest] = []
        var left = allocatedUnpinned
        var slot = blobOrder.first
        while left > target, slot != noSlot, victims.count < most {
            if slot == blobOrder.last, left <= sparing { break }
            let blob = blobs[slot].pointee
            victims.append(blob.digest)
            left -= allocated(blob.size)
            slot = blob.after
        }
        return victims
    }

    /// The entries that go first on the way down to a number, and the blobs that go with them.
    func oldestEntries(downTo target: Int, sparing: Int, most: Int) -> ([TileKey], [BlobDigest]) {
        var victims: [TileKey] = []
        var freed: [BlobDigest] = []
        var references: [UInt32: UInt32] = [:]
        var left = unpinnedEntries
        var slot = entryOrder.first
        while left > target, slot != noSlot, victims.count < most {
            let record = entries[slot].pointee
            if slot == entryOrder.last, left <= sparing { break }
            slot = record.after
            if record.blob != noSlot {
                let blob = blobs[record.blob].pointee
                guard blob.isLive else { continue }
                let count = references[record.blob, default: blob.references] - 1
                references[record.blob] = count
                if count == 0 { freed.append(blob.digest) }
            }
            victims.append(key(record.key))
            left -= 1
        }
        return (victims, freed)
    }
}
