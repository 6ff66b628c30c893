import NIOCore
import TileCache

/// Ends waits that last for longer than they may: one timer for all waits of an event loop.
///
/// Nearly all end by themselves within milliseconds, and a timer for each would cost more than the wait. A wait may last up to
/// a second longer where its end comes before that of another one. Belongs to its event loop.
final class WaitLimits: @unchecked Sendable {
    // Sendable so that the timer can come back to its loop; nothing is touched off the loop.

    private struct Wait {
        let end: UInt64
        let isOver: () -> Void
    }

    private let clock: CacheClock
    private let loop: any EventLoop
    private var waits: [UInt64: Wait] = [:]
    private var lastNumber: UInt64 = 0
    private var isTiming = false

    init(_ clock: CacheClock, loop: any EventLoop) {
        self.clock = clock
        self.loop = loop
    }

    /// Adds a wait; returns its number.
    ///
    /// - Parameters:
    ///   - end: When it is over, in the clock's ticks.
    ///   - isOver: Called then, unless it was removed before.
    func add(until end: UInt64, _ isOver: @escaping () -> Void) -> UInt64 {
        lastNumber += 1
        waits[lastNumber] = Wait(end: end, isOver: isOver)
        time()
        return lastNumber
    }

    /// Removes a wait that has ended by itself.
    func remove(_ number: UInt64) { waits[number] = nil }

    /// Sleeps until the first wait is over, a second at most: another one's end may come before.
    private func time() {
        guard !isTiming, let first = waits.values.map(\.end).min() else { return }
        isTiming = true
        let now = clock.ticks()
        let pause = Duration.nanoseconds(Int64(min(first > now ? first - now : 0, 1_000_000_000)))
        Task { [clock, loop] in
            // Nobody cancels it; a look too many does no harm.
            try? await clock.sleep(pause)
            loop.execute { self.look() }
        }
    }

    private func look() {
        isTiming = false
        let now = clock.ticks()
        let over = waits.filter { $0.value.end <= now }.sorted { $0.key < $1.key }
        for (number, _) in over { waits[number] = nil }
        for (_, wait) in over { wait.isOver() }
        time()
    }
}
