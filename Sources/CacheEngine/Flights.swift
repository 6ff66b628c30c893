package import TileStore

/// The fills that others may wait for: one for each key, over all event loops.
///
/// A transaction leads a fill or follows one. A follower is told what became of the fill by a closure of its own, once, on
/// any thread. When the one that the fill was begun for has left, the fill goes on for its followers; when the last of
/// them has left too, the fill is told that it is deserted.
package final class Flights: Sendable {
    /// What a follower is told.
    package enum News: Sendable {
        /// The answer is stored: look again.
        case stored
        /// The answer could not be stored, and is shared with those who wait.
        case held(HeldAnswer)
        /// The origin answered with an error of this status: what is stored may stand in (RFC 5861 §4); else ask alone.
        case error(status: Int)
        /// The answer is of no use to others, or there was none: ask alone, without joining again.
        case alone
        /// The fill was given up for reasons of its own: look again, and join again.
        case again
    }

    /// What became of the wish to join.
    package enum Joined: Sendable {
        /// The caller has to fetch by itself; with a ticket, if others may be told of it.
        case leads(Ticket?)
        /// The caller waits for somebody else's fill.
        case follows(Seat)
    }

    /// The right, and the duty, to land a flight.
    package struct Ticket: Sendable {
        /// What is being fetched.
        package let key: TileKey
        /// Whether others could join when it was given.
        package let isOpen: Bool
        fileprivate let number: UInt64
    }

    /// A follower's place.
    package struct Seat: Sendable {
        fileprivate let key: TileKey
        fileprivate let flight: UInt64
        fileprivate let number: UInt64
    }

    private struct Flight {
        var number: UInt64
        var followers: [UInt64: @Sendable (News) -> Void] = [:]
        var isOpen: Bool
        /// Called when the last follower leaves; set once the leader has left.
        var deserted: (@Sendable () -> Void)?
    }

    private struct State {
        var flights: [TileKey: Flight] = [:]
        var next: UInt64 = 0
        /// Hashes of keys, each in its place: those whose last answer was of no use to others.
        var useless = [Int?](repeating: nil, count: 4096)
    }

    private let state = Locked(State())

    package init() {}

    /// Joins the flight for a key, or starts one.
    ///
    /// Where the last answer was of no use to others it is not worth waiting: the caller leads a flight that nobody joins.
    /// - Parameter hear: Called once, on any thread, if somebody else's flight was joined.
    package func join(_ key: TileKey, hear: @escaping @Sendable (News) -> Void) -> Joined {
        let hash = key.hashValue
        return state.withLock { state in
            guard state.useless[Self.place(hash)] != hash else {
                guard state.flights[key] == nil else { return .leads(nil) }
                return .leads(start(key, isOpen: false, &state))
            }
            guard let flight = state.flights[key], flight.isOpen else {
                return .leads(start(key, isOpen: true, &state))
            }
            state.next += 1
            state.flights[key]?.followers[state.next] = hear
            return .follows(Seat(key: key, flight: flight.number, number: state.next))
        }
    }

    /// Starts a flight unless there is one for the key.
    ///
    /// - Parameter isOpen: Whether others may join it.
    package func start(_ key: TileKey, isOpen: Bool) -> Ticket? {
        state.withLock { state in
            state.flights[key] == nil ? start(key, isOpen: isOpen, &state) : nil
        }
    }

    private func start(_ key: TileKey, isOpen: Bool, _ state: inout State) -> Ticket {
        state.next += 1
        state.flights[key] = Flight(number: state.next, isOpen: isOpen)
        return Ticket(key: key, isOpen: isOpen, number: state.next)
    }

    /// Remembers whether the answer for a key was of use to others.
    ///
    /// It remembers some thousands of keys; to forget one costs one round of waiting.
    package func remember(_ key: TileKey, wasOfUse: Bool) {
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

    // MARK: Leaving

    /// The one that the fill was begun for has left.
    ///
    /// - Parameter deserted: Called once, on any thread, when the last follower has left as well. Nobody can join after that.
    /// - Returns: Whether there are followers. If not, nobody can join any more, and `deserted` will not be called.
    package func leaderLeft(_ ticket: Ticket, deserted: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            guard let flight = state.flights[ticket.key], flight.number == ticket.number else { return false }
            guard !flight.followers.isEmpty else {
                state.flights[ticket.key]?.isOpen = false
                return false
            }
            state.flights[ticket.key]?.deserted = deserted
            return true
        }
    }

    /// A follower has left, and hears no more.
    package func leave(_ seat: Seat) {
        let deserted = state.withLock { state -> (@Sendable () -> Void)? in
            guard var flight = state.flights[seat.key], flight.number == seat.flight,
                flight.followers.removeValue(forKey: seat.number) != nil
            else { return nil }
            defer { state.flights[seat.key] = flight }
            guard flight.followers.isEmpty, let deserted = flight.deserted else { return nil }
            flight.deserted = nil
            flight.isOpen = false
            return deserted
        }
        deserted?()
    }

    // MARK: Landing

    /// Sends the followers away, and lets nobody join any more; the flight goes on.
    package func close(_ ticket: Ticket, _ news: News) {
        tell(ticket, news) { flight in
            flight.followers = [:]
            flight.deserted = nil
            flight.isOpen = false
            return flight
        }
    }

    /// The flight is over.
    package func land(_ ticket: Ticket, _ news: News) { tell(ticket, news) { _ in nil } }

    private func tell(_ ticket: Ticket, _ news: News, _ change: (inout Flight) -> Flight?) {
        let followers = state.withLock { state -> [UInt64: @Sendable (News) -> Void] in
            guard var flight = state.flights[ticket.key], flight.number == ticket.number else { return [:] }
            let followers = flight.followers
            state.flights[ticket.key] = change(&flight)
            return followers
        }
        // In the order in which they came.
        for number in followers.keys.sorted() { followers[number]?(news) }
    }

    /// Whether somebody follows.
    package func hasFollowers(_ ticket: Ticket) -> Bool {
        state.withLock { state in
            guard let flight = state.flights[ticket.key], flight.number == ticket.number else { return false }
            return !flight.followers.isEmpty
        }
    }

    /// How many flights there are.
    package var count: Int { state.withLock { $0.flights.count } }
}
