import NIOCore
import TileStore

/// Requests to origins that others may wait for: one for each key, over all event loops.
final class Flights: Sendable {
    /// What became of a request that others waited for.
    enum Landing: Sendable {
        /// The answer is stored: look again.
        case stored
        /// The answer is of no use to others: go on alone.
        case useless
        /// Whoever asked is gone: one of those who wait should ask instead.
        case abandoned
        /// The answer could not be stored, and is shared with those who wait.
        case held(HeldAnswer)
        /// There was no answer, or no whole one: everybody asks for themselves.
        case failed
    }

    /// A request under way.
    private struct Flight {
        var number: UInt64
        var waiters: [@Sendable (Landing) -> Void] = []
        var isOpen = true
    }

    private struct State {
        var flights: [TileKey: Flight] = [:]
        var next: UInt64 = 0
        /// Hashes of keys, each in its place: those whose last answer was of no use to others.
        var useless = [Int?](repeating: nil, count: 4096)
    }

    /// The right, and the duty, to land a flight.
    struct Ticket: Sendable {
        let key: TileKey
        fileprivate let number: UInt64
    }

    private let state = Locked(State())

    /// Joins the flight for a key, or starts one.
    ///
    /// - Parameter landed: Called once, on any thread, if somebody else's flight was joined.
    /// - Returns: The ticket if the caller has to fly itself; `nil` if it waits.
    func join(_ key: TileKey, landed: @escaping @Sendable (Landing) -> Void) -> Ticket? {
        state.withLock { state in
            if state.flights[key]?.isOpen ?? false {
                state.flights[key]?.waiters.append(landed)
                return nil
            }
            return start(key, &state)
        }
    }

    /// Whether it is worth waiting for somebody else's answer: not where the last one was of no use to others.
    ///
    /// It remembers some thousands of keys; to forget one costs one round of waiting.
    func isWorthWaiting(_ key: TileKey) -> Bool {
        let hash = key.hashValue
        return state.withLock { $0.useless[Self.place(hash)] != hash }
    }

    /// Remembers whether the answer for a key was of use to others.
    func remember(_ key: TileKey, wasOfUse: Bool) {
        let hash = key.hashValue
        state.withLock { state in
            let place = Self.place(hash)
            if !wasOfUse {
                state.useless[place] = hash
            } else if state.useless[place] == hash {
                state.useless[place] = nil
            }
        }
    }

    private static func place(_ hash: Int) -> Int { Int(truncatingIfNeeded: UInt(bitPattern: hash) & 4095) }

    /// Starts a flight unless there is one.
    ///
    /// - Parameter isOpen: Whether others may join it.
    func startAlone(_ key: TileKey, isOpen: Bool) -> Ticket? {
        state.withLock { state in
            guard state.flights[key] == nil else { return nil }
            let ticket = start(key, &state)
            state.flights[key]?.isOpen = isOpen
            return ticket
        }
    }

    private func start(_ key: TileKey, _ state: inout State) -> Ticket {
        state.next += 1
        state.flights[key] = Flight(number: state.next)
        return Ticket(key: key, number: state.next)
    }

    /// Sends those who wait away, and lets nobody join any more; the flight goes on.
    func release(_ ticket: Ticket, _ landing: Landing) {
        let waiters = state.withLock { state -> [@Sendable (Landing) -> Void] in
            guard var flight = state.flights[ticket.key], flight.number == ticket.number else { return [] }
            let waiters = flight.waiters
            flight.waiters = []
            flight.isOpen = false
            state.flights[ticket.key] = flight
            return waiters
        }
        for waiter in waiters { waiter(landing) }
    }

    /// The flight is over.
    func land(_ ticket: Ticket, _ landing: Landing) {
        let waiters = state.withLock { state -> [@Sendable (Landing) -> Void] in
            guard let flight = state.flights[ticket.key], flight.number == ticket.number else { return [] }
            state.flights[ticket.key] = nil
            return flight.waiters
        }
        for waiter in waiters { waiter(landing) }
    }

    /// How many requests are under way that others may wait for.
    var count: Int { state.withLock { $0.flights.count } }
}
