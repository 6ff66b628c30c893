package import TileStore

/// The fills of the proxy's routes, over all event loops.
package typealias Fills = Flights<TileKey, FillEnd>

/// What the followers of a fill are told.
package enum FillEnd: Sendable {
    /// The answer is stored: look again.
    case stored
    /// The answer could not be stored, or must not be used again unasked, and is shared with those who wait.
    case held(HeldAnswer)
    /// There was no answer, and that is the outcome for all who wait (``CacheUse/sharesOutcomes``).
    case failed(OriginTrouble)
    /// The origin answered with an error of this status: what is stored may stand in (RFC 5861 §4); else ask alone.
    case error(status: Int)
    /// The answer is of no use to others, or there was none: ask alone, without joining again.
    case alone
    /// The fill was given up for reasons of its own: look again, and join again.
    case again
    /// What a fill of the fixed use brought: for all who wait, be it stored or not.
    case tile(TileNews)
    /// A fill of the fixed use brought nothing, for nobody who waits; when it makes sense to ask again, if that is known.
    case noTile(TileFill.Failure, retryAfter: Duration?)
}

/// A tile, or the knowledge that there is none, as a fill of the fixed use tells it to those who wait.
package struct TileNews: Sendable {
    /// Where it comes from.
    package enum Source: Hashable, Sendable {
        /// It was stored by now: no question was sent.
        case found
        /// The origin has confirmed what was stored.
        case confirmed
        /// The origin's answer.
        case origin
        /// What another proxy of the fleet has brought.
        case shared
    }

    package let candidate: Candidate
    package let source: Source
    /// Whether the store has it.
    package let isStored: Bool

    package init(_ candidate: Candidate, _ source: Source, isStored: Bool) {
        self.candidate = candidate
        self.source = source
        self.isStored = isStored
    }
}

/// The work that others may wait for: one flight for each key, over all event loops and tasks.
///
/// Somebody leads a flight, others follow it. A follower is told what became of it by a closure of its own, once, on any
/// thread. When the one that the flight was begun for has left, it goes on for its followers; when the last of them has left
/// too, it is told that it is deserted. How urgent it is rises with those who join.
package final class Flights<Key: Hashable & Sendable, News: Sendable>: Sendable {
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
        package let key: Key
        /// Whether others could join when it was given.
        package let isOpen: Bool
        /// How urgent it is, and what those who wait allow it.
        package let urgency: FetchTicket
        fileprivate let number: UInt64
    }

    /// A follower's place.
    package struct Seat: Sendable {
        fileprivate let key: Key
        fileprivate let flight: UInt64
        fileprivate let number: UInt64
    }

    /// The place of one who follows in any case.
    package struct Place: Sendable {
        /// The place.
        package let seat: Seat
        /// The ticket, if there was no flight: then the caller has to see to the work.
        package let leads: Ticket?
    }

    private struct Flight {
        var number: UInt64
        var urgency: FetchTicket
        var followers: [UInt64: @Sendable (News) -> Void] = [:]
        var isOpen: Bool
        /// Whether it goes on though nobody follows.
        var isKept = false
        /// Called when the last follower leaves; set once the leader has left.
        var deserted: (@Sendable () -> Void)?
        /// Whether another flight may not take its place: somebody waits for it, or may join it.
        var isTaken: Bool { isOpen || !followers.isEmpty }
    }

    private struct State {
        var flights: [Key: Flight] = [:]
        var next: UInt64 = 0
        var isClosed = false
        /// Hashes of keys, each in its place: those whose last answer was of no use to others; empty until there is one.
        var useless: [Int?] = []

        func isUseless(_ hash: Int) -> Bool { !useless.isEmpty && useless[Flights.place(hash)] == hash }
    }

    private let state = Locked(State())

    package init() {}

    /// Joins the flight for a key, or starts one.
    ///
    /// Where the last answer was of no use to others it is not worth waiting: the caller leads a flight that nobody joins.
    /// - Parameter hear: Called once, on any thread, if somebody else's flight was joined.
    package func join(_ key: Key, hear: @escaping @Sendable (News) -> Void) -> Joined {
        let hash = key.hashValue
        return state.withLock { state in
            guard !state.isUseless(hash) else {
                guard state.flights[key] == nil else { return .leads(nil) }
                return .leads(start(key, isOpen: false, &state))
            }
            guard let flight = state.flights[key], flight.isOpen else {
                // One that was shut has followers still, who must not be forgotten.
                if let flight = state.flights[key], flight.isTaken { return .leads(nil) }
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
    package func start(_ key: Key, isOpen: Bool) -> Ticket? {
        state.withLock { state in
            state.flights[key] == nil ? start(key, isOpen: isOpen, &state) : nil
        }
    }

    private func start(
        _ key: Key, isOpen: Bool, _ state: inout State, _ priority: FetchPriority = .visible
    ) -> Ticket {
        state.next += 1
        let urgency = FetchTicket(priority)
        state.flights[key] = Flight(number: state.next, urgency: urgency, isOpen: isOpen)
        return Ticket(key: key, isOpen: isOpen, urgency: urgency, number: state.next)
    }

    /// Follows the flight for a key; starts one if there is none that can be joined.
    ///
    /// - Parameters:
    ///   - terms: What the follower allows it.
    ///   - hear: Called once, on any thread.
    /// - Returns: `nil` if all is closed.
    package func follow(
        _ key: Key, _ priority: FetchPriority, _ terms: FetchTerms?,
        hear: @escaping @Sendable (News) -> Void
    ) -> Place? {
        let entered = state.withLock { state -> (Place, FetchTicket)? in
            guard !state.isClosed else { return nil }
            state.next += 1
            let number = state.next
            // Changed where it is: a thousand followers are not copied for each one more.
            if let index = state.flights.index(forKey: key), state.flights.values[index].isTaken {
                state.flights.values[index].followers[number] = hear
                let (flight, urgency) = (state.flights.values[index].number, state.flights.values[index].urgency)
                // In one step with entering: who sees that somebody follows sees what that one allows.
                if let terms { urgency.add(terms) }
                return (Place(seat: Seat(key: key, flight: flight, number: number), leads: nil), urgency)
            }
            state.next += 1
            let urgency = FetchTicket(priority)
            if let terms { urgency.add(terms) }
            let flight = Flight(number: state.next, urgency: urgency, followers: [number: hear], isOpen: true)
            state.flights[key] = flight
            let ticket = Ticket(key: key, isOpen: true, urgency: urgency, number: flight.number)
            return (Place(seat: Seat(key: key, flight: flight.number, number: number), leads: ticket), urgency)
        }
        entered?.1.raise(to: priority)
        return entered?.0
    }

    /// Has the flight for a key go on though nobody follows it; starts one if there is none.
    ///
    /// - Returns: The ticket of one that was started.
    package func keep(_ key: Key, _ priority: FetchPriority) -> Ticket? {
        let (started, urgency) = state.withLock { state -> (Ticket?, FetchTicket?) in
            guard !state.isClosed else { return (nil, nil) }
            let ticket =
                state.flights[key]?.isTaken == true ? nil : start(key, isOpen: true, &state, priority)
            state.flights[key]?.isKept = true
            return (ticket, state.flights[key]?.urgency)
        }
        urgency?.raise(to: priority)
        return started
    }

    /// Remembers whether the answer for a key was of use to others.
    ///
    /// It remembers some thousands of keys; to forget one costs one round of waiting.
    package func remember(_ key: Key, wasOfUse: Bool) {
        let hash = key.hashValue
        state.withLock { state in
            if !wasOfUse {
                if state.useless.isEmpty { state.useless = Array(repeating: nil, count: 4096) }
                state.useless[Self.place(hash)] = hash
            } else if state.isUseless(hash) {
                state.useless[Self.place(hash)] = nil
            }
        }
    }

    private static func place(_ hash: Int) -> Int {
        Int(truncatingIfNeeded: UInt(bitPattern: hash) & 4095)
    }

    // MARK: Leaving

    /// The one that the fill was begun for has left.
    ///
    /// - Parameter deserted: Called once, on any thread, when the last follower has left as well. Nobody can join after that.
    /// - Returns: Whether there are followers. If not, nobody can join any more, and `deserted` will not be called.
    package func leaderLeft(_ ticket: Ticket, deserted: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            guard let index = state.flights.index(forKey: ticket.key),
                state.flights.values[index].number == ticket.number
            else { return false }
            guard state.flights.values[index].isKept || !state.flights.values[index].followers.isEmpty else {
                state.flights.values[index].isOpen = false
                return false
            }
            state.flights.values[index].deserted = deserted
            return true
        }
    }

    /// A follower has left, and hears no more.
    package func leave(_ seat: Seat) {
        let deserted = state.withLock { state -> (@Sendable () -> Void)? in
            guard state.flights[seat.key]?.number == seat.flight,
                state.flights[seat.key]?.followers.removeValue(forKey: seat.number) != nil,
                let flight = state.flights[seat.key], flight.followers.isEmpty, !flight.isKept,
                let deserted = flight.deserted
            else { return nil }
            state.flights[seat.key]?.deserted = nil
            state.flights[seat.key]?.isOpen = false
            return deserted
        }
        deserted?()
    }

    /// Has a flight whose last follower has left go on alone: others may join it again.
    ///
    /// - Parameter closed: Called once, on any thread, if all flights are ended for good meanwhile.
    /// - Returns: `false` if there is another flight for the key by now, or none may go on.
    package func goOn(_ ticket: Ticket, closed: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            guard let index = state.flights.index(forKey: ticket.key),
                state.flights.values[index].number == ticket.number
            else { return false }
            state.flights.values[index].isOpen = true
            state.flights.values[index].isKept = true
            state.flights.values[index].deserted = closed
            return true
        }
    }

    /// Whether somebody follows a flight that has gone on alone; then it does so no longer.
    ///
    /// - Parameter deserted: Called once, on any thread, when the last of them has left as well.
    package func isFollowedAgain(_ ticket: Ticket, deserted: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            guard let index = state.flights.index(forKey: ticket.key),
                state.flights.values[index].number == ticket.number, !state.flights.values[index].followers.isEmpty
            else { return false }
            state.flights.values[index].isKept = false
            state.flights.values[index].deserted = deserted
            return true
        }
    }

    // MARK: Landing

    /// Lets nobody join by ``join(_:hear:)`` any more; the flight goes on for those who follow it.
    package func shut(_ ticket: Ticket) {
        state.withLock { state in
            guard state.flights[ticket.key]?.number == ticket.number else { return }
            state.flights[ticket.key]?.isOpen = false
        }
    }

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
            guard let index = state.flights.index(forKey: ticket.key),
                state.flights.values[index].number == ticket.number
            else { return [:] }
            let followers = state.flights.values[index].followers
            if let left = change(&state.flights.values[index]) {
                state.flights.values[index] = left
            } else {
                state.flights.remove(at: index)
            }
            return followers
        }
        if followers.count == 1, let hear = followers.values.first { return hear(news) }
        // In the order in which they came.
        for number in followers.keys.sorted() { followers[number]?(news) }
    }

    /// Ends all flights for good: their followers are told, those who lead them are told that they are deserted, and nothing
    /// is started by ``follow(_:_:_:hear:)`` and ``keep(_:_:)`` any more.
    package func close(_ news: News) {
        let flights = state.withLock { state -> [Flight] in
            state.isClosed = true
            defer { state.flights = [:] }
            return Array(state.flights.values)
        }
        for flight in flights {
            flight.deserted?()
            for number in flight.followers.keys.sorted() { flight.followers[number]?(news) }
        }
    }

    /// Whether it has been closed.
    package var isClosed: Bool { state.withLock { $0.isClosed } }

    /// How many follow the flight for a key.
    package func followers(of key: Key) -> Int {
        state.withLock { $0.flights[key]?.followers.count ?? 0 }
    }

    /// Whether somebody follows.
    package func hasFollowers(_ ticket: Ticket) -> Bool {
        state.withLock { state in
            guard let flight = state.flights[ticket.key], flight.number == ticket.number else {
                return false
            }
            return !flight.followers.isEmpty
        }
    }

    /// How many flights there are.
    package var count: Int { state.withLock { $0.flights.count } }
}
