import CacheEngine

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
    return try await race.outcome {
        let work = Task { race.end(await Result { try await body() }) }
        race.whenOver { work.cancel() }
        let timer = Task {
            do { try await clock.sleep(limit) } catch { return }
            race.end(.failure(DeadlineError()))
        }
        race.whenOver { timer.cancel() }
    }
}

extension Result where Failure == any Error {
    fileprivate init(_ body: () async throws -> Success) async {
        do { self = .success(try await body()) } catch { self = .failure(error) }
    }
}
