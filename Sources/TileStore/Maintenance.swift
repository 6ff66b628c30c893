import Dispatch

/// Work that the store does by itself: flushing uses, compaction, sweeping orphans.
///
/// One serial queue.
final class Maintenance: Sendable {
    private struct State {
        weak var store: TileStore?
        var stopped = false
        /// Whether nothing more is to be written.
        var isAbandoned = false
        var flushScheduled = false
        var compactionScheduled = false
        var imageScheduled = false
        var isSweepScheduled = false
        var isEvicting = false
        /// Whether more has become too much since it began.
        var evictsAgain = false
        /// Whether an eviction that failed waits to be tried again, and how many have failed one after the other.
        var awaitsEviction = false
        var failedEvictions = 0
        var nextShard: UInt8 = 0
    }
    /// Seconds between two folders that are swept: all 256 of them take four minutes of evictions.
    static let sweepInterval = 1
    private let state = Locked(State())
    private let queue = DispatchQueue(label: "tile-store-maintenance", qos: .utility)
    private static let mark = DispatchSpecificKey<ObjectIdentifier>()

    init() { queue.setSpecific(key: Self.mark, value: ObjectIdentifier(self)) }

    func attach(_ store: TileStore) { state.withLock { $0.store = store } }

    /// Stops scheduling, cancels what can be cancelled safely, and waits for the rest.
    ///
    /// - Parameter abandoning: Whether an overdue compaction is cancelled as well.
    func stop(abandoning: Bool = false) {
        state.withLock { ($0.stopped, $0.isAbandoned) = (true, abandoning) }
        // The last reference to the store may be given up by this queue's own work.
        if DispatchQueue.getSpecific(key: Self.mark) != ObjectIdentifier(self) { queue.sync {} }
    }

    var isStopped: Bool { state.withLock { $0.stopped } }

    /// Whether an overdue compaction has to end as well.
    var isAbandoned: Bool { state.withLock { $0.isAbandoned } }

    /// Waits until what has been begun is done.
    ///
    /// Not for this queue's own work.
    func waitForPending() { queue.sync {} }

    /// Whether uses will be written down before long.
    var isFlushScheduled: Bool { state.withLock { $0.flushScheduled } }

    /// Uses wait at most ten seconds before they are written down.
    func scheduleFlush() {
        let due = state.withLock { state in
            guard !state.flushScheduled, !state.stopped else { return false }
            state.flushScheduled = true
            return true
        }
        guard due else { return }
        let waits = DelayedCalls.tenSeconds.add { [self] in
            queue.async { [self] in
                let store = state.withLock { state in
                    state.flushScheduled = false
                    return state.stopped ? nil : state.store
                }
                // A flush that fails (full disk, lock) is tried again with the next uses; only their order is at stake.
                try? store?.flush()
                // Nothing depends on the image; the next flush tries again.
                _ = try? store?.writeImageIfDue()
            }
        }
        // Without a thread: the next first use asks again, and evictions and the close flush by themselves.
        if !waits { state.withLock { $0.flushScheduled = false } }
    }

    func scheduleCompaction() {
        let due = state.withLock { state in
            guard !state.compactionScheduled, !state.stopped else { return false }
            state.compactionScheduled = true
            return true
        }
        guard due else { return }
        queue.async { [self] in
            // A store that is being closed compacts if that is overdue.
            let (store, isStopped) = state.withLock { ($0.isAbandoned ? nil : $0.store, $0.stopped) }
            // A compaction that fails leaves journal and checkpoint as they are; the next append asks for it again.
            try? store?.compactIfDue()
            if !isStopped { _ = try? store?.writeImageIfDue() }
            state.withLock { $0.compactionScheduled = false }
        }
    }

    func scheduleImage() {
        let due = state.withLock { state in
            guard !state.imageScheduled, !state.stopped else { return false }
            state.imageScheduled = true
            return true
        }
        guard due else { return }
        queue.async { [self] in
            let store = state.withLock { $0.stopped ? nil : $0.store }
            // Nothing depends on the image; the next append asks for it again.
            _ = try? store?.writeImageIfDue()
            state.withLock { $0.imageScheduled = false }
        }
    }

    /// Evicts what sources hold beyond their capacities, where that takes longer than a put may.
    ///
    /// In steps, and between two of them it rests for as long as the last one took, so that puts get their turn and other work here
    /// does too. It goes on to the end of the excess that it was begun for; if it is asked for meanwhile, it looks again at its end.
    func scheduleEviction(_ evictor: Evictor) {
        let due = state.withLock { state in
            guard !state.isEvicting, !state.stopped else {
                state.evictsAgain = state.isEvicting
                return false
            }
            state.isEvicting = true
            return true
        }
        if due { queue.async { [self] in evict(evictor) } }
    }

    private func evict(_ evictor: Evictor) {
        let store = state.withLock { $0.stopped ? nil : $0.store }
        let begun = DispatchTime.now().uptimeNanoseconds
        guard let store else { return state.withLock { ($0.isEvicting, $0.evictsAgain) = (false, false) } }
        // What fails (a full disk, a lock that another process holds for long) is tried again.
        guard let left = try? store.evictOfSources(evictor) else { return awaitEviction() }
        state.withLock { $0.failedEvictions = 0 }
        if left.isDone {
            let again = state.withLock { state in
                defer { (state.isEvicting, state.evictsAgain) = (state.evictsAgain, false) }
                return state.evictsAgain
            }
            guard again else { return }
        }
        let next = left.isDone ? store.evictorOfSources : left
        let took = DispatchTime.now().uptimeNanoseconds &- begun
        let pause = Int(clamping: min(max(took, LongWork.rest), 1_000_000_000))
        queue.asyncAfter(deadline: .now() + .nanoseconds(pause)) { [self] in evict(next) }
    }

    /// Has an eviction that failed tried again: after 50 ms first, then after twice as long each time, a minute at most.
    ///
    /// A put that finds sources above their capacities meanwhile tries at once.
    private func awaitEviction() {
        let milliseconds = state.withLock { state -> Int? in
            (state.isEvicting, state.evictsAgain) = (false, false)
            guard !state.stopped, !state.awaitsEviction else { return nil }
            state.awaitsEviction = true
            state.failedEvictions += 1
            return min(60_000, 25 << min(state.failedEvictions, 12))
        }
        guard let milliseconds else { return }
        queue.asyncAfter(deadline: .now() + .milliseconds(milliseconds)) { [self] in
            let store = state.withLock { state in
                state.awaitsEviction = false
                return state.stopped ? nil : state.store
            }
            guard let evictor = store?.evictorOfSources, !evictor.isDone else { return }
            scheduleEviction(evictor)
        }
    }

    /// After a durable opening: syncs what relaxed stores have written.
    func scheduleSync() {
        queue.async { [self] in
            let store = state.withLock { $0.stopped ? nil : $0.store }
            // Until it is done, puts sync the blobs that they find; the close tries again.
            _ = try? store?.syncEverything()
        }
    }

    /// After an eviction: looks through one of the 256 folders of blobs for files that a crash left behind.
    ///
    /// Evictions come by the thousand and a folder holds thousands of names. So one folder is waited for at a time, at most
    /// one is swept in ``sweepInterval``, and whatever else is in the queue by then comes before it.
    func scheduleOrphanSweep() {
        let due = state.withLock { state in
            guard !state.isSweepScheduled, !state.stopped else { return false }
            state.isSweepScheduled = true
            return true
        }
        guard due else { return }
        queue.asyncAfter(deadline: .now() + .seconds(Self.sweepInterval)) { [self] in
            let (store, shard) = state.withLock { state in
                state.isSweepScheduled = false
                state.nextShard &+= 1
                return (state.stopped ? nil : state.store, state.nextShard)
            }
            // Orphans only cost room; what cannot be removed now is found by the next sweep.
            _ = try? store?.removeOrphans(inShard: shard)
        }
    }
}
