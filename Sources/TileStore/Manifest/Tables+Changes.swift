import Dispatch

// What lines of the manifest do: entries come, are used and go, and blobs with them.
extension Tables {
    /// Begins with what a checkpoint's first line says.
    func beginLoading(_ generation: UInt64, _ header: CheckpointHeader) {
        loading = true
        nextSequence = max(1, header.sequence)
        sets.begin(generation, nextNumber: max(1, header.nextSet))
    }

    /// Ends loading: puts everything in the order of its recency and settles what is pinned.
    func finishLoading() {
        settleLoadedRegions()
        for (digest, recency) in loadedRecencies { if let slot = find(digest) { raiseBlob(slot, to: recency) } }
        loadedRecencies = [:]
        loading = false
        if entryAccount.count < 1 << 16 {
            orderEntries()
            orderBlobs()
        } else {
            // Either order has its own records and nothing else, and nobody knows these tables yet.
            nonisolated(unsafe) let tables = self
            DispatchQueue.concurrentPerform(iterations: 2) { i in
                if i == 0 { tables.orderEntries() } else { tables.orderBlobs() }
            }
        }
        released.forget()
    }

    private func orderEntries() { entryOrder = RecencyList(of: entries) { $0.isLive && !$0.isPinned } }

    private func orderBlobs() { blobOrder = RecencyList(of: blobs) { $0.isLive && $0.pins == 0 } }

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
        let record = entries.change(slot)
        let sameBlob = oldSlot != nil && record.pointee.blob == blobSlot
        if oldSlot != nil {
            if !sameBlob { unlinkFromBlob(slot) }
            details.remove(record.pointee.details)
            sets.count(record.pointee.set, by: -1)
        }
        record.pointee.details = details.insert(new.details)
        record.pointee.set = new.set
        sets.count(new.set, by: 1)
        record.pointee.storedAt = new.storedAt
        record.pointee.expires = new.expires
        record.pointee.lastUsed = new.lastUsed
        if !sameBlob { linkToBlob(slot, blobSlot) }
        use(slot, new.recency, at: new.lastUsed)
        putLines &+= 1
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
        let record = entries.change(slot)
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
        nextSequence = max(nextSequence, recency &+ 1)
        guard blobs[slot].pointee.recency < recency else { return }
        let blob = blobs.change(slot)
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
        let before = blobAccount.count
        unlinkFromBlob(slot)
        removedBlobs &+= before - blobAccount.count
        forgetEntry(slot)
    }

    /// Drops a blob with all its entries: they miss at once and are taken out later, in slices.
    func drop(_ digest: BlobDigest) {
        guard let slot = find(digest) else { return }
        let blob = blobs.change(slot)
        blobIndex.remove(slot, Self.hash(digest)) { Self.hash(blobs[$0].pointee.digest) }
        shareDropped(slot)
        blobAccount.remove(blob.pointee.size, pinned: blob.pointee.pins > 0)
        blobAccount.refer(blob.pointee.size, by: -Int(blob.pointee.references))
        blobOrder.remove(slot, in: blobs)
        removedBlobs &+= 1
        entryAccount.remove(
            Int(blob.pointee.references), unpinned: Int(blob.pointee.references - blob.pointee.pins))
        blob.pointee.flags = BlobRecord.dropped
        released.add(digest)
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
    func sweepEntry(_ slot: UInt32, keepsName: Bool = false) {
        detachSibling(slot)
        entries.change(slot).pointee.blob = noSlot
        // Already off the accounts: put it back before the ordinary way takes it off.
        entryAccount.add(pinned: entries[slot].pointee.isPinned)
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

    func expire(_ slot: UInt32, at time: UInt32) { entries.change(slot).pointee.expires = time }
}
