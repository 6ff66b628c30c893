/// What the tables said when lines were last carried out.
struct Glance {
    var hasBoot = false
    /// How many `boot` records the tables have read.
    var bootLines = 0
    /// The next recency number.
    var nextSequence: UInt64 = 1
    /// How many unpinned entries, and allocated bytes, there is room for; below 0 the limit is exceeded.
    var entryRoom = 0
    var byteRoom: Int?

    var exceedsLimits: Bool { entryRoom < 0 || (byteRoom ?? 0) < 0 }
}
