import TileStore

/// One outcome for one who waits: the first that comes counts.
///
/// An event loop or another thread may end it, and so may the waiting task's cancellation.
package final class Race<R: Sendable>: Sendable {
    private struct State {
        var continuation: CheckedContinuation<R, any Error>?
        var outcome: Result<R, any Error>?
        var whenOver: [@Sendable () -> Void] = []
    }

    private let state = Locked(State())

    package init() {}

    /// Waits for the outcome, after having begun what will bring it; the task's cancellation is one.
    package func outcome(of begin: () -> Void) async throws -> R {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                // The caller may have been cancelled already.
                let outcome = state.withLock { state -> Result<R, any Error>? in
                    if state.outcome == nil { state.continuation = continuation }
                    return state.outcome
                }
                if let outcome { return continuation.resume(with: outcome) }
                begin()
            }
        } onCancel: {
            end(.failure(CancellationError()))
        }
    }

    /// Has something done once it is over, be it now.
    package func whenOver(_ body: @escaping @Sendable () -> Void) {
        let isOver = state.withLock { state -> Bool in
            if state.outcome == nil { state.whenOver.append(body) }
            return state.outcome != nil
        }
        if isOver { body() }
    }

    /// Ends it; `false` if it was over.
    @discardableResult
    package func end(_ outcome: Result<R, any Error>) -> Bool {
        let before = state.withLock { state -> State in
            let before = state
            if before.outcome == nil { state = State(outcome: outcome) }
            return before
        }
        guard before.outcome == nil else { return false }
        before.continuation?.resume(with: outcome)
        for body in before.whenOver { body() }
        return true
    }
}
