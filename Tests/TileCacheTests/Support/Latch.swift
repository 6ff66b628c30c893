import TileStore

/// A door that stays shut until a test opens it; whoever arrives before waits, and leaves when cancelled.
final class Latch: Sendable {
    private struct State {
        var isOpen = false
        var arrivals = 0
        var last: UInt64 = 0
        var waiting: [UInt64: CheckedContinuation<Void, any Error>] = [:]
    }

    private let state = Locked(State())

    /// How many have come to the door so far.
    var arrivals: Int { state.withLock { $0.arrivals } }
    /// How many wait at it now.
    var waiting: Int { state.withLock { $0.waiting.count } }

    func pass() async throws {
        let number = state.withLock { state -> UInt64 in
            state.last += 1
            state.arrivals += 1
            return state.last
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let outcome = state.withLock { state -> Result<Void, any Error>? in
                    if Task.isCancelled { return .failure(CancellationError()) }
                    if state.isOpen { return .success(()) }
                    state.waiting[number] = continuation
                    return nil
                }
                if let outcome { continuation.resume(with: outcome) }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(throwing: CancellationError())
        }
    }

    func open() {
        let waiting = state.withLock { state in
            state.isOpen = true
            defer { state.waiting = [:] }
            return Array(state.waiting.values)
        }
        for continuation in waiting { continuation.resume() }
    }

    /// Shuts the door again for those who come from now on.
    func shut() { state.withLock { $0.isOpen = false } }
}

/// Gives way to other tasks until something holds.
///
/// Bounded by the suite's time limit. Nothing sleeps: as soon as it holds, the test goes on.
func until(_ holds: () throws -> Bool) async rethrows {
    while try !holds() { await Task.yield() }
}
