package import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Time and chance, so that tests can take their place.
package struct CacheClock: Sendable {
    /// The time of day.
    package var now: @Sendable () -> Timestamp
    /// Nanoseconds of a clock that never goes back.
    package var ticks: @Sendable () -> UInt64
    /// Waits; throws `CancellationError` when the task is cancelled.
    package var sleep: @Sendable (Duration) async throws -> Void
    /// 64 random bits.
    package var random: @Sendable () -> UInt64

    package init(
        now: @escaping @Sendable () -> Timestamp, ticks: @escaping @Sendable () -> UInt64,
        sleep: @escaping @Sendable (Duration) async throws -> Void, random: @escaping @Sendable () -> UInt64
    ) {
        self.now = now
        self.ticks = ticks
        self.sleep = sleep
        self.random = random
    }

    /// The system's clocks and random numbers.
    package static let system = CacheClock(
        now: {
            var time = timespec()
            clock_gettime(CLOCK_REALTIME, &time)
            return Timestamp(seconds: Int64(time.tv_sec))
        },
        ticks: {
            var time = timespec()
            clock_gettime(CLOCK_MONOTONIC, &time)
            return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
        },
        sleep: { try await Task.sleep(for: $0) },
        random: {
            var generator = SystemRandomNumberGenerator()
            return generator.next()
        })
}
