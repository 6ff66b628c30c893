/// The manifest in memory: what every process derives from the same journal.
///
/// Only ``apply(_:inCheckpoint:)`` and the loader change what is stored; the rest asks. Not thread-safe: ``Striped`` guards
/// it. The fields that every hit and put touches are not checked for overlapping access at run time, which no function here
/// has: none calls back while it changes one.
final class Tables {
    @exclusivity(unchecked) var entries = Segments<EntryRecord>()
    @exclusivity(unchecked) var blobs = Segments<BlobRecord>()
    @exclusivity(unchecked) var entryIndex: SlotIndex
    @exclusivity(unchecked) var blobIndex: SlotIndex
    @exclusivity(unchecked) var details = DetailArena()
    @exclusivity(unchecked) var entryOrder = RecencyList<EntryRecord>()
    @exclusivity(unchecked) var blobOrder = RecencyList<BlobRecord>()
    var freeEntry = noSlot
    var freeBlob = noSlot

    let names: TableNames
    @exclusivity(unchecked) var sets = SharedSets()

    var regions: [String: PinnedRegion] = [:]
    @exclusivity(unchecked) var regionIndexes: [UInt16: RegionIndex] = [:]
    /// The texts of the resources that regions pin, without variants, by the numbers of their sources.
    @exclusivity(unchecked) var pinnedResources: [UInt16: Set<String>] = [:]
    @exclusivity(unchecked) var limits = StoreLimits(capacity: nil)
    var boot: String? { didSet { bootLines &+= 1 } }
    /// How many `boot` records there were.
    private(set) var bootLines = 0
    @exclusivity(unchecked) var nextSequence: UInt64 = 1

    let bounds: TableBounds
    /// The bound that a line's entry or blob went beyond.
    @exclusivity(unchecked) var exceededSlots: TableBound?

    // Accounts.
    @exclusivity(unchecked) var entryAccount = EntryAccount()
    @exclusivity(unchecked) var blobAccount: BlobAccount
    /// Of the sources that have a capacity of their own, in this process.
    @exclusivity(unchecked) var shares: [SourceShare] = []

    // What lines have done since these tables were made; only differences mean something.
    @exclusivity(unchecked) var putLines = 0
    /// Blobs that went by a record that removes: an eviction, a removal, damage; not those that were replaced.
    @exclusivity(unchecked) var removedBlobs = 0

    @exclusivity(unchecked) var released = ReleasedList()
    /// Dropped blobs that still have entries to be swept.
    @exclusivity(unchecked) var unswept: [UInt32] = []
    /// While a checkpoint and its journals are loaded the orders are not kept; they are sorted at the end.
    var loading = false
    /// Recencies of blobs that the checkpoint names.
    ///
    /// While its journal is carried out again, a blob may be gone for a moment, because an entry is in the checkpoint
    /// as it was later; what the blob remembers is given back at the end.
    var loadedRecencies: [BlobDigest: UInt64] = [:]
    // They mean nothing: what has been read only so that it is near has to end somewhere.
    @exclusivity(unchecked) var warmth: UInt32 = 0
    @exclusivity(unchecked) var blobWarmth: UInt32 = 0
    let hashSeed: UInt64
    /// Unique in this process, from 1 on.
    ///
    /// Packed keys, slots and numbers of names are valid only in the tables that gave them out. Whatever keeps one of them
    /// while the tables' lock is given up keeps this number, or the tables themselves, and compares it before each use.
    let number = nextTablesNumber.withLock { next in
        next &+= 1
        return next
    }

    /// Recency numbers are kept in 48 bits: this one does not fit any more.
    static var recencyEnd: UInt64 { 1 << 48 }
    /// How far a line's recency may be ahead of what is known: lost lines make gaps, but never one of this size.
    static var recencyLeap: UInt64 { 1 << 44 }

    /// Whether a line can have a recency number.
    ///
    /// A single line with a very high one would use up the numbers of all later puts.
    @inline(__always)
    func isPlausible(_ recency: UInt64) -> Bool {
        recency > 0 && recency < Self.recencyEnd && recency < nextSequence &+ Self.recencyLeap
    }

    init(
        blockSize: Int, hashSeed: UInt64, expectedEntries: Int = 0, expectedBlobs: Int = 0,
        bounds: TableBounds = TableBounds()
    ) {
        blobAccount = BlobAccount(blockSize: blockSize)
        self.bounds = bounds
        names = TableNames(bounds)
        self.hashSeed = hashSeed | 1
        entryIndex = SlotIndex(expecting: expectedEntries)
        blobIndex = SlotIndex(expecting: expectedBlobs)
    }

    // MARK: Looking up

    @inline(__always)
    func hash(_ key: PackedKey) -> UInt64 {
        let low = key.position ^ hashSeed
        let high = (UInt64(key.source) << 16 | UInt64(key.variant)) ^ 0x9E37_79B9_7F4A_7C15
        let product = low.multipliedFullWidth(by: high &* 0xD6E8_FEB8_6659_FD93 | 1)
        let mixed = (product.high ^ product.low) &* 0x9FB2_1C65_1E98_DF25
        return mixed ^ (mixed >> 32)
    }

    @inline(__always)
    func find(_ key: PackedKey) -> UInt32? {
        guard let slot = findPhysical(key) else { return nil }
        let blob = entries[slot].pointee.blob
        // An entry of a dropped blob is gone, even if it has not been swept yet.
        if blob != noSlot, !blobs[blob].pointee.isLive { return nil }
        return slot
    }

    @inline(__always)
    func findPhysical(_ key: PackedKey) -> UInt32? {
        entryIndex.find(hash(key)) { entries[$0].pointee.key == key }
    }

    @inline(__always)
    func find(_ digest: BlobDigest) -> UInt32? {
        blobIndex.find(Self.hash(digest)) { blobs[$0].pointee.digest == digest }
    }

    @inline(__always)
    static func hash(_ digest: BlobDigest) -> UInt64 { digest.b }

    /// The packed form of a key whose names are known; `nil` means that no such entry can exist.
    @inline(__always)
    func packed(_ key: TileKey) -> PackedKey? {
        guard let source = names.source(key.source.description) else { return nil }
        switch key.address {
        case .tile(let tile):
            guard let variant = names.variant(tile.scale, tile.format) else { return nil }
            return PackedKey(source: source, z: tile.z, x: tile.x, y: tile.y, variant: variant)
        case .resource(let resource):
            guard let number = names.resource(source, resource.text) else { return nil }
            return PackedKey(position: PackedKey.resourceZoom << 56 | number, source: source, variant: 0)
        }
    }

    /// The same, asking first whether the names are those of the last time.
    @inline(__always)
    func packed(_ key: TileKey, _ last: inout OfTables<LastNames>) -> PackedKey? {
        guard case .tile(let tile) = key.address else { return packed(key) }
        if last.change(in: self, { $0.source == key.source.description }) != true {
            guard let source = names.source(key.source.description) else { return nil }
            last = OfTables(LastNames(source: key.source.description, sourceNumber: source), self)
        }
        return last.change(in: self) { last in
            if last.scale != tile.scale || last.format != tile.format {
                guard let variant = names.variant(tile.scale, tile.format) else { return nil }
                (last.scale, last.format, last.variant) = (tile.scale, tile.format, variant)
            }
            return PackedKey(source: last.sourceNumber, z: tile.z, x: tile.x, y: tile.y, variant: last.variant)
        }
    }

    /// The key behind its packed form; `nil` for a resource whose entry is gone, and its name with it.
    func knownKey(_ packed: PackedKey) -> TileKey? {
        if packed.isResource, names.resource(packed.resourceNumber) == nil { return nil }
        return key(packed)
    }

    /// The key behind its packed form.
    func key(_ packed: PackedKey) -> TileKey {
        let source = names.sources[Int(packed.source)]
        if packed.isResource {
            let resource = names.resource(packed.resourceNumber).flatMap { try? ResourceAddress(text: $0.text) }
            // A number without a name cannot occur: both are made and removed together.
            return TileKey(source: source, resource: resource ?? ResourceAddress.unnamed)
        }
        let variant = names.variants[Int(packed.variant)]
        return TileKey(
            source: source,
            tile: TileAddress(unchecked: packed.zoom, packed.column, packed.row, variant.scale, variant.format))
    }

    func entry(_ slot: UInt32) -> TileEntry {
        let record = entries[slot].pointee
        return entry(slot, key: key(record.key))
    }

    func entry(_ slot: UInt32, key: TileKey) -> TileEntry {
        let record = entries[slot].pointee
        let blob = record.blob == noSlot ? nil : blobs[record.blob].pointee
        return TileEntry(
            key: key, blob: blob?.digest, size: Int(blob?.size ?? 0), metadata: metadata(record),
            lastUsed: Timestamp(packed: record.lastUsed), recency: record.recency, isPinned: record.isPinned)
    }

    @inline(__always)
    func metadata(_ record: EntryRecord) -> TileMetadata {
        let times = details.times(record.details)
        return TileMetadata(
            response: fields(record.set), tag: details.tag(record.details),
            lastModified: times.lastModified == Timestamp.absent ? nil : Timestamp(packed: times.lastModified),
            storedAt: Timestamp(packed: record.storedAt),
            date: times.date == Timestamp.absent ? nil : Timestamp(packed: times.date),
            initialAge: Int(times.initialAge), expires: Timestamp(packed: record.expires))
    }

    func fields(_ slot: UInt32) -> ResponseFields { sets[slot]?.fields ?? ResponseFields() }

    func allocated(_ size: some BinaryInteger) -> Int { blobAccount.allocated(size) }
}

extension Tables {
    /// How many cells are looked at to find every entry and every blob once.
    func indexProbes() -> (entries: Int, blobs: Int) {
        var probes = (entries: 0, blobs: 0)
        for slot in 0..<entries.count where entries[slot].pointee.isLive {
            probes.entries += entryIndex.probes(slot, hash(entries[slot].pointee.key))
        }
        for slot in 0..<blobs.count where blobs[slot].pointee.isLive {
            probes.blobs += blobIndex.probes(slot, Self.hash(blobs[slot].pointee.digest))
        }
        return probes
    }
}

private let nextTablesNumber = Locked<UInt64>(0)
