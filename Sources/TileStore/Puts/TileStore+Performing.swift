// Puts of several callers, in one hold of the lock.
extension TileStore {
    /// Has requests carried out: by this thread together with those that wait, or by the thread that is at it.
    ///
    /// - Returns: Why some were not.
    func submit(_ requests: UnsafeMutableBufferPointer<PutRequest>) -> (any Error)? {
        queue.submit(
            requests, alone: { perform(CollectionOfOne($0), $1) }, together: { performEach($0, $1) })
    }

    /// Carries out the batches of several callers.
    ///
    /// A failure may be of one batch alone: the others are then carried out by themselves, and have their own.
    private func performEach(
        _ batches: [UnsafeMutableBufferPointer<PutRequest>], _ ledger: Ledger
    ) -> [(any Error)?] {
        let failure = perform(batches, ledger)
        let isEverybodys = [.locked, .closed, .readOnly].contains((failure as? StoreError)?.code)
        return batches.map { requests in
            if requests.areSettled { return nil }
            guard batches.count > 1, failure != nil, !isEverybodys,
                requests.allSatisfy({ !$0.isSettled && !$0.isPublisher })
            else { return failure }
            // What had been placed for them was taken back.
            for i in requests.indices {
                requests[i].isNoted = false
                requests[i].isPlaced = false
            }
            return perform(CollectionOfOne(requests), ledger)
        }
    }

    /// What sources hold too much, before puts do anything.
    private func excess(_ glance: Glance) -> FoundExcess {
        (glance.shareRoom ?? 0) < 0 ? tables.read { t, _ in FoundExcess(of: t) } : FoundExcess()
    }

    /// Evicts until the limits are kept.
    ///
    /// What sources held too much before is left to be evicted in the background where that takes long, so that whoever stores a tile
    /// does not pay for what others have stored. Never left is what the puts have added: to a source beyond its capacity or what it
    /// held, or to the cache.
    private func evict(_ evictor: inout Evictor, afterFinding found: FoundExcess, _ ledger: Ledger) throws {
        guard !evictor.isDone else { return }
        let end = environment.ticks() &+ Self.patienceNanoseconds
        // Puts of this process wait for this one; those of others need not.
        var work = beginLongWork()
        while !evictor.isDone {
            if found.isThere, let maintenance, evictor.isAtSources, environment.ticks() > end,
                tables.read({ t, _ in t.blobAccount.allocatedUnpinned <= found.total && !evictor.owesSources(t) })
            {
                maintenance.scheduleEviction(evictor.leavingSources())
            } else {
                work.letOthersIn()
                try hold(ledger) { evictor = try evict(evictor, $0) }
            }
        }
    }

    /// So long a put evicts what others have left.
    private static var patienceNanoseconds: UInt64 { 50_000_000 }

    /// Carries out requests, and evicts what has become too much.
    func perform(
        _ batches: some Collection<UnsafeMutableBufferPointer<PutRequest>>, _ ledger: Ledger
    ) -> (any Error)? {
        var failure: (any Error)?
        do {
            // Where blobs are to be put in place it must be certain which folder that is.
            var appendsOnly = true
            for requests in batches where requests.bringBlobs { appendsOnly = false }
            var evictor = Evictor()
            var found = FoundExcess()
            do {
                try hold(ledger, appendsOnly: appendsOnly) { ledger in
                    found = excess(ledger.glance)
                    try record(batches, ledger)
                    if ledger.glance.exceedsLimits { evictor = try evictToLimits(ledger, since: found) }
                }
            } catch {
                failure = error
                // Those before the one that failed are stored, and records of an append that failed may stand: they count.
                let code = (error as? StoreError)?.code
                if ledger.glance.exceedsLimits, code != .locked, code != .closed, code != .readOnly {
                    evictor = try hold(ledger) { try evictToLimits($0, since: found) }
                }
            }
            try evict(&evictor, afterFinding: found, ledger)
            if isCompactionDue(ledger) {
                maintenance?.scheduleCompaction()
            } else if isImageDue(ledger) {
                maintenance?.scheduleImage()
            }
            return failure
        } catch { return failure ?? error }
    }
}
