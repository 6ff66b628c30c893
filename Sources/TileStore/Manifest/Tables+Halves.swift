// Entering a checkpoint's lines in two halves that may run at the same time: what blobs need, and what entries need.
//
// Either half touches only its own tables: they meet in the chunk, where the first leaves for each line which blob it has.
// That goes as long as the lines are as a checkpoint of this program has them, each key once; the slot of an entry is then
// the number of its line. Everything else is carried out line by line.
extension Tables {
    /// What a line finds among the blobs.
    struct BlobPlace: BitwiseCopyable {
        var blob: UInt32
        /// The entry that had the blob before.
        var sibling: UInt32
    }

    /// How many lines are looked ahead: as many as a processor can wait for at once, and a few more.
    ///
    /// In a large cache each line needs places that are nowhere near its neighbours': a cell in each index, the blob, and the
    /// entry that had the blob last. Looked at one by one, each of them would be waited for.
    static var linesAhead: Int { 24 }

    /// The lines are not as this program writes them: they have to be carried out one by one.
    struct UnusualLine: Error {}

    /// Finds or makes the blobs of a chunk's lines, counts them and notes who has them.
    ///
    /// Touches `blobs`, `blobIndex` and their accounts alone.
    func enterBlobs(_ chunk: CheckpointChunk) throws {
        guard chunk.firstPut + chunk.puts.count < Int(Segments<EntryRecord>.limit) else { throw UnusualLine() }
        chunk.places.removeAll(keepingCapacity: true)
        try chunk.puts.withUnsafeBufferPointer { puts in
            var at = 0
            while at < puts.count {
                let group = UnsafeBufferPointer(rebasing: puts[at..<min(at + Self.linesAhead, puts.count)])
                warmBlobs(group)
                for (i, put) in group.enumerated() {
                    chunk.places.append(try enterBlob(put, of: UInt32(truncatingIfNeeded: chunk.firstPut + at + i)))
                }
                at += group.count
            }
        }
    }

    @inline(__always)
    private func enterBlob(_ put: PutLine, of entry: UInt32) throws -> BlobPlace {
        guard let digest = put.blob else { return BlobPlace(blob: noSlot, sibling: noSlot) }
        guard let slot = find(digest) ?? addBlob(digest, put.size) else { throw UnusualLine() }
        let blob = blobs.change(slot)
        let place = BlobPlace(blob: slot, sibling: blob.pointee.firstEntry)
        blob.pointee.firstEntry = entry
        blob.pointee.references += 1
        blob.pointee.recency = max(blob.pointee.recency, put.recency)
        blobAccount.refer(blob.pointee.size, by: 1)
        return place
    }

    // Loops that do nothing but look: a processor waits for as many places at once as it can see ahead.
    @inline(__always)
    private func warmBlobs(_ puts: UnsafeBufferPointer<PutLine>) {
        withUnsafeTemporaryAllocation(of: UInt64.self, capacity: Self.linesAhead) { hashes in
            var count = 0
            for put in puts {
                if let digest = put.blob {
                    hashes[count] = Self.hash(digest)
                    count += 1
                }
            }
            var seen: UInt32 = 0
            for hash in hashes[..<count] { seen ^= blobIndex.cell(hash) }
            for hash in hashes[..<count] {
                // Whether it is this digest's does not matter: mostly it is.
                let slot = SlotIndex.slot(blobIndex.cell(hash))
                if slot < blobs.count { seen ^= blobs[slot].pointee.firstEntry }
            }
            blobWarmth ^= seen
        }
    }

    /// Enters a chunk's lines whose blobs have been entered.
    ///
    /// Touches entries, names, sets and what else a checkpoint has, but nothing that ``enterBlobs(_:)`` does.
    ///
    /// - Parameter ended: Gets the number of records that the checkpoint's last line tells of, and how many of this chunk
    ///   come before that line.
    func enterEntries(_ chunk: CheckpointChunk, _ reader: borrowing LineReader, _ ended: (Int, Int) -> Void) throws {
        var next = 0
        for (i, other) in chunk.others.enumerated() {
            try enterEntries(chunk, next..<other.before)
            next = other.before
            if let count = try enterOther(other.body, reader) { ended(count, next + i) }
        }
        try enterEntries(chunk, next..<chunk.puts.count)
    }

    private func enterEntries(_ chunk: CheckpointChunk, _ range: Range<Int>) throws {
        try chunk.puts.withUnsafeBufferPointer { puts in
            try chunk.places.withUnsafeBufferPointer { places in
                var at = range.lowerBound
                while at < range.upperBound {
                    let end = min(at + Self.linesAhead, range.upperBound)
                    try enterEntries(
                        UnsafeBufferPointer(rebasing: puts[at..<end]), UnsafeBufferPointer(rebasing: places[at..<end]),
                        chunk.firstPut + at)
                    at = end
                }
            }
        }
    }

    private func enterEntries(
        _ puts: UnsafeBufferPointer<PutLine>, _ places: UnsafeBufferPointer<BlobPlace>, _ number: Int
    ) throws {
        try withUnsafeTemporaryAllocation(of: (key: PackedKey, hash: UInt64).self, capacity: Self.linesAhead) { keys in
            for (i, put) in puts.enumerated() {
                guard let key = packed(put.key) else { throw UnusualLine() }
                keys[i] = (key, hash(key))
            }
            var seen: UInt32 = 0
            for i in places.indices { seen ^= entryIndex.cell(keys[i].hash) }
            for place in places where place.sibling < entries.count {
                seen ^= entries[place.sibling].pointee.siblingBefore
            }
            warmth ^= seen
            for i in puts.indices { try enterEntry(keys[i].key, keys[i].hash, puts[i], places[i], number + i) }
        }
    }

    @inline(__always)
    private func enterEntry(
        _ key: PackedKey, _ hash: UInt64, _ put: PutLine, _ place: BlobPlace, _ number: Int
    ) throws {
        guard let set = sets.slot(put.set), isPlausible(put.recency),
            entryIndex.find(hash, { entries[$0].pointee.key == key }) == nil, let slot = entries.append(),
            Int(slot) == number
        else { throw UnusualLine() }
        var record = EntryRecord(key)
        record.flags = EntryRecord.live
        record.blob = place.blob
        record.sibling = place.sibling
        record.set = set
        record.details = details.insert(put.details)
        record.storedAt = put.storedAt
        record.expires = put.expires
        record.lastUsed = put.lastUsed ?? put.storedAt
        record.recency = put.recency
        entries.change(slot).initialize(to: record)
        if place.sibling != noSlot { entries.change(place.sibling).pointee.siblingBefore = slot }
        entryIndex.insert(slot, hash) { self.hash(entries[$0].pointee.key) }
        sets.count(set, by: 1)
        entryAccount.add(pinned: false)
        nextSequence = max(nextSequence, put.recency &+ 1)
    }

    /// Carries out a line of a checkpoint that is no key's state; returns the number that its last line has.
    private func enterOther(_ body: UnsafeRawBufferPointer, _ reader: borrowing LineReader) throws -> Int? {
        switch reader.readAny(body) {
        case .set(let number, let fields): sets.define(number, fields, current: false)
        case .limits(let limits): self.limits = limits
        case .boot(let id): boot = id
        case .region(let region): setRegion(region.name, region)
        case .blobRecency(let digest, let recency):
            guard isPlausible(recency) else { throw UnusualLine() }
            remember(digest, recency)
        case .end(let count): return count
        case nil, .put, .gone, .drop, .uses, .expire, .regionGone, .rotate, .journalHeader: throw UnusualLine()
        }
        return nil
    }
}
