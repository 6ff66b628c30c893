#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Writing to a pipe that nobody reads any more fails with EPIPE from now on, instead of ending the process.
func ignoreBrokenPipes() { signal(SIGPIPE, SIG_IGN) }

/// Lets a long command stop between two steps and still report what it did.
///
/// Nothing is lost without it either: it only spares the user a leftover temporary file and gives a report.
enum Interrupt {
    // Written by the signal handler, read by the command's only thread; a sig_atomic_t is what C allows for that.
    private nonisolated(unsafe) static var flag: sig_atomic_t = 0

    /// Takes the first SIGINT or SIGTERM as a request; the second one ends the process at once.
    static func watch() {
        flag = 0
        for number in [SIGINT, SIGTERM] {
            signal(number) { number in
                Interrupt.flag = 1
                signal(number, SIG_DFL)
            }
        }
    }

    /// Whether the user wants the command to stop.
    static var isRequested: Bool { flag != 0 }

    /// Milliseconds of a clock that never goes back.
    static func milliseconds() -> Int {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        return now.milliseconds
    }

    /// Waits so long; `false` as soon as the user wants the command to stop.
    static func wait(milliseconds: Int) -> Bool {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        let end = now.milliseconds + milliseconds
        while !isRequested {
            clock_gettime(CLOCK_MONOTONIC, &now)
            let left = end - now.milliseconds
            if left <= 0 { return true }
            // A signal ends a sleep, but one that came just before it does not.
            usleep(UInt32(min(left, 100) * 1000))
        }
        return false
    }
}

extension timespec {
    fileprivate var milliseconds: Int { Int(tv_sec) * 1000 + Int(tv_nsec) / 1_000_000 }
}
