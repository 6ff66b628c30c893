/// Writers waiting for the lock; whoever comes first carries out the batch of all.
struct WriterQueue {
    var waiting: [PutBatch] = []
    var isLed = false
}

/// Requests that one thread waits for together.
final class PutBatch: @unchecked Sendable {
    // Everything is written by the thread that made the batch until it queues it, and by the leader afterwards, until it
    // is done; the queue's lock orders the two. The requests are memory of the waiting thread's.
    let requests: UnsafeMutableBufferPointer<PutRequest>
    var isDone = false
    /// Why those that are not settled are not.
    var failure: (any Error)?

    init(_ requests: UnsafeMutableBufferPointer<PutRequest>) { self.requests = requests }
}

extension TileStore {
    /// Has requests carried out: by this thread together with those that wait, or by the thread that is at it.
    ///
    /// - Returns: Why some were not.
    func submit(_ requests: UnsafeMutableBufferPointer<PutRequest>) -> (any Error)? {
        // Mostly nobody else is at it, and then there is nothing to wait for and nobody to wake.
        if queue.withLock({ !$0.isLed && $0.waiting.isEmpty }) {
            let batch = CollectionOfOne(requests)
            if let failure = commit.tryWithLock({ ledger -> (any Error)? in perform(batch, ledger) }) {
                return failure
            }
        }
        let batch = PutBatch(requests)
        queue.withLock { $0.waiting.append(batch) }
        while true {
            let leads = queue.wait { queue -> Bool? in
                if batch.isDone { return false }
                guard !queue.isLed else { return nil }
                queue.isLed = true
                return true
            }
            guard leads else { return batch.failure }
            commit.withLock { ledger in
                let batches = queue.withLock { queue in
                    defer { queue.waiting = [] }
                    return queue.waiting
                }
                let failure = perform(batches.map(\.requests), ledger)
                // A failure may be of one batch alone: the others are carried out by themselves, and have their own.
                let isEverybodys = [.locked, .closed, .readOnly].contains((failure as? StoreError)?.code)
                for batch in batches where !batch.requests.allSatisfy(\.isSettled) {
                    batch.failure = failure
                    guard batches.count > 1, failure != nil, !isEverybodys,
                        batch.requests.allSatisfy({ !$0.isSettled && !$0.isPublisher })
                    else { continue }
                    // What had been placed for them was taken back.
                    for i in batch.requests.indices {
                        batch.requests[i].isNoted = false
                        batch.requests[i].isPlaced = false
                    }
                    batch.failure = perform(CollectionOfOne(batch.requests), ledger)
                }
                queue.withLock { queue in
                    for batch in batches {
                        batch.isDone = true
                    }
                    queue.isLed = false
                }
            }
            queue.wakeAll()
        }
    }

    /// Carries out requests, and evicts what has become too much.
    func perform(
        _ batches: some Collection<UnsafeMutableBufferPointer<PutRequest>>, _ ledger: Ledger
    ) -> (any Error)? {
        var failure: (any Error)?
        do {
            // Where blobs are to be put in place it must be certain which folder that is.
            let appendsOnly = batches.allSatisfy { $0.allSatisfy { $0.staged == nil && !$0.looksNew } }
            var evictor = Evictor()
            do {
                try hold(ledger, appendsOnly: appendsOnly) { ledger in
                    try record(batches, ledger)
                    if ledger.glance.exceedsLimits { evictor = try evictToLimits(ledger) }
                }
            } catch {
                failure = error
                // Those before the one that failed are stored, and records of an append that failed may stand: they count.
                let code = (error as? StoreError)?.code
                if ledger.glance.exceedsLimits, code != .locked, code != .closed, code != .readOnly {
                    evictor = try hold(ledger) { try evictToLimits($0) }
                }
            }
            while !evictor.isDone { try hold(ledger) { evictor = try evict(evictor, $0) } }
            if isCompactionDue(ledger) {
                maintenance?.scheduleCompaction()
            } else if isImageDue(ledger) {
                maintenance?.scheduleImage()
            }
            return failure
        } catch { return failure ?? error }
    }
}
