// Places for entries and blobs, the links between them, and what they count.
extension Tables {
    func addEntry(_ key: PackedKey) -> UInt32? {
        var slot = freeEntry
        if slot != noSlot {
            freeEntry = entries[slot].pointee.sibling
        } else {
            guard entries.count < bounds.slots, let fresh = entries.append() else {
                exceededSlots = .entries
                return nil
            }
            slot = fresh
        }
        var record = EntryRecord(key)
        record.flags = EntryRecord.live
        if isPinned(key) { record.flags |= EntryRecord.pinned }
        entries.change(slot).initialize(to: record)
        entryIndex.insert(slot, hash(key)) { hash(entries[$0].pointee.key) }
        entryAccount.add(pinned: record.isPinned)
        return slot
    }

    func forgetEntry(_ slot: UInt32, keepsName: Bool = false) {
        let record = entries[slot].pointee
        entryOrder.remove(slot, in: entries)
        entryIndex.remove(slot, hash(record.key)) { hash(entries[$0].pointee.key) }
        details.remove(record.details)
        sets.count(record.set, by: -1)
        if record.key.isResource, !keepsName {
            names.remove(resource: record.key.resourceNumber)
        }
        entryAccount.remove(pinned: record.isPinned)
        let freed = entries.change(slot)
        freed.pointee.flags = 0
        freed.pointee.sibling = freeEntry
        freeEntry = slot
    }

    func addBlob(_ digest: BlobDigest, _ size: UInt32) -> UInt32? {
        var slot = freeBlob
        if slot != noSlot {
            freeBlob = blobs[slot].pointee.after
        } else {
            guard blobs.count < bounds.slots, let fresh = blobs.append() else {
                exceededSlots = .blobs
                return nil
            }
            slot = fresh
        }
        blobs.change(slot).initialize(to: BlobRecord(digest: digest, size: size))
        blobIndex.insert(slot, Self.hash(digest)) { Self.hash(blobs[$0].pointee.digest) }
        blobAccount.add(size)
        // It enters the order of use with the use that made it.
        return slot
    }

    func freeBlobSlot(_ slot: UInt32) {
        let freed = blobs.change(slot)
        freed.pointee.flags = 0
        freed.pointee.after = freeBlob
        freeBlob = slot
    }

    func linkToBlob(_ slot: UInt32, _ blobSlot: UInt32) {
        let record = entries.change(slot)
        record.pointee.blob = blobSlot
        record.pointee.siblingBefore = noSlot
        record.pointee.sibling = noSlot
        guard blobSlot != noSlot else { return }
        let blob = blobs.change(blobSlot)
        let next = blob.pointee.firstEntry
        record.pointee.sibling = next
        if next != noSlot { entries.change(next).pointee.siblingBefore = slot }
        blob.pointee.firstEntry = slot
        blob.pointee.references += 1
        blobAccount.refer(blob.pointee.size, by: 1)
        shareLinked(slot, blobSlot)
        if record.pointee.isPinned { pin(blobSlot) }
    }

    /// Takes an entry off its blob; a blob whose count falls to 0 is gone.
    func unlinkFromBlob(_ slot: UInt32) {
        let blobSlot = entries[slot].pointee.blob
        guard blobSlot != noSlot else { return }
        let blob = blobs.change(blobSlot)
        detachSibling(slot)
        entries.change(slot).pointee.blob = noSlot
        blob.pointee.references -= 1
        blobAccount.refer(blob.pointee.size, by: -1)
        if entries[slot].pointee.isPinned { unpin(blobSlot, list: blob.pointee.references > 0) }
        shareUnlinked(slot, blobSlot)
        guard blob.pointee.references == 0 else { return }
        let digest = blob.pointee.digest
        blobIndex.remove(blobSlot, Self.hash(digest)) { Self.hash(blobs[$0].pointee.digest) }
        blobOrder.remove(blobSlot, in: blobs)
        blobAccount.remove(blob.pointee.size, pinned: false)
        released.add(digest)
        freeBlobSlot(blobSlot)
    }

    func detachSibling(_ slot: UInt32) {
        let (before, after) = (entries[slot].pointee.siblingBefore, entries[slot].pointee.sibling)
        if before == noSlot {
            blobs.change(entries[slot].pointee.blob).pointee.firstEntry = after
        } else {
            entries.change(before).pointee.sibling = after
        }
        if after != noSlot { entries.change(after).pointee.siblingBefore = before }
    }
}

// What there is room for.
extension Tables {
    /// The bound that a line went beyond: these tables lack what the line says and must not be used.
    var exceeded: TableBound? { exceededSlots ?? names.exceeded }

    /// Whether there is room for one more entry with its blob, after some that are still to be entered, and for its names if
    /// they are new; `false` means that ``bound(beyond:_:needsEntry:needsBlob:)`` is to be asked.
    @inline(__always)
    func hasRoom(after pending: Int, isNamed: Bool) -> Bool {
        let used = Int(max(entries.count, blobs.count))
        return used &+ pending < bounds.slots && (isNamed || names.hasRoom(after: pending))
    }

    /// What keeps a key from being entered, if something does.
    func bound(beyond key: TileKey, _ packed: PackedKey?, needsEntry: Bool, needsBlob: Bool) -> TableBound? {
        if needsEntry, entries.count >= bounds.slots, freeEntry == noSlot { return .entries }
        if needsBlob, blobs.count >= bounds.slots, freeBlob == noSlot { return .blobs }
        return packed == nil ? names.bound(beyond: key) : nil
    }
}
