package import HTTPCaching
package import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The time of day as one event loop sees it, with the `Date` field's text made once a second.
///
/// Belongs to its event loop and is used on it alone.
package final class LoopTime {
    private let clock: @Sendable () -> HTTPDate
    private var second = HTTPDate(seconds: .min)
    private var field = ByteBuffer()

    package init(clock: @escaping @Sendable () -> HTTPDate) { self.clock = clock }

    /// The time of day.
    package var now: HTTPDate { clock() }

    /// The time of day so many nanoseconds ago, to the nearest second before now.
    ///
    /// The clock shows whole seconds: what took milliseconds must not look a second old because the clock ticked meanwhile.
    package func ago(nanoseconds: UInt64) -> HTTPDate {
        now.adding(seconds: -Int64(clamping: (nanoseconds &+ 500_000_000) / 1_000_000_000))
    }

    /// The time of day as the `Date` field has it.
    package var date: String { clock().description }

    /// Writes `Date: …` with its line end.
    package func writeDate(into buffer: inout ByteBuffer) {
        let now = clock()
        if now != second {
            second = now
            field.clear()
            field.writeString("Date: \(now)\r\n")
        }
        buffer.writeImmutableBuffer(field)
    }

    /// The system's clock.
    package static let system: @Sendable () -> HTTPDate = {
        var time = timespec()
        #if canImport(Darwin)
        clock_gettime(CLOCK_REALTIME, &time)
        #else
        clock_gettime(CLOCK_REALTIME_COARSE, &time)
        #endif
        return HTTPDate(seconds: Int64(time.tv_sec))
    }
}
