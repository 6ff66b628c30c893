import CacheEngine
import NIOCore
package import TileStore

/// The store's own figures, counted on a thread that may wait and kept for a while: counting costs a pass over all
/// entries, about 25 ms for a million.
package final class CacheFigures: Sendable {
    private struct State {
        var last: (figures: StoreStatistics, at: NIODeadline)?
        /// How long the figures hold.
        var pause = TimeAmount.seconds(2)
        var waiting: [@Sendable (StoreStatistics?) -> Void] = []
        var isCounting = false
    }
    private let store: TileStore
    private let threads = BlockingPool(threads: 1)
    private let state = Locked(State())

    package init(store: TileStore) { self.store = store }

    /// The figures, not older than a few seconds; `nil` if the store cannot give any.
    ///
    /// Calls back at once or from the counting thread.
    func get(_ body: @escaping @Sendable (StoreStatistics?) -> Void) {
        let now = NIODeadline.now()
        let (known, mustCount) = state.withLock { state -> (StoreStatistics?, Bool) in
            if let last = state.last, now - last.at < state.pause { return (last.figures, false) }
            state.waiting.append(body)
            defer { state.isCounting = true }
            return (nil, !state.isCounting)
        }
        if let known { body(known) }
        guard mustCount else { return }
        threads.submit {
            // Figures that cannot be had (the store is being closed) are left as they were; those who wait get them.
            let figures = try? self.store.statistics()
            let done = NIODeadline.now()
            let waiting = self.state.withLock { state in
                state.isCounting = false
                if let figures { state.last = (figures, done) }
                // At most a hundredth of the time goes into counting.
                state.pause = max(.seconds(2), (done - now) * 100)
                defer { state.waiting = [] }
                return state.waiting
            }
            for body in waiting { body(figures) }
        }
    }

    /// Ends the counting thread, or waits for it no longer than so.
    package func shutdown(within limit: Duration? = nil) async { await threads.finish(within: limit) }
}
