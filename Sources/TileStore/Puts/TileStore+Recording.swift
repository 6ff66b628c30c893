// Under the lock.
extension TileStore {
    /// Carries out puts in their order: publishes blobs, appends records, unlinks what nothing refers to any more.
    func record(
        _ batches: some Collection<UnsafeMutableBufferPointer<PutRequest>>, _ ledger: Ledger
    ) throws {
        // Fewer than that are in any batch. Puts never get there; a manifest that somebody forged may.
        guard ledger.glance.nextSequence < Tables.recencyEnd - 1 << 32 else {
            throw StoreError(
                .damaged,
                "\(files.location)/manifest has used up its recency numbers: nothing can be stored any more; export what is "
                    + "to be kept, and remove the folder")
        }
        try flushIfEvictionIsNear(batches, ledger)
        // What other processes' records left without entries: before any of it is put in place again. Who wrote these may have
        // died before they were synced.
        if isDurable, ledger.glance.hasReleased { try ledger.syncLines() }
        try unlinkReleased(ledger)
        let pending = ledger.pending
        let isAlone = batches.count == 1 && batches.allSatisfy { $0.count == 1 }
        var hasPlaced = false
        defer { if hasPlaced { removeUnpublished(batches, ledger) } }
        for requests in batches {
            var next = 0
            var looked = 0
            while next < requests.count {
                if next >= looked, requests.count - next >= Self.fewestTogether {
                    looked = min(next + Self.mostTogether, requests.count)
                    do {
                        if try placeAhead(requests, next..<looked, pending, ledger) { hasPlaced = true }
                    } catch {
                        try settle(pending, ledger)
                        throw error
                    }
                }
                var halt = Halt.none
                // In slices: who changes the tables for a reader's sake waits meanwhile.
                tables.read { t, _ in
                    let end = min(next + 64, requests.count)
                    while next < end, halt == .none {
                        guard let request = requests.baseAddress.map({ $0 + next }) else { return }
                        halt = decide(request, isAlone: isAlone, t, pending, ledger)
                        if halt == .none { next += 1 }
                    }
                }
                switch halt {
                case .none: if pending.lines.count > 1 << 18 { try settle(pending, ledger) }
                case .settle: try settle(pending, ledger)
                case .refuse(let bound):
                    try settle(pending, ledger, isGivenUp: true)
                    throw bound.error(
                        storing: "\(requests[next].key)", in: files.location, environment.bounds)
                case .publish:
                    do { try publish(&requests[next], pending, ledger) } catch {
                        try settle(pending, ledger, isGivenUp: true)
                        throw error
                    }
                }
            }
        }
        try settle(pending, ledger)
    }

    /// What keeps a request from being decided on.
    private enum Halt: Equatable {
        case none, settle, publish
        /// Its names, its entry or its blob cannot be numbered.
        case refuse(TableBound)
    }

    @inline(__always)
    private func decide(
        _ request: UnsafeMutablePointer<PutRequest>, isAlone: Bool, _ t: Tables, _ pending: PendingRecords,
        _ ledger: Ledger
    ) -> Halt {
        if !isAlone, !request.pointee.isNoted {
            // Equal keys have equal marks; that others may have them too only costs an early append.
            guard pending.insert(request.pointee.key.mark) else { return .settle }
            request.pointee.isNoted = true
        }
        let packed = t.packed(request.pointee.key, &ledger.names)
        let slot = packed.flatMap { t.find($0) }
        let digest = request.pointee.digest
        let isOld =
            slot.map { slot in
                let record = t.entries[slot]
                let date = t.details.date(record.pointee.details)
                return date != Timestamp.absent
                    && request.pointee.metadata.isOlder(thanDate: date, storedAt: record.pointee.storedAt)
            } ?? false
        let (key, size) = (request.pointee.key, request.pointee.size)
        let exceedsWhole = t.limits.capacity.map { t.allocated(size) > $0 } ?? false
        let exceeds = exceedsWhole || t.exceedsShare(key, size: size)
        let isTooLarge = digest != nil && exceeds && !t.isPinned(key)
        var isNew = false
        if !isOld, !isTooLarge, !t.hasRoom(after: pending.requests.count, isNamed: packed != nil) {
            // What is pending is not in the tables yet: only without it is it certain what there is room for.
            if !pending.requests.isEmpty { return .settle }
            let needsBlob = digest.map { t.find($0) == nil } ?? false
            let bound = t.bound(beyond: request.pointee.key, packed, needsEntry: slot == nil, needsBlob: needsBlob)
            if let bound { return .refuse(bound) }
        }
        if !isOld, !isTooLarge, let digest, pending.published.isEmpty || !pending.published.contains(digest) {
            let live = t.find(digest)
            isNew = live == nil
            if isNew || request.pointee.staged != nil || request.pointee.looksNew { return .publish }
            if ledger.unrecorded.mayLack(digest) { return .publish }
            if isDurable, let live, t.mayBeUnsynced(live) { return .publish }
        }
        pending.requests.append(request)
        if isOld {
            request.pointee.outcome = .olderThanStored
        } else if isTooLarge {
            if slot != nil { pending.lines.gone(CollectionOfOne(request.pointee.key)) }
            request.pointee.outcome = exceedsWhole ? .largerThanCapacity : .largerThanSourceCapacity
        } else {
            guard
                let set = pending.sets.number(
                    for: request.pointee.metadata.response, t, ledger, &pending.lines)
            else {
                pending.requests.removeLast()
                return .refuse(.sets)
            }
            pending.recency = max(pending.recency &+ 1, t.nextSequence)
            pending.add(request, packed, set: set)
            // A blob that was put in place for this request is new to the tables.
            let newBlob = digest.map { request.pointee.isPublisher && t.find($0) == nil } ?? false
            request.pointee.outcome = .stored(blob: digest, newBlob: newBlob)
        }
        return .none
    }

    /// - Parameter isGivenUp: Whether the batch ends here, by an error of another request.
    func settle(_ pending: PendingRecords, _ ledger: Ledger, isGivenUp: Bool = false) throws {
        defer { pending.removeAll() }
        do {
            if pending.lines.count > 0 { try appendRecords(pending.lines, knowing: pending, ledger) }
        } catch {
            // Whole lines that got through stand; blobs that were published for the others must go again.
            try unlinkUnnamed(pending.published, ledger)
            throw error
        }
        for request in pending.requests { request.pointee.isSettled = true }
        // What was published for records that are not written now is named by none.
        if isGivenUp { try unlinkUnnamed(pending.published, ledger) }
    }

    /// Unlinks those of some blobs that no entry names.
    ///
    /// Under the lock.
    func unlinkUnnamed(_ published: some Collection<BlobDigest>, _ ledger: Ledger) throws {
        guard !published.isEmpty, let folder = try ledger.confirmFolder() else { return }
        try unlink(tables.read { t, _ in t.unnamed(published) }, folder)
    }

    /// Unlinks blobs, and forgets their bytes.
    func unlink(_ released: ReleasedBlobs, _ folder: borrowing FolderHold) throws {
        for digest in released.digests { memory.remove(digest) }
        blobs.shards.lookAgainIfDue(at: environment.coarseTicks())
        try blobs.unlink(released, folder)
    }

    func allocated(_ size: Int) -> Int { (size + files.blockSize - 1) / files.blockSize * files.blockSize }

    /// Appends records and unlinks the blobs whose count they brought to 0.
    ///
    /// - Parameter known: Whose lines they are, if some of them need not be read back.
    func appendRecords(
        _ lines: borrowing LineBuffer, knowing known: PendingRecords? = nil, _ ledger: Ledger
    ) throws {
        defer { if ledger.glance.hasReleased { forgetReleased(ledger) } }
        do throws(AppendFailure) { try ledger.append(lines, knowing: known, .live(tables)) } catch {
            // Whole lines that got through stand, so the blobs that they released go too, unless these lines may not be on the
            // disk. What stays behind is a file that nothing counts, as after a crash; the failed append is what the caller has
            // to know.
            if !isDurable { _ = try? unlinkReleased(ledger) }
            throw error
        }
        // They stand, whatever becomes of the files that they replace.
        if let known { for request in known.requests { request.pointee.isSettled = true } }
        try unlinkReleased(ledger)
    }

    func forgetReleased(_ ledger: Ledger) {
        tables.write { $0.released.forget() }
        ledger.glance.tookReleased()
    }

    /// Forgets blobs whose last entry other processes have removed: they unlink them.
    ///
    /// A process that only reads would keep their digests for ever.
    func forgetBlobsOfOthers(_ ledger: Ledger) {
        ledger.glance.tookReleased()
        for digest in tables.write({ $0.takeReleased() }).digests {
            memory.remove(digest)
            blobs.forget(digest)
        }
    }

    /// Unlinks blobs that nothing refers to any more.
    ///
    /// Under the lock, after the record.
    func unlinkReleased(_ ledger: Ledger) throws {
        guard ledger.glance.hasReleased else { return }
        ledger.glance.tookReleased()
        let gone = tables.write { $0.takeReleased() }
        // In a folder that has taken this one's place the same names may mean tiles that are in use.
        guard !gone.digests.isEmpty, let folder = try ledger.confirmFolder() else { return }
        try unlink(gone, folder)
    }
}

extension TileKey {
    /// A number that equal keys share and that others hardly ever have.
    var mark: UInt64 {
        guard let tile else { return UInt64(bitPattern: Int64(hashValue)) }
        let place = UInt64(tile.z) << 56 | UInt64(tile.x) << 28 | UInt64(tile.y)
        let kind = UInt64(bitPattern: Int64(source.description.hashValue)) &+ UInt64(tile.scale) &* 0x9E37_79B9
        return place &* 0x9FB2_1C65_1E98_DF25 ^ kind ^ UInt64(tile.format?.utf8.first ?? 0) << 32
    }
}
