import TileStore

/// What ``withDeadline(_:_:_:)`` throws when the time is over.
struct DeadlineError: Error {}

/// Runs a body for at most so long.
///
/// When the time is over, or the caller's task is cancelled, the body is cancelled and not waited for: a body that does not
/// heed that runs on alone.
/// - Throws: What the body throws; ``DeadlineError``; `CancellationError`.
func withDeadline<R: Sendable>(
    _ limit: Duration, _ clock: CacheClock, _ body: @escaping @Sendable () async throws -> R
) async throws -> R {
    let race = Race<R>()
    return try await withTaskCancellationHandler {
        try await withCheckedThrowingContinuation { continuation in
            race.begin(continuation)
            race.add(
                Task {
                    do { race.end(.success(try await body())) } catch { race.end(.failure(error)) }
                })
            race.add(
                Task {
                    do { try await clock.sleep(limit) } catch { return }
                    race.end(.failure(DeadlineError()))
                })
        }
    } onCancel: {
        race.end(.failure(CancellationError()))
    }
}

/// The first outcome counts; then the tasks are cancelled.
private final class Race<R: Sendable>: Sendable {
    private struct State {
        var continuation: CheckedContinuation<R, any Error>?
        var outcome: Result<R, any Error>?
        var tasks: [Task<Void, Never>] = []
    }

    private let state = Locked(State())

    func begin(_ continuation: CheckedContinuation<R, any Error>) {
        // The caller may have been cancelled already.
        let outcome = state.withLock { state -> Result<R, any Error>? in
            if state.outcome == nil { state.continuation = continuation }
            return state.outcome
        }
        if let outcome { continuation.resume(with: outcome) }
    }

    func add(_ task: Task<Void, Never>) {
        let isOver = state.withLock { state -> Bool in
            if state.outcome == nil { state.tasks.append(task) }
            return state.outcome != nil
        }
        if isOver { task.cancel() }
    }

    func end(_ outcome: Result<R, any Error>) {
        let before = state.withLock { state -> State in
            let before = state
            if before.outcome == nil { state = State(outcome: outcome) }
            return before
        }
        guard before.outcome == nil else { return }
        before.continuation?.resume(with: outcome)
        for task in before.tasks { task.cancel() }
    }
}
