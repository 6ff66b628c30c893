// Places for entries and blobs, the links between them, and what they count.
extension Tables {
    func addEntry(_ key: PackedKey) -> UInt32? {
        var slot = freeEntry
        if slot != noSlot {
            freeEntry = entries[slot].pointee.sibling
        } else {
            guard entries.count < bounds.slots, let fresh = entries.append() else {
                exceeded = .entries
                return nil
            }
            slot = fresh
        }
        var record = EntryRecord(key)
        record.flags = EntryRecord.live
        if isPinned(key) { record.flags |= EntryRecord.pinned }
        entries.change(slot).initialize(to: record)
        entryIndex.insert(slot, hash(key)) { hash(entries[$0].pointee.key) }
        entryCount += 1
        if !record.isPinned { unpinnedEntries += 1 }
        return slot
    }

    func forgetEntry(_ slot: UInt32, keepsName: Bool = false) {
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
        let freed = entries.change(slot)
        freed.pointee.flags = 0
        freed.pointee.sibling = freeEntry
        freeEntry = slot
    }

    @inline(__always)
    func releaseSet(_ slot: UInt32) { countSet(slot, by: -1) }

    func addBlob(_ digest: BlobDigest, _ size: UInt32) -> UInt32? {
        var slot = freeBlob
        if slot != noSlot {
            freeBlob = blobs[slot].pointee.after
        } else {
            guard blobs.count < bounds.slots, let fresh = blobs.append() else {
                exceeded = .blobs
                return nil
            }
            slot = fresh
        }
        blobs.change(slot).initialize(to: BlobRecord(digest: digest, size: size))
        blobIndex.insert(slot, Self.hash(digest)) { Self.hash(blobs[$0].pointee.digest) }
        blobCount += 1
        settle(blobBytes: Int(size), pinned: false)
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
        logicalBytes += Int(blob.pointee.size)
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

    func detachSibling(_ slot: UInt32) {
        let (before, after) = (entries[slot].pointee.siblingBefore, entries[slot].pointee.sibling)
        if before == noSlot {
            blobs.change(entries[slot].pointee.blob).pointee.firstEntry = after
        } else {
            entries.change(before).pointee.sibling = after
        }
        if after != noSlot { entries.change(after).pointee.siblingBefore = before }
    }

    /// Moves a blob's bytes on or off the accounts.
    func settle(blobBytes size: Int, pinned: Bool) {
        blobBytes += size
        let blocks = size < 0 ? -allocated(-size) : allocated(size)
        if pinned { allocatedPinned += blocks } else { allocatedUnpinned += blocks }
    }
}
