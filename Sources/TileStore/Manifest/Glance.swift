/// What the tables said when lines were last carried out: spares a holder of the lock looking again.
struct Glance {
    private(set) var hasBoot = false
    /// How many `boot` records the tables have read.
    private(set) var bootLines = 0
    /// The next recency number.
    private(set) var nextSequence: UInt64 = 1
    /// How many unpinned entries, and allocated bytes, there is room for; below 0 the limit is exceeded.
    private(set) var entryRoom = 0
    private(set) var byteRoom: Int?
    /// The same within the capacity of that source which is nearest to its own; `nil` if none has one.
    private(set) var shareRoom: Int?
    /// Whether lines left blobs to unlink, or entries of dropped blobs to sweep.
    private(set) var hasReleased = false
    private(set) var hasUnswept = false

    var exceedsLimits: Bool { entryRoom < 0 || (byteRoom ?? 0) < 0 || (shareRoom ?? 0) < 0 }

    @inline(__always)
    mutating func note(_ tables: Tables) {
        hasReleased = !tables.released.isEmpty
        hasUnswept = tables.hasUnswept
        hasBoot = tables.boot != nil
        bootLines = tables.bootLines
        nextSequence = tables.nextSequence
        entryRoom = tables.limits.entryLimit &- tables.entryAccount.unpinned
        byteRoom = tables.limits.capacity.map { $0 &- tables.blobAccount.allocatedUnpinned }
        shareRoom = tables.shareRoom
    }

    /// What was released was taken from the tables.
    mutating func tookReleased() { hasReleased = false }

    mutating func swept() { hasUnswept = false }
}
