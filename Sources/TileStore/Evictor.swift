/// Decides what an eviction removes next: a value, which changes nothing itself.
///
/// It is carried on from one hold of the lock to the next, with bytes, counts and names of sources only: victims are chosen within
/// a hold.
struct Evictor {
    /// A source that holds more than its own capacity.
    private struct Share {
        let source: SourceName
        /// How far the search for its blobs has come.
        var place = OfTables.none(Tables.PlaceInOrder?.none)
        /// The allocated bytes that it has to come down to before anything else goes, where somebody has added to it.
        var owed: Int?
    }

    /// The sources that hold too much, the next one last.
    private var sources: [Share] = []
    /// Whether the bytes are still to be looked at, once the sources are done: what these give up may be enough.
    private var looksAtBytes = false
    /// Allocated bytes of unpinned blobs to come down to.
    private var bytes: Int?
    /// The blob used last is spared once the bytes are within this.
    private var spareBytes = -1
    /// The most unpinned entries there may be (looked at when the bytes are done), and how many to come down to.
    private var entryLimit: Int?
    private var entries: Int?
    private var spareEntries = -1
    /// Whether the numbers are those of the lasting limits, which others may change between two holds.
    private var keepsLimits = false

    /// Keeps the tables within their limits; goes down a little further, so that it pays.
    ///
    /// - Parameter found: What sources held too much before somebody added to them. Those that hold more now come first.
    init(keeping t: Tables, since found: FoundExcess = FoundExcess()) {
        keepsLimits = true
        guard t.exceedsLimits else { return }
        findSources(t, since: found)
        looksAtBytes = true
        entryLimit = 0
        renew(t)
    }

    /// Brings sources down to their own capacities, and nothing else.
    init(sourcesOf t: Tables) {
        keepsLimits = true
        findSources(t, since: FoundExcess(of: t))
    }

    init(bytes: Int? = nil, entries: Int? = nil) { (self.bytes, self.entries) = (bytes, entries) }

    /// The sources that hold too much; last, and so first to give up blobs, those that somebody has added to.
    private mutating func findSources(_ t: Tables, since found: FoundExcess) {
        for share in t.shares where share.exceedsCapacity {
            let source = t.names.sources[Int(share.source)]
            let most = max(share.capacity, found.allocated[source] ?? 0)
            let isOwed = share.allocated > most
            sources.insert(Share(source: source, owed: isOwed ? most : nil), at: isOwed ? sources.endIndex : 0)
        }
    }

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

    /// Whether it is about what sources hold too much.
    var isAtSources: Bool { !sources.isEmpty }

    /// Whether a source that somebody has added to still holds more than it may, or than it held before.
    mutating func owesSources(_ t: Tables) -> Bool {
        noteWhatIsPaid(t)
        return sources.contains { $0.owed != nil }
    }

    /// Once down to what is owed, a source waits with the others, whatever is added to it meanwhile: it has its turn with that put.
    private mutating func noteWhatIsPaid(_ t: Tables) {
        for i in sources.indices {
            guard let owed = sources[i].owed, t.allocated(of: sources[i].source) <= owed else { continue }
            sources[i].owed = nil
        }
    }

    /// Leaves what sources hold too much to somebody else.
    ///
    /// - Returns: What that one goes on with.
    mutating func leavingSources() -> Evictor {
        var left = Evictor()
        (left.sources, left.keepsLimits) = (sources, keepsLimits)
        sources = []
        return left
    }

    var isDone: Bool { sources.isEmpty && !looksAtBytes && bytes == nil && entryLimit == nil && entries == nil }

    /// Chooses the next victims, and writes the records of their removal.
    ///
    /// Under the lock. What sources hold too much first, then blobs, then entries; a few at a time.
    /// - Returns: The blobs that go, which may be none in this step; `nil` if nothing is left to be done.
    mutating func plan(_ t: Tables, _ lines: inout LineBuffer) -> [BlobDigest]? {
        if let victims = planSource(t, &lines) { return victims }
        if looksAtBytes {
            looksAtBytes = false
            if let capacity = t.limits.capacity, t.blobAccount.allocatedUnpinned > capacity {
                bytes = 0
                renew(t)
            }
        }
        if let target = bytes {
            let victims = t.oldestBlobs(downTo: target, sparing: spareBytes, most: 64)
            if !victims.isEmpty {
                for digest in victims { lines.drop(digest) }
                return victims
            }
            bytes = nil
        }
        if let most = entryLimit {
            entryLimit = nil
            if t.entryAccount.unpinned > most { (entries, spareEntries) = (most - most / 100, most) }
        }
        guard let target = entries else { return nil }
        let (victims, blobs) = t.oldestEntries(downTo: target, sparing: spareEntries, most: 256)
        guard !victims.isEmpty else {
            entries = nil
            return nil
        }
        lines.gone(victims)
        return blobs
    }

    /// The same for the sources that hold more than their own capacities.
    private mutating func planSource(_ t: Tables, _ lines: inout LineBuffer) -> [BlobDigest]? {
        noteWhatIsPaid(t)
        guard let next = sources.lastIndex(where: { $0.owed != nil }) ?? sources.indices.last else { return nil }
        let victims = t.victims(of: sources[next].source, from: sources[next].place.value(in: t) ?? nil)
        sources[next].place = OfTables(victims.next, t)
        if victims.next == nil { sources.remove(at: next) }
        for digest in victims.blobs { lines.drop(digest) }
        var rest = victims.entries[...]
        while !rest.isEmpty {
            lines.gone(rest.prefix(256))
            rest = rest.dropFirst(256)
        }
        return victims.blobs
    }

    /// What all of it would remove, apart from what sources hold too much.
    func preview(_ t: Tables) -> RemovalReport {
        var report = RemovalReport()
        var left = t.blobAccount.allocatedUnpinned
        var leftEntries = t.entryAccount.unpinned
        var doomed: Set<UInt32> = []
        var slot = t.blobOrder.first
        while let target = bytes, left > target, slot != noSlot {
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
        while let target = entries, leftEntries > target, entry != noSlot {
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

/// What sources held too much before somebody added to them.
struct FoundExcess {
    /// What those held that held more than their own capacities: others have stored it, or the capacities are new ones.
    private(set) var allocated: [SourceName: Int] = [:]
    /// What the whole cache held then.
    private(set) var total = 0

    init() {}

    init(of t: Tables) {
        total = t.blobAccount.allocatedUnpinned
        for share in t.shares where share.exceedsCapacity {
            allocated[t.names.sources[Int(share.source)]] = share.allocated
        }
    }

    /// Whether there was any.
    var isThere: Bool { !allocated.isEmpty }
}

extension Tables {
    var exceedsLimits: Bool {
        entryAccount.unpinned > limits.entryLimit || limits.capacity.map { blobAccount.allocatedUnpinned > $0 } ?? false
            || sharesExceedCapacities
    }

    /// The blobs that go first on the way down to a number of allocated bytes.
    func oldestBlobs(downTo target: Int, sparing: Int, most: Int) -> [BlobDigest] {
        var victims: [BlobDigest] = []
        var left = blobAccount.allocatedUnpinned
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
        var left = entryAccount.unpinned
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
