import CacheEngine
import TileStore

/// Spaces things out in time: the n-th may start n intervals after the first.
final class RateLimiter: Sendable {
    private let interval: UInt64
    private let next = Locked<UInt64>(0)
    private let clock: CacheClock

    /// - Returns: `nil` if there is no limit to keep.
    init?(perSecond: Double?, clock: CacheClock) {
        guard let perSecond, perSecond.isFinite, perSecond > 0 else { return nil }
        interval = UInt64(min(1e9 / perSecond, 3.6e12))
        self.clock = clock
    }

    /// Waits for one's turn.
    func wait() async throws {
        let now = clock.ticks()
        let turn = next.withLock { next -> UInt64 in
            let turn = max(next, now)
            next = turn &+ interval
            return turn
        }
        if turn > now { try await clock.sleep(.nanoseconds(Int64(clamping: turn - now))) }
    }
}
