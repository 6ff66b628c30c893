#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

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
    private var freeEntry = noSlot
    private var freeBlob = noSlot

    // Names. They are few; numbers are never reused.
    var sources: [SourceName] = []
    @exclusivity(unchecked) var sourceNumbers: [String: UInt16] = [:]
    var variants: [(scale: Int, format: String?)] = [(1, nil)]
    var variantNumbers: [String: UInt16] = [:]
    var resources: [ResourceName: UInt64] = [:]
    var resourceNames: [UInt64: ResourceName] = [:]
    var nextResource: UInt64 = 0

    // Shared parts of responses.
    @exclusivity(unchecked) var sets: [SharedSet?] = []
    @exclusivity(unchecked) var setSlots: [UInt32: UInt32] = [:]
    @exclusivity(unchecked) var setNumbers: [ResponseFields: UInt32] = [:]
    var nextSet: UInt32 = 1
    var freeSets: [UInt32] = []
    // The set that was asked for last: mostly the next line has the same. Set numbers begin at 1.
    @exclusivity(unchecked) var lastSet: (number: UInt32, slot: UInt32) = (0, 0)
    /// The journal's generation: a set may be referred to in it once it has been defined in it.
    @exclusivity(unchecked) var generation: UInt64 = 0

    var regions: [String: PinnedRegion] = [:]
    private var regionIndexes: [UInt16: [RegionIndex]] = [:]
    @exclusivity(unchecked) var limits = StoreLimits(capacity: nil)
    var boot: String?
    @exclusivity(unchecked) var nextSequence: UInt64 = 1

    // Accounts.
    let blockSize: Int
    @exclusivity(unchecked) var entryCount = 0
    @exclusivity(unchecked) var unpinnedEntries = 0
    @exclusivity(unchecked) var blobCount = 0
    @exclusivity(unchecked) var blobBytes = 0
    @exclusivity(unchecked) var logicalBytes = 0
    @exclusivity(unchecked) var allocatedUnpinned = 0
    @exclusivity(unchecked) var allocatedPinned = 0

    /// Digests whose count fell to 0 since this was last emptied: their files are to be unlinked by whoever wrote the record.
    @exclusivity(unchecked) var released: [BlobDigest] = []
    /// Dropped blobs that still have entries to be swept.
    private var unswept: [UInt32] = []
    /// While a checkpoint and its journals are loaded the orders are not kept; they are sorted at the end.
    private var loading = false
    /// Recencies of blobs that the checkpoint names.
    ///
    /// While its journal is carried out again, a blob may be gone for a moment, because an entry is in the checkpoint
    /// as it was later; what the blob remembers is given back at the end.
    private var loadedRecencies: [BlobDigest: UInt64] = [:]
    // The name that was looked up last, at most 64 bytes, and its number.
    private let lastSource = UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 8)
    @exclusivity(unchecked) private var lastSourceLength = -1
    @exclusivity(unchecked) private var lastSourceNumber: UInt16 = 0
    @exclusivity(unchecked) private var lastVariantMark: (UInt64, UInt64) = (0, 0)
    @exclusivity(unchecked) private var lastVariantNumber: UInt16 = 0
    private let hashSeed: UInt64

    struct ResourceName: Hashable {
        var source: UInt16
        var text: String
    }

    struct SharedSet {
        var number: UInt32
        var fields: ResponseFields
        var uses: Int
        var definedIn: UInt64
    }

    init(blockSize: Int, hashSeed: UInt64, expectedEntries: Int = 0, expectedBlobs: Int = 0) {
        self.blockSize = blockSize
        self.hashSeed = hashSeed | 1
        entryIndex = SlotIndex(expecting: expectedEntries)
        blobIndex = SlotIndex(expecting: expectedBlobs)
    }

    deinit { lastSource.deallocate() }

    // MARK: Looking up

    @inline(__always)
    private func hash(_ key: PackedKey) -> UInt64 {
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
    private func findPhysical(_ key: PackedKey) -> UInt32? {
        entryIndex.find(hash(key)) { entries[$0].pointee.key == key }
    }

    @inline(__always)
    func find(_ digest: BlobDigest) -> UInt32? {
        blobIndex.find(Self.hash(digest)) { blobs[$0].pointee.digest == digest }
    }

    @inline(__always)
    private static func hash(_ digest: BlobDigest) -> UInt64 { digest.b }

    /// The packed form of a key whose names are known; `nil` means that no such entry can exist.
    @inline(__always)
    func packed(_ key: TileKey) -> PackedKey? {
        guard let source = sourceNumbers[key.source.description] else { return nil }
        switch key.address {
        case .tile(let tile):
            guard let variant = variant(tile.scale, tile.format) else { return nil }
            return PackedKey(source: source, z: tile.z, x: tile.x, y: tile.y, variant: variant)
        case .resource(let resource):
            guard let number = resources[ResourceName(source: source, text: resource.text)] else { return nil }
            return PackedKey(position: PackedKey.resourceZoom << 56 | number, source: source, variant: 0)
        }
    }

    /// The same, asking first whether the names are those of the last time.
    @inline(__always)
    func packed(_ key: TileKey, _ last: inout LastNames) -> PackedKey? {
        guard case .tile(let tile) = key.address else { return packed(key) }
        if last.tables != ObjectIdentifier(self) || last.source != key.source.description {
            guard let source = sourceNumbers[key.source.description] else { return nil }
            last = LastNames(tables: ObjectIdentifier(self), source: key.source.description, sourceNumber: source)
        }
        if last.scale != tile.scale || last.format != tile.format {
            guard let variant = variant(tile.scale, tile.format) else { return nil }
            (last.scale, last.format, last.variant) = (tile.scale, tile.format, variant)
        }
        return PackedKey(source: last.sourceNumber, z: tile.z, x: tile.x, y: tile.y, variant: last.variant)
    }

    @inline(__always)
    private func variant(_ scale: Int, _ format: String?) -> UInt16? {
        if scale == 1, format == nil { return 0 }
        return variantNumbers["\(scale).\(format ?? "")"]
    }

    /// The key behind its packed form.
    func key(_ packed: PackedKey) -> TileKey {
        let source = sources[Int(packed.source)]
        if packed.isResource {
            let name = resourceNames[packed.position & 0xFF_FFFF_FFFF_FFFF]
            let resource = name.flatMap { try? ResourceAddress(text: $0.text) }
            // A number without a name cannot occur: both are made and removed together.
            return TileKey(source: source, resource: resource ?? ResourceAddress.unnamed)
        }
        let variant = variants[Int(packed.variant)]
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

    func fields(_ slot: UInt32) -> ResponseFields { sets[Int(slot)]?.fields ?? ResponseFields() }

    func allocated(_ size: some BinaryInteger) -> Int { (Int(size) + blockSize - 1) / blockSize * blockSize }

    // MARK: Names

    func sourceNumber(_ utf8: UnsafeRawBufferPointer) -> UInt16? {
        let name = String(decoding: utf8, as: UTF8.self)
        if let number = sourceNumbers[name] { return number }
        guard sources.count < Int(UInt16.max), let source = try? SourceName(name) else { return nil }
        sources.append(source)
        sourceNumbers[name] = UInt16(sources.count - 1)
        return UInt16(sources.count - 1)
    }

    /// The number of a source, which mostly is that of the line before.
    @inline(__always)
    func sourceNumberOfLine(_ utf8: UnsafeRawBufferPointer) -> UInt16? {
        guard let base = utf8.baseAddress, utf8.count == lastSourceLength, memcmp(base, lastSource, utf8.count) == 0
        else { return otherSource(utf8) }
        return lastSourceNumber
    }

    private func otherSource(_ utf8: UnsafeRawBufferPointer) -> UInt16? {
        guard let number = sourceNumber(utf8) else { return nil }
        lastSource.copyMemory(from: utf8.baseAddress.unsafelyUnwrapped, byteCount: utf8.count)
        (lastSourceLength, lastSourceNumber) = (utf8.count, number)
        return number
    }

    @inline(__always)
    func variantNumber(_ scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        if scale == 1, format == nil { return 0 }
        return otherVariant(scale, format)
    }

    private func otherVariant(_ scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        // Formats have 12 bytes at most: with the scale they fit into two words, which say whether it is the last one again.
        var mark: (UInt64, UInt64) = (0, UInt64(truncatingIfNeeded: scale) << 56)
        if let format, format.count <= 12 {
            withUnsafeMutableBytes(of: &mark) { $0.copyMemory(from: format) }
            if mark == lastVariantMark { return lastVariantNumber }
        }
        guard let number = enteredVariant(scale, format) else { return nil }
        if (format?.count ?? 13) <= 12 { (lastVariantMark, lastVariantNumber) = (mark, number) }
        return number
    }

    private func enteredVariant(_ scale: Int, _ format: UnsafeRawBufferPointer?) -> UInt16? {
        let format = format.map { String(decoding: $0, as: UTF8.self) }
        let name = "\(scale).\(format ?? "")"
        if let number = variantNumbers[name] { return number }
        guard variants.count < Int(UInt16.max) else { return nil }
        variants.append((scale, format))
        variantNumbers[name] = UInt16(variants.count - 1)
        return UInt16(variants.count - 1)
    }

    func resourceNumber(_ name: ResourceName) -> UInt64 {
        if let number = resources[name] { return number }
        defer { nextResource += 1 }
        resources[name] = nextResource
        resourceNames[nextResource] = name
        return nextResource
    }

    // MARK: Shared sets

    /// The slot of a set by its number, defining it if asked; `nil` if it was never defined.
    @inline(__always)
    func setSlot(_ number: UInt32) -> UInt32? {
        if lastSet.number == number { return lastSet.slot }
        guard let slot = setSlots[number] else { return nil }
        lastSet = (number, slot)
        return slot
    }

    func define(_ number: UInt32, _ fields: ResponseFields, current: Bool) {
        let definedIn = current ? generation + 1 : 0
        lastSet = (0, 0)
        if let slot = setSlots[number] {
            let old = sets[Int(slot)]
            let latest = old?.fields == fields ? max(old?.definedIn ?? 0, definedIn) : definedIn
            sets[Int(slot)] = SharedSet(number: number, fields: fields, uses: old?.uses ?? 0, definedIn: latest)
        } else {
            let slot = freeSets.popLast() ?? UInt32(sets.count)
            if Int(slot) == sets.count { sets.append(nil) }
            sets[Int(slot)] = SharedSet(number: number, fields: fields, uses: 0, definedIn: definedIn)
            setSlots[number] = slot
        }
        setNumbers[fields] = number
        nextSet = max(nextSet, number &+ 1)
    }

    /// The number under which equal fields were defined in this generation's journal.
    func definedSet(_ fields: ResponseFields) -> UInt32? {
        guard let number = setNumbers[fields], let slot = setSlots[number], let set = sets[Int(slot)],
            set.definedIn == generation + 1
        else { return nil }
        return number
    }

    /// The journal goes on in a new file: sets must be defined again before they are referred to, unused ones are forgotten.
    func startGeneration(_ generation: UInt64) {
        self.generation = generation
        lastSet = (0, 0)
        for slot in sets.indices {
            guard let set = sets[slot], set.uses == 0 else { continue }
            setSlots[set.number] = nil
            if setNumbers[set.fields] == set.number { setNumbers[set.fields] = nil }
            sets[slot] = nil
            freeSets.append(UInt32(slot))
        }
    }

    // MARK: Changing

    func beginLoading() { loading = true }

    /// Ends loading: puts everything in the order of its recency and settles what is pinned.
    func finishLoading() {
        for (digest, recency) in loadedRecencies { if let slot = find(digest) { raiseBlob(slot, to: recency) } }
        loadedRecencies = [:]
        loading = false
        var order: [(recency: UInt64, slot: UInt32)] = []
        order.reserveCapacity(max(entryCount, blobCount))
        for slot in 0..<entries.count {
            let record = entries[slot].pointee
            if record.isLive, !record.isPinned { order.append((record.recency, slot)) }
        }
        if !order.isSortedByRecency { order.sort { $0.recency < $1.recency } }
        for item in order { entryOrder.insert(item.slot, in: entries) }
        order.removeAll(keepingCapacity: true)
        for slot in 0..<blobs.count {
            let record = blobs[slot].pointee
            if record.isLive, record.pins == 0 { order.append((record.recency, slot)) }
        }
        if !order.isSortedByRecency { order.sort { $0.recency < $1.recency } }
        for item in order { blobOrder.insert(item.slot, in: blobs) }
        released.removeAll()
    }

    /// Enters the whole new state of a key.
    func put(_ key: PackedKey, _ new: NewState) -> Bool {
        nextSequence = max(nextSequence, new.recency &+ 1)
        let oldSlot = findPhysical(key)
        if let oldSlot, entries[oldSlot].pointee.blob != noSlot, !blobs[entries[oldSlot].pointee.blob].pointee.isLive {
            // The name of a resource goes on being used.
            sweepEntry(oldSlot, keepsName: true)
            return put(key, new)
        }
        // The new blob is counted before the old one is let go: they may be the same.
        var blobSlot = noSlot
        if let digest = new.blob {
            guard let slot = find(digest) ?? addBlob(digest, new.size) else { return false }
            blobSlot = slot
        }
        guard let slot = oldSlot ?? addEntry(key) else { return false }
        let record = entries[slot]
        let sameBlob = oldSlot != nil && record.pointee.blob == blobSlot
        if oldSlot != nil {
            if !sameBlob { unlinkFromBlob(slot) }
            details.remove(record.pointee.details)
            releaseSet(record.pointee.set)
        }
        record.pointee.details = details.insert(new.details)
        record.pointee.set = new.set
        sets[Int(new.set)]?.uses += 1
        record.pointee.storedAt = new.storedAt
        record.pointee.expires = new.expires
        record.pointee.lastUsed = new.lastUsed
        if !sameBlob { linkToBlob(slot, blobSlot) }
        use(slot, new.recency, at: new.lastUsed)
        return true
    }

    struct NewState {
        var blob: BlobDigest?
        var size: UInt32
        var set: UInt32
        var details: EntryDetails
        var storedAt: UInt32
        var expires: UInt32
        var recency: UInt64
        var lastUsed: UInt32
    }

    /// Gives an entry, and through it its blob, a place in the order of use.
    func use(_ slot: UInt32, _ recency: UInt64, at time: UInt32) {
        nextSequence = max(nextSequence, recency &+ 1)
        let record = entries[slot]
        record.pointee.lastUsed = time
        if record.pointee.recency != recency {
            record.pointee.recency = recency
            if !loading, !record.pointee.isPinned {
                entryOrder.remove(slot, in: entries)
                entryOrder.insert(slot, in: entries)
            }
        } else if !loading, !record.pointee.isPinned, !entryOrder.contains(slot, in: entries) {
            entryOrder.insert(slot, in: entries)
        }
        if record.pointee.blob != noSlot { raiseBlob(record.pointee.blob, to: recency) }
    }

    /// Takes note of a blob's recency in a checkpoint.
    func remember(_ digest: BlobDigest, _ recency: UInt64) {
        loadedRecencies[digest] = max(loadedRecencies[digest] ?? 0, recency)
        nextSequence = max(nextSequence, recency &+ 1)
    }

    func raiseBlob(_ slot: UInt32, to recency: UInt64) {
        let blob = blobs[slot]
        nextSequence = max(nextSequence, recency &+ 1)
        guard blob.pointee.recency < recency else { return }
        blob.pointee.recency = recency
        if !loading, blob.pointee.pins == 0 {
            blobOrder.remove(slot, in: blobs)
            blobOrder.insert(slot, in: blobs)
        }
    }

    func remove(_ key: PackedKey) {
        guard let slot = findPhysical(key) else { return }
        let blob = entries[slot].pointee.blob
        if blob != noSlot, !blobs[blob].pointee.isLive {
            sweepEntry(slot)
            return
        }
        unlinkFromBlob(slot)
        forgetEntry(slot)
    }

    /// Drops a blob with all its entries: they miss at once and are taken out later, in slices.
    func drop(_ digest: BlobDigest) {
        guard let slot = find(digest) else { return }
        let blob = blobs[slot]
        blobIndex.remove(slot, Self.hash(digest)) { Self.hash(blobs[$0].pointee.digest) }
        settle(blobBytes: -Int(blob.pointee.size), pinned: blob.pointee.pins > 0)
        blobOrder.remove(slot, in: blobs)
        blobCount -= 1
        entryCount -= Int(blob.pointee.references)
        unpinnedEntries -= Int(blob.pointee.references - blob.pointee.pins)
        logicalBytes -= Int(blob.pointee.references) * Int(blob.pointee.size)
        blob.pointee.flags = BlobRecord.dropped
        released.append(digest)
        unswept.append(slot)
    }

    var hasUnswept: Bool { !unswept.isEmpty }

    /// Takes out up to some entries of dropped blobs; `true` if there are more.
    func sweep(_ limit: Int) -> Bool {
        var left = limit
        while let blob = unswept.last {
            while blobs[blob].pointee.firstEntry != noSlot {
                guard left > 0 else { return true }
                left -= 1
                sweepEntry(blobs[blob].pointee.firstEntry)
            }
            unswept.removeLast()
            freeBlobSlot(blob)
        }
        return false
    }

    /// Takes out one entry of a dropped blob; its accounts were settled when the blob was dropped.
    private func sweepEntry(_ slot: UInt32, keepsName: Bool = false) {
        detachSibling(slot)
        entries[slot].pointee.blob = noSlot
        // Already off the accounts: put it back before the ordinary way takes it off.
        entryCount += 1
        if !entries[slot].pointee.isPinned { unpinnedEntries += 1 }
        forgetEntry(slot, keepsName: keepsName)
    }

    /// The unpinned entry that was used longest ago.
    func oldestEntry() -> UInt32? {
        while entryOrder.first != noSlot {
            let slot = entryOrder.first
            let blob = entries[slot].pointee.blob
            if blob == noSlot || blobs[blob].pointee.isLive { return slot }
            sweepEntry(slot)
        }
        return nil
    }

    func expire(_ slot: UInt32, at time: UInt32) { entries[slot].pointee.expires = time }

    // MARK: Slots

    private func addEntry(_ key: PackedKey) -> UInt32? {
        var slot = freeEntry
        if slot != noSlot {
            freeEntry = entries[slot].pointee.sibling
        } else {
            guard let fresh = entries.append() else { return nil }
            slot = fresh
        }
        var record = EntryRecord(key)
        record.flags = EntryRecord.live
        if isPinned(key) { record.flags |= EntryRecord.pinned }
        entries[slot].initialize(to: record)
        entryIndex.insert(slot, hash(key)) { hash(entries[$0].pointee.key) }
        entryCount += 1
        if !record.isPinned { unpinnedEntries += 1 }
        return slot
    }

    private func forgetEntry(_ slot: UInt32, keepsName: Bool = false) {
        let record = entries[slot].pointee
        entryOrder.remove(slot, in: entries)
        entryIndex.remove(slot, hash(record.key)) { hash(entries[$0].pointee.key) }
        details.remove(record.details)
        releaseSet(record.set)
        if record.key.isResource, !keepsName {
            let number = record.key.position & 0xFF_FFFF_FFFF_FFFF
            if let name = resourceNames.removeValue(forKey: number) { resources[name] = nil }
        }
        entryCount -= 1
        if !record.isPinned { unpinnedEntries -= 1 }
        entries[slot].pointee.flags = 0
        entries[slot].pointee.sibling = freeEntry
        freeEntry = slot
    }

    private func releaseSet(_ slot: UInt32) { sets[Int(slot)]?.uses -= 1 }

    private func addBlob(_ digest: BlobDigest, _ size: UInt32) -> UInt32? {
        var slot = freeBlob
        if slot != noSlot {
            freeBlob = blobs[slot].pointee.after
        } else {
            guard let fresh = blobs.append() else { return nil }
            slot = fresh
        }
        blobs[slot].initialize(to: BlobRecord(digest: digest, size: size))
        blobIndex.insert(slot, Self.hash(digest)) { Self.hash(blobs[$0].pointee.digest) }
        blobCount += 1
        settle(blobBytes: Int(size), pinned: false)
        // It enters the order of use with the use that made it.
        return slot
    }

    private func freeBlobSlot(_ slot: UInt32) {
        blobs[slot].pointee.flags = 0
        blobs[slot].pointee.after = freeBlob
        freeBlob = slot
    }

    private func linkToBlob(_ slot: UInt32, _ blobSlot: UInt32) {
        let record = entries[slot]
        record.pointee.blob = blobSlot
        record.pointee.siblingBefore = noSlot
        record.pointee.sibling = noSlot
        guard blobSlot != noSlot else { return }
        let blob = blobs[blobSlot]
        let next = blob.pointee.firstEntry
        record.pointee.sibling = next
        if next != noSlot { entries[next].pointee.siblingBefore = slot }
        blob.pointee.firstEntry = slot
        blob.pointee.references += 1
        logicalBytes += Int(blob.pointee.size)
        if record.pointee.isPinned { pin(blobSlot) }
    }

    /// Takes an entry off its blob; a blob whose count falls to 0 is gone.
    private func unlinkFromBlob(_ slot: UInt32) {
        let blobSlot = entries[slot].pointee.blob
        guard blobSlot != noSlot else { return }
        let blob = blobs[blobSlot]
        detachSibling(slot)
        entries[slot].pointee.blob = noSlot
        blob.pointee.references -= 1
        logicalBytes -= Int(blob.pointee.size)
        if entries[slot].pointee.isPinned { unpin(blobSlot, list: blob.pointee.references > 0) }
        guard blob.pointee.references == 0 else { return }
        let digest = blob.pointee.digest
        blobIndex.remove(blobSlot, Self.hash(digest)) { Self.hash(blobs[$0].pointee.digest) }
        blobOrder.remove(blobSlot, in: blobs)
        settle(blobBytes: -Int(blob.pointee.size), pinned: false)
        blobCount -= 1
        released.append(digest)
        freeBlobSlot(blobSlot)
    }

    private func detachSibling(_ slot: UInt32) {
        let (before, after) = (entries[slot].pointee.siblingBefore, entries[slot].pointee.sibling)
        if before == noSlot {
            blobs[entries[slot].pointee.blob].pointee.firstEntry = after
        } else {
            entries[before].pointee.sibling = after
        }
        if after != noSlot { entries[after].pointee.siblingBefore = before }
    }

    /// Moves a blob's bytes on or off the accounts.
    private func settle(blobBytes size: Int, pinned: Bool) {
        blobBytes += size
        let blocks = size < 0 ? -allocated(-size) : allocated(size)
        if pinned { allocatedPinned += blocks } else { allocatedUnpinned += blocks }
    }

    // MARK: Pins

    func isPinned(_ key: PackedKey) -> Bool {
        guard !key.isResource, let regions = regionIndexes[key.source] else { return false }
        return regions.contains { $0.contains(z: key.zoom, x: key.column, y: key.row) }
    }

    private func pin(_ blobSlot: UInt32) {
        let blob = blobs[blobSlot]
        blob.pointee.pins += 1
        guard blob.pointee.pins == 1 else { return }
        blobOrder.remove(blobSlot, in: blobs)
        allocatedUnpinned -= allocated(blob.pointee.size)
        allocatedPinned += allocated(blob.pointee.size)
    }

    /// - Parameter list: Whether it goes back into the order of use at once.
    private func unpin(_ blobSlot: UInt32, list: Bool) {
        let blob = blobs[blobSlot]
        blob.pointee.pins -= 1
        guard blob.pointee.pins == 0 else { return }
        allocatedPinned -= allocated(blob.pointee.size)
        allocatedUnpinned += allocated(blob.pointee.size)
        if list, !loading { blobOrder.insert(blobSlot, in: blobs) }
    }

    /// Replaces or removes a region and settles what is pinned.
    ///
    /// Costs a pass over the entries.
    func setRegion(_ name: String, _ region: PinnedRegion?) {
        let old = regions[name]
        regions[name] = region
        for source in Set([old?.source, region?.source].compactMap { $0 }) {
            guard let number = Array(source.description.utf8).withUnsafeBytes({ sourceNumber($0) }) else { continue }
            let indexes = regions.values.filter { $0.source == source }.map(RegionIndex.init)
            regionIndexes[number] = indexes.isEmpty ? nil : indexes
            settlePins(number)
        }
    }

    private func settlePins(_ source: UInt16) {
        var unpinnedSlots: [UInt32] = []
        var unpinnedBlobs: [UInt32] = []
        for slot in 0..<entries.count {
            let record = entries[slot]
            guard record.pointee.isLive, record.pointee.key.source == source else { continue }
            let blobSlot = record.pointee.blob
            if blobSlot != noSlot, !blobs[blobSlot].pointee.isLive { continue }
            let pinned = isPinned(record.pointee.key)
            guard pinned != record.pointee.isPinned else { continue }
            if pinned {
                record.pointee.flags |= EntryRecord.pinned
                entryOrder.remove(slot, in: entries)
                unpinnedEntries -= 1
                if blobSlot != noSlot { pin(blobSlot) }
            } else {
                record.pointee.flags &= ~EntryRecord.pinned
                unpinnedEntries += 1
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

extension [(recency: UInt64, slot: UInt32)] {
    fileprivate var isSortedByRecency: Bool {
        for i in indices.dropFirst() where self[i].recency < self[i - 1].recency { return false }
        return true
    }
}

extension ResourceAddress {
    /// `path[?query][#variant]`.
    var text: String { path + (query.map { "?\($0)" } ?? "") + (variant.map { "#\($0)" } ?? "") }

    init(text: String) throws {
        guard case .resource(let resource) = try TileKey("x:" + text).address else {
            throw StoreError(.invalidKey, "\(quoted(text)) is no resource")
        }
        self = resource
    }

    static let unnamed = ResourceAddress(uncheckedPath: "?")

    private init(uncheckedPath: String) {
        path = uncheckedPath
        query = nil
        variant = nil
    }
}
