package import TileStore

/// A clock that moves only when it is told to, or when somebody waits on it.
package final class ManualClock: Sendable {
    private let time: Locked<(seconds: Int64, nanoseconds: UInt64)>

    package init(seconds: Int64 = 1_700_000_000) { time = Locked((seconds, 1_000_000_000)) }

    /// The time of day.
    package var now: Timestamp { time.withLock { Timestamp(seconds: $0.seconds) } }
    /// The clock that never goes back.
    package var ticks: UInt64 { time.withLock { $0.nanoseconds } }

    /// Moves the time of day, back too; the other clock goes on by as much where that is forward.
    package func advance(seconds delta: Int64) {
        time.withLock {
            $0.seconds += delta
            if delta > 0 { $0.nanoseconds += UInt64(delta) * 1_000_000_000 }
        }
    }

    /// Moves the clock that never goes back.
    package func advance(nanoseconds delta: UInt64) { time.withLock { $0.nanoseconds += delta } }

    /// Moves both clocks by a millisecond, in which the time of day comes to the next second.
    package func strike() {
        time.withLock {
            $0.seconds += 1
            $0.nanoseconds += 1_000_000
        }
    }

    /// An environment on a file system, with this clock and seeded random bits.
    package func environment(
        _ files: any FileSystem, seed: UInt64 = 1, bootID: String? = "boot-1"
    ) -> StoreEnvironment {
        let random = Locked(SplitMix64(seed: seed))
        return StoreEnvironment(
            files: files, now: { self.now }, coarseTicks: { self.ticks }, ticks: { self.ticks },
            pause: { self.advance(nanoseconds: max($0, 1_000_000)) }, random: { random.withLock { $0.next() } },
            bootID: bootID, background: false, spread: { count, body in for part in 0..<count { body(part) } })
    }
}
