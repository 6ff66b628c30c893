#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Calls functions some time later, all with the same delay, on one thread for the whole process.
///
/// The thread starts with the first call and stays. Not a timer of Dispatch: on Linux the first one of a process needs
/// descriptors, and Dispatch ends the process where none is free.
final class DelayedCalls: Sendable {
    /// After ten seconds.
    static let tenSeconds = DelayedCalls(nanoseconds: 10_000_000_000)

    private struct State {
        var waiting: [(due: UInt64, call: @Sendable () -> Void)] = []
        var isRunning = false
    }
    private let state = Monitor(State())
    private let delay: UInt64

    init(nanoseconds: UInt64) { delay = nanoseconds }

    /// Has a function called when the delay is over.
    ///
    /// It has to be short: others wait behind it.
    /// - Returns: `false` if the system has no thread for it; then it is not called.
    func add(_ call: @escaping @Sendable () -> Void) -> Bool {
        let isTaken = state.withLock { state -> Bool in
            if !state.isRunning { state.isRunning = startThread { [self] in run() } }
            if state.isRunning { state.waiting.append((Self.now() + delay, call)) }
            return state.isRunning
        }
        state.wakeOne()
        return isTaken
    }

    private func run() {
        while true {
            // In the order in which they are due, since all wait equally long.
            let next = state.wait { $0.waiting.isEmpty ? nil : $0.waiting.removeFirst() }
            var now = Self.now()
            while now < next.due {
                let left = next.due - now
                var time = timespec(tv_sec: Int(left / 1_000_000_000), tv_nsec: Int(left % 1_000_000_000))
                nanosleep(&time, nil)
                now = Self.now()
            }
            next.call()
        }
    }

    private static func now() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}

private final class ThreadBody {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
}

/// Starts a thread that nobody waits for; `false` if the system has none to give.
private func startThread(_ run: @escaping @Sendable () -> Void) -> Bool {
    let body = Unmanaged.passRetained(ThreadBody(run))
    #if canImport(Glibc)
    var thread = pthread_t()
    #else
    var thread: pthread_t?
    #endif
    #if canImport(Darwin)
    let failure = pthread_create(
        &thread, nil,
        { argument in
            Unmanaged<ThreadBody>.fromOpaque(argument).takeRetainedValue().run()
            return nil
        }, body.toOpaque())
    #else
    let failure = pthread_create(
        &thread, nil,
        { argument in
            if let argument { Unmanaged<ThreadBody>.fromOpaque(argument).takeRetainedValue().run() }
            return nil
        }, body.toOpaque())
    #endif
    guard failure == 0 else {
        body.release()
        return false
    }
    #if canImport(Glibc)
    pthread_detach(thread)
    #else
    if let thread { pthread_detach(thread) }
    #endif
    return true
}
