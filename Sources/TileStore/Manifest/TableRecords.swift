/// The slot that stands for "none".
let noSlot = UInt32.max

/// A key as the tables keep it: 12 bytes.
///
/// Names and formats are numbers that only this process knows.
struct PackedKey: Hashable {
    /// Zoom in the top bits, then column, then row, 28 bits each; zoom 31 means a resource, the rest being its number.
    var position: UInt64
    var source: UInt16
    var variant: UInt16

    static let resourceZoom: UInt64 = 31
    @inline(__always) var zoom: Int { Int(position >> 56) }
    @inline(__always) var column: Int { Int(position >> 28 & 0xFFF_FFFF) }
    @inline(__always) var row: Int { Int(position & 0xFFF_FFFF) }
    @inline(__always) var isResource: Bool { position >> 56 == Self.resourceZoom }
    /// The number of a resource.
    @inline(__always) var resourceNumber: UInt64 { position & 0xFF_FFFF_FFFF_FFFF }

    @inline(__always)
    init(source: UInt16, z: Int, x: Int, y: Int, variant: UInt16) {
        position = UInt64(z) << 56 | UInt64(x) << 28 | UInt64(y)
        self.source = source
        self.variant = variant
    }

    @inline(__always)
    init(position: UInt64, source: UInt16, variant: UInt16) {
        self.position = position
        self.source = source
        self.variant = variant
    }
}

/// An entry in memory: 60 bytes.
///
/// What only some entries have is in the ``DetailArena``.
struct EntryRecord: BitwiseCopyable {
    private var positionLow: UInt32
    private var positionHigh: UInt32
    private var source: UInt16
    private var variant: UInt16
    /// The blob's slot, or ``noSlot`` without a body.
    var blob: UInt32 = noSlot
    var set: UInt32 = 0
    /// Where its details are; 0 if there are none.
    var details: UInt32 = 0
    var storedAt: UInt32 = 0
    var expires: UInt32 = 0
    var lastUsed: UInt32 = 0
    private var recencyLow: UInt32 = 0
    private var recencyHigh: UInt16 = 0
    var flags: UInt16 = 0
    /// Neighbours in the order of use, among unpinned entries.
    var before: UInt32 = noSlot
    var after: UInt32 = noSlot
    /// Neighbours among the entries of the same blob; `sibling` of a free slot leads to the next free one.
    var siblingBefore: UInt32 = noSlot
    var sibling: UInt32 = noSlot

    static let live: UInt16 = 1
    static let pinned: UInt16 = 2
    static let listed: UInt16 = 4

    init(_ key: PackedKey) {
        positionLow = UInt32(truncatingIfNeeded: key.position)
        positionHigh = UInt32(truncatingIfNeeded: key.position >> 32)
        source = key.source
        variant = key.variant
    }

    @inline(__always)
    var key: PackedKey {
        PackedKey(position: UInt64(positionHigh) << 32 | UInt64(positionLow), source: source, variant: variant)
    }
    @inline(__always)
    var recency: UInt64 {
        get { UInt64(recencyHigh) << 32 | UInt64(recencyLow) }
        set {
            recencyLow = UInt32(truncatingIfNeeded: newValue)
            recencyHigh = UInt16(truncatingIfNeeded: newValue >> 32)
        }
    }
    @inline(__always) var isLive: Bool { flags & Self.live != 0 }
    @inline(__always) var isPinned: Bool { flags & Self.pinned != 0 }
}

/// A blob in memory: 64 bytes.
struct BlobRecord: BitwiseCopyable {
    var digest: BlobDigest
    var size: UInt32
    /// How many entries name it.
    var references: UInt32 = 0
    /// How many of them are pinned.
    var pins: UInt32 = 0
    /// Neighbours in the order of use, among unpinned blobs; `after` of a free slot leads to the next free one.
    var before: UInt32 = noSlot
    var after: UInt32 = noSlot
    /// The first of its entries.
    var firstEntry: UInt32 = noSlot
    private var recencyLow: UInt32 = 0
    private var recencyHigh: UInt16 = 0
    var flags: UInt16 = BlobRecord.live

    static let live: UInt16 = 1
    /// Dropped, with entries that have not been swept yet.
    static let dropped: UInt16 = 2
    /// This process has hashed its file and found it right.
    static let verified: UInt16 = 4
    static let listed: UInt16 = 8
    /// This process has synced its file.
    static let synced: UInt16 = 16

    init(digest: BlobDigest, size: UInt32) {
        self.digest = digest
        self.size = size
    }

    @inline(__always)
    var recency: UInt64 {
        get { UInt64(recencyHigh) << 32 | UInt64(recencyLow) }
        set {
            recencyLow = UInt32(truncatingIfNeeded: newValue)
            recencyHigh = UInt16(truncatingIfNeeded: newValue >> 32)
        }
    }
    @inline(__always) var isLive: Bool { flags & Self.live != 0 }
    @inline(__always) var isVerified: Bool { flags & Self.verified != 0 }
}
