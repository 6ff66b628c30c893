import TileStore

/// One piece of work for each key at a time, however many ask for it: the way of tasks into ``Flights``.
///
/// All who ask follow the flight, and the work leads it. Who asks for what is under way already waits for the same outcome. A
/// waiter that is cancelled leaves without disturbing the others; when the last one has left, the work itself is cancelled,
/// unless it was started to run in the background.
package final class SingleFlight<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    private typealias Work = Flights<Key, Result<Value, any Error>>

    private let flights = Work()

    package init() {}

    /// Whether nothing new is begun any more.
    package var isClosed: Bool { flights.isClosed }
    /// How many are under way.
    package var count: Int { flights.count }
    /// How many wait for a key.
    package func waiters(for key: Key) -> Int { flights.followers(of: key) }

    /// Waits for the outcome of the work on a key; starts it if nobody has.
    ///
    /// - Parameter terms: What the asker allows the work, also where somebody else has started it.
    /// - Throws: What the work throws; `CancellationError` if the task is cancelled.
    package func value(
        for key: Key, priority: FetchPriority, terms: FetchTerms? = nil,
        work: @escaping @Sendable (FetchTicket) async throws -> Value
    ) async throws -> Value {
        let race = Race<Value>()
        return try await race.outcome {
            guard !Task.isCancelled,
                let place = flights.follow(key, priority, terms, hear: { race.end($0) })
            else {
                race.end(.failure(CancellationError()))
                return
            }
            race.whenOver { [flights] in flights.leave(place.seat) }
            if let ticket = place.leads { begin(ticket, priority, work) }
        }
    }

    /// Starts the work on a key in the background, unless it is under way.
    package func start(
        _ key: Key, priority: FetchPriority,
        work: @escaping @Sendable (FetchTicket) async throws -> Value
    ) {
        if let ticket = flights.keep(key, priority) { begin(ticket, priority, work) }
    }

    /// Cancels all work for good, as when the cache is closed: who waits is sent away at once, whatever the work makes of
    /// being cancelled, and nothing is started any more.
    package func close() { flights.close(.failure(CancellationError())) }

    private func begin(
        _ ticket: Work.Ticket, _ priority: FetchPriority,
        _ work: @escaping @Sendable (FetchTicket) async throws -> Value
    ) {
        let task = Task(priority: priority == .visible ? .userInitiated : .utility) { [flights] in
            let outcome: Result<Value, any Error>
            do { outcome = .success(try await work(ticket.urgency)) } catch { outcome = .failure(error) }
            flights.land(ticket, outcome)
        }
        // Whoever asks from then on starts afresh instead of joining work that is being given up.
        let giveUp: @Sendable () -> Void = { [flights] in
            task.cancel()
            flights.land(ticket, .failure(CancellationError()))
        }
        // The last waiter may have left before there was a task to cancel.
        if !flights.leaderLeft(ticket, deserted: giveUp) { giveUp() }
    }
}
