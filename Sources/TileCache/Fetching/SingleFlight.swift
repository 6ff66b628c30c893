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

        /// Changed in its place: a thousand waiters are not copied for each one more.
        mutating func admit(_ keeps: Bool, _ enter: (inout Flight) -> Bool) -> Bool {
            guard enter(&self) else { return false }
            isKept = isKept || keeps
            isAbandoned = false
            return true
        }
    }

    private struct State {
        var flights: [Key: Flight] = [:]
        var last: UInt64 = 0
        var isClosed = false
    }

    private enum Joined {
        case none
        case running(FetchTicket)
        case begun(UInt64, FetchTicket)
    }

    private let state = Locked(State())
    private let startTask: TaskStarter

    /// - Parameter startTask: Makes the tasks that the work runs in.
    init(startTask: @escaping TaskStarter = { Task(priority: $0, operation: $1) }) { self.startTask = startTask }

    /// Whether nothing new is begun any more.
    var isClosed: Bool { state.withLock { $0.isClosed } }

    /// How many are under way.
    var count: Int { state.withLock { $0.flights.count } }
    /// How many wait for a key.
    func waiters(for key: Key) -> Int { state.withLock { $0.flights[key]?.waiters.count ?? 0 } }

    /// Waits for the outcome of the work on a key; starts it if nobody has.
    ///
    /// - Parameter terms: What the asker allows the work, also where somebody else has started it.
    /// - Throws: What the work throws; `CancellationError` if the task is cancelled.
    func value(
        for key: Key, priority: FetchPriority, terms: FetchTerms? = nil,
        work: @escaping @Sendable (FetchTicket) async throws -> Value
    ) async throws -> Value {
        let waiter = state.withLock { state -> UInt64 in
            state.last += 1
            return state.last
        }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                // Whether the task is cancelled is asked in one step with entering: a cancellation before it is seen here,
                // one after it finds the waiter.
                let hasJoined = join(key, priority, isKept: false, work) { flight in
                    if Task.isCancelled { return false }
                    flight.waiters[waiter] = continuation
                    if let terms { flight.ticket.add(terms) }
                    return true
                }
                if !hasJoined { continuation.resume(throwing: CancellationError()) }
            }
        } onCancel: {
            leave(key, waiter)
        }
    }

    /// Starts the work on a key in the background, unless it is under way.
    func start(
        _ key: Key, priority: FetchPriority, work: @escaping @Sendable (FetchTicket) async throws -> Value
    ) {
        _ = join(key, priority, isKept: true, work) { _ in true }
    }

    /// Cancels all work for good, as when the cache is closed: who waits is sent away at once, whatever the work makes of
    /// being cancelled, and nothing is started any more.
    func close() {
        let flights = state.withLock { state in
            state.isClosed = true
            defer { state.flights = [:] }
            return Array(state.flights.values)
        }
        for flight in flights {
            flight.task?.cancel()
            for waiter in flight.waiters.values { waiter.resume(throwing: CancellationError()) }
        }
    }

    /// Enters the flight of a key, or begins one.
    ///
    /// - Returns: Whether it was entered.
    private func join(
        _ key: Key, _ priority: FetchPriority, isKept: Bool,
        _ work: @escaping @Sendable (FetchTicket) async throws -> Value, _ enter: (inout Flight) -> Bool
    ) -> Bool {
        let joined = state.withLock { state -> Joined in
            if state.isClosed { return .none }
            if let ticket = state.flights[key]?.ticket {
                return state.flights[key]?.admit(isKept, enter) == true ? .running(ticket) : .none
            }
            state.last += 1
            var flight = Flight(number: state.last, ticket: FetchTicket(priority), isKept: false)
            guard flight.admit(isKept, enter) else { return .none }
            state.flights[key] = flight
            return .begun(flight.number, flight.ticket)
        }
        switch joined {
        case .none: return false
        case .running(let ticket): ticket.raise(to: priority)
        case .begun(let number, let ticket): begin(key, number, ticket, priority, work)
        }
        return true
    }

    private func begin(
        _ key: Key, _ number: UInt64, _ ticket: FetchTicket, _ priority: FetchPriority,
        _ work: @escaping @Sendable (FetchTicket) async throws -> Value
    ) {
        let task = startTask(priority == .visible ? .userInitiated : .utility) {
            let outcome: Result<Value, any Error>
            do { outcome = .success(try await work(ticket)) } catch { outcome = .failure(error) }
            self.land(key, number, outcome)
        }
        // The last waiter may have left, or all have been sent away, before there was a task to cancel.
        let isAbandoned = state.withLock { state -> Bool in
            guard state.flights[key]?.number == number else { return state.isClosed }
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
