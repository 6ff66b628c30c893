import CacheEngine

/// What happens to one state machine: put in by any thread, taken out in order by the one task that drives it.
struct Inbox<Event: Sendable>: Sendable {
    private let stream: AsyncStream<Event>
    private let entrance: AsyncStream<Event>.Continuation

    init() { (stream, entrance) = AsyncStream.makeStream() }

    /// Puts an event in; lost once the inbox is closed.
    func put(_ event: Event) { entrance.yield(event) }

    /// Lets the driver find its end, after what has been put in.
    func close() { entrance.finish() }

    /// For the driver: `next()` is `nil` at the end, and when its task has been cancelled.
    func makeIterator() -> AsyncStream<Event>.Iterator { stream.makeAsyncIterator() }
}

/// The machines that are being driven, so that closing the cache ends them.
final class Drivers: Sendable {
    private struct State {
        var ends: [UInt64: @Sendable () -> Void] = [:]
        var last: UInt64 = 0
        var isClosed = false
    }

    private let state = Locked(State())

    /// How many are being driven.
    var count: Int { state.withLock { $0.ends.count } }

    /// Notes one, with what ends it.
    ///
    /// - Returns: Its number, for ``isOver(_:)``, which must follow; `nil` if the cache is closed.
    func began(_ end: @escaping @Sendable () -> Void) -> UInt64? {
        state.withLock { state in
            guard !state.isClosed else { return nil }
            state.last += 1
            state.ends[state.last] = end
            return state.last
        }
    }

    func isOver(_ number: UInt64) { state.withLock { $0.ends[number] = nil } }

    /// Ends all that are being driven, and begins no more.
    func close() {
        let ends = state.withLock { state in
            state.isClosed = true
            return Array(state.ends.values)
        }
        for end in ends { end() }
    }
}
