import TileStore

/// One piece of work for each key at a time, however many ask for it.
///
/// Who asks for what is under way already waits for the same outcome. A waiter that is cancelled leaves without
/// disturbing the others; when the last one has left, the work itself is cancelled, unless it was started to run in the
/// background.
final class SingleFlight<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    private struct Flight {
        var number: UInt64
        var ticket: FetchTicket
        var isKept: Bool
        var task: Task<Void, Never>?
        var isAbandoned = false
        var waiters: [UInt64: CheckedContinuation<Value, any Error>] = [:]
    }

    private struct State {
        var flights: [Key: Flight] = [:]
        var last: UInt64 = 0
    }

    private let state = Locked(State())

    /// How many are under way.
    var count: Int { state.withLock { $0.flights.count } }

    /// Waits for the outcome of the work on a key; starts it if nobody has.
    ///
    /// - Throws: What the work throws; `CancellationError` if the task is cancelled.
    func value(
        for key: Key, priority: FetchPriority,
        work: @escaping @Sendable (FetchTicket) async throws -> Value
    ) async throws -> Value {
        let waiter = state.withLock { state -> UInt64 in
            state.last += 1
            return state.last
        }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                if Task.isCancelled { return continuation.resume(throwing: CancellationError()) }
                join(key, priority, isKept: false, work) { $0.waiters[waiter] = continuation }
            }
        } onCancel: {
            leave(key, waiter)
        }
    }

    /// Starts the work on a key in the background, unless it is under way.
    func start(
        _ key: Key, priority: FetchPriority, work: @escaping @Sendable (FetchTicket) async throws -> Value
    ) {
        join(key, priority, isKept: true, work) { _ in }
    }

    /// Cancels all work, as when the cache is closed.
    func cancelAll() {
        let tasks = state.withLock { $0.flights.values.compactMap(\.task) }
        for task in tasks { task.cancel() }
    }

    private func join(
        _ key: Key, _ priority: FetchPriority, isKept: Bool,
        _ work: @escaping @Sendable (FetchTicket) async throws -> Value, _ enter: (inout Flight) -> Void
    ) {
        var joined: FetchTicket?
        let begun = state.withLock { state -> (UInt64, FetchTicket)? in
            if state.flights[key] != nil {
                state.flights[key].map { joined = $0.ticket }
                enter(&state.flights[key, default: Flight(number: 0, ticket: FetchTicket(priority), isKept: false)])
                if isKept { state.flights[key]?.isKept = true }
                state.flights[key]?.isAbandoned = false
                return nil
            }
            state.last += 1
            var flight = Flight(number: state.last, ticket: FetchTicket(priority), isKept: isKept)
            enter(&flight)
            state.flights[key] = flight
            return (flight.number, flight.ticket)
        }
        joined?.raise(to: priority)
        guard let (number, ticket) = begun else { return }
        let task = Task(priority: priority == .visible ? .userInitiated : .utility) {
            let outcome: Result<Value, any Error>
            do { outcome = .success(try await work(ticket)) } catch { outcome = .failure(error) }
            self.land(key, number, outcome)
        }
        // The last waiter may have left before there was a task to cancel.
        let isAbandoned = state.withLock { state -> Bool in
            guard state.flights[key]?.number == number else { return false }
            state.flights[key]?.task = task
            guard state.flights[key]?.isAbandoned == true else { return false }
            state.flights[key] = nil
            return true
        }
        if isAbandoned { task.cancel() }
    }

    private func leave(_ key: Key, _ waiter: UInt64) {
        var task: Task<Void, Never>?
        let continuation = state.withLock { state -> CheckedContinuation<Value, any Error>? in
            guard let continuation = state.flights[key]?.waiters.removeValue(forKey: waiter) else { return nil }
            if let flight = state.flights[key], flight.waiters.isEmpty, !flight.isKept {
                // Whoever asks from now on starts afresh instead of joining work that is being given up.
                task = flight.task
                if task == nil { state.flights[key]?.isAbandoned = true } else { state.flights[key] = nil }
            }
            return continuation
        }
        task?.cancel()
        continuation?.resume(throwing: CancellationError())
    }

    private func land(_ key: Key, _ number: UInt64, _ outcome: Result<Value, any Error>) {
        let waiters = state.withLock { state -> [CheckedContinuation<Value, any Error>] in
            guard let flight = state.flights[key], flight.number == number else { return [] }
            state.flights[key] = nil
            return Array(flight.waiters.values)
        }
        for waiter in waiters { waiter.resume(with: outcome) }
    }
}
