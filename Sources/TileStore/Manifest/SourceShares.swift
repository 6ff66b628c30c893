/// What a source holds that has a capacity of its own.
///
/// Takes 4 bytes for each slot of the blobs' table.
struct SourceShare {
    let source: UInt16
    /// The most allocated bytes that it may hold.
    var capacity: Int
    /// By the blob's slot: how many of its entries are this source's.
    private var counts: [UInt32] = []
    /// Allocated bytes of the unpinned blobs that its entries name, each blob counted once.
    private(set) var allocated = 0

    init(source: UInt16, capacity: Int) { (self.source, self.capacity) = (source, capacity) }

    var exceedsCapacity: Bool { allocated > capacity }

    /// How many entries of the source name a blob.
    @inline(__always)
    func references(to blob: UInt32) -> UInt32 { blob < counts.count ? counts[Int(blob)] : 0 }

    /// One more entry names a blob.
    ///
    /// - Parameter bytes: What the blob counts; 0 if it is pinned.
    mutating func link(_ blob: UInt32, _ bytes: Int) {
        if blob >= counts.count {
            counts.append(contentsOf: repeatElement(0, count: max(Int(blob) + 1, counts.count * 3 / 2) - counts.count))
        }
        counts[Int(blob)] += 1
        if counts[Int(blob)] == 1 { allocated += bytes }
    }

    /// One entry less names it.
    mutating func unlink(_ blob: UInt32, _ bytes: Int) {
        counts[Int(blob)] -= 1
        if counts[Int(blob)] == 0 { allocated -= bytes }
    }

    /// The blob is gone with all of its entries.
    mutating func drop(_ blob: UInt32, _ bytes: Int) {
        guard references(to: blob) > 0 else { return }
        counts[Int(blob)] = 0
        allocated -= bytes
    }

    /// The blob is pinned from now on, or is not any more: what it counts is less or more.
    mutating func change(_ blob: UInt32, by bytes: Int) {
        if references(to: blob) > 0 { allocated += bytes }
    }
}

// Sources with capacities of their own. Tables that are being loaded know of none.
extension Tables {
    /// What a blob counts for the capacities of sources.
    @inline(__always)
    private func counted(_ blob: UInt32) -> Int {
        let record = blobs[blob].pointee
        return record.pins == 0 ? allocated(record.size) : 0
    }

    private func share(of source: UInt16) -> Int? { shares.firstIndex { $0.source == source } }

    private func share(of source: SourceName) -> Int? {
        shares.isEmpty ? nil : names.source(source.description).flatMap { share(of: $0) }
    }

    /// What a source holds, by its share; 0 if it has none.
    func allocated(of source: SourceName) -> Int { share(of: source).map { shares[$0].allocated } ?? 0 }

    /// After an entry was linked to a blob, and before it pins it.
    @inline(__always)
    func shareLinked(_ entry: UInt32, _ blob: UInt32) {
        guard !shares.isEmpty, let i = share(of: entries[entry].pointee.key.source) else { return }
        shares[i].link(blob, counted(blob))
    }

    /// After an entry was taken off a blob that is still there, and the blob lost the entry's pin.
    @inline(__always)
    func shareUnlinked(_ entry: UInt32, _ blob: UInt32) {
        guard !shares.isEmpty, let i = share(of: entries[entry].pointee.key.source) else { return }
        shares[i].unlink(blob, counted(blob))
    }

    /// Before a blob goes with all of its entries.
    @inline(__always)
    func shareDropped(_ blob: UInt32) {
        for i in shares.indices { shares[i].drop(blob, counted(blob)) }
    }

    /// A blob is pinned from now on, or is not any more.
    @inline(__always)
    func sharePinned(_ blob: UInt32, isPinned: Bool) {
        let bytes = allocated(blobs[blob].pointee.size)
        for i in shares.indices { shares[i].change(blob, by: isPinned ? -bytes : bytes) }
    }

    /// Whether a tile of a source takes more than all that the source may take.
    @inline(__always)
    func exceedsShare(_ key: TileKey, size: Int) -> Bool {
        share(of: key).map { allocated(size) > shares[$0].capacity } ?? false
    }

    /// The allocated bytes that the source of a key may still take; `nil` if it has no capacity of its own.
    func shareRoom(of key: TileKey) -> Int? { share(of: key).map { shares[$0].capacity - shares[$0].allocated } }

    @inline(__always)
    private func share(of key: TileKey) -> Int? { share(of: key.source) }

    /// Whether a source holds more than its own capacity.
    var sharesExceedCapacities: Bool { (shareRoom ?? 0) < 0 }

    /// The allocated bytes that the source which is nearest to its capacity may still take.
    var shareRoom: Int? {
        var room: Int?
        for i in shares.indices { room = min(room ?? .max, shares[i].capacity - shares[i].allocated) }
        return room
    }

    /// Sets which sources have capacities of their own.
    ///
    /// Costs a pass over the entries if there is one among them that had none.
    func setCapacities(_ capacities: [SourceName: Int]) {
        var new: [SourceShare] = []
        var isKnown = true
        for (name, capacity) in capacities.sorted(by: { $0.key < $1.key }) {
            // Without room for its name it can have no entry.
            guard names.hasRoom(for: name),
                let number = Array(name.description.utf8).withUnsafeBytes({ names.enter(source: $0) })
            else { continue }
            if let i = share(of: number) {
                shares[i].capacity = capacity
                new.append(shares[i])
            } else {
                new.append(SourceShare(source: number, capacity: capacity))
                isKnown = false
            }
        }
        shares = isKnown ? new : new.map { SourceShare(source: $0.source, capacity: $0.capacity) }
        guard !isKnown else { return }
        for slot in 0..<entries.count {
            let record = entries[slot].pointee
            guard record.isLive, record.blob != noSlot, blobs[record.blob].pointee.isLive else { continue }
            shareLinked(slot, record.blob)
        }
    }
}

// What goes first where a source holds more than its own capacity.
extension Tables {
    /// A place in the order of use of blobs, to go on from.
    struct PlaceInOrder {
        let slot: UInt32
        let recency: UInt64
    }

    /// What a source has to give up next.
    struct ShareVictims {
        /// Blobs that no other source has.
        var blobs: [BlobDigest] = []
        /// The source's entries of blobs that others have too.
        var entries: [TileKey] = []
        /// Where the search goes on; `nil` if the source need not give up more, or has no more.
        var next: PlaceInOrder?
    }

    /// Chooses from the blobs of a source, those first that were used longest ago, whoever used them.
    ///
    /// Looks at a bounded number of blobs.
    /// - Parameter place: Where the search goes on; if another blob has that place by now, it begins at the beginning.
    func victims(of name: SourceName, from place: PlaceInOrder?) -> ShareVictims {
        var victims = ShareVictims()
        guard let i = share(of: name) else { return victims }
        let source = shares[i].source
        let capacity = shares[i].capacity
        // A little further than to the capacity, so that it pays; not so far that a put waits for it.
        let target = capacity - min(capacity / 100, 4 << 20)
        var left = shares[i].allocated
        var slot = blobOrder.first
        if let place, blobs[place.slot].pointee.recency == place.recency, blobOrder.contains(place.slot, in: blobs) {
            slot = place.slot
        }
        var isShort = false
        var looks = 1 << 14
        while left > target, slot != noSlot, looks > 0, victims.blobs.count < 64, !isShort {
            looks -= 1
            let blob = blobs[slot].pointee
            let own = shares[i].references(to: slot)
            // The blob of the source that was used last is spared once the source is within its capacity.
            if own > 0, left <= capacity, allocated(blob.size) >= left { return victims }
            if own == blob.references {
                victims.blobs.append(blob.digest)
            } else if own > 0 {
                let found = entries(of: source, naming: slot, most: min(Int(own), 4096 - victims.entries.count))
                victims.entries.append(contentsOf: found)
                isShort = found.count < own && victims.entries.count >= 4096
            }
            guard !isShort else { break }
            if own > 0 { left -= allocated(blob.size) }
            slot = blob.after
        }
        if left > target, slot != noSlot {
            victims.next = PlaceInOrder(slot: slot, recency: blobs[slot].pointee.recency)
        }
        return victims
    }

    /// Some of the entries by which a source names a blob.
    private func entries(of source: UInt16, naming blob: UInt32, most: Int) -> [TileKey] {
        var found: [TileKey] = []
        var entry = blobs[blob].pointee.firstEntry
        while entry != noSlot, found.count < most {
            let record = entries[entry].pointee
            if record.key.source == source { found.append(key(record.key)) }
            entry = record.sibling
        }
        return found
    }
}
