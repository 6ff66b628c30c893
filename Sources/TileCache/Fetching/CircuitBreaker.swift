import CacheEngine

/// Whether a host is asked at all: after several failures in a row it is left alone for a while, then tried with one
/// request.
///
/// A plain value; the caller brings the time. Without it, a phone that has gone offline would wait for a time-out at
/// every tile, and a server that is down would be asked by everybody at once when it comes back.
///
/// Two kinds of failure are counted apart. No answer at all is about the host: ``threshold`` tiles in a row open the
/// breaker. An answer of 5xx comes from a host that is up, and may be about its tile: only ``errorThreshold`` different
/// tiles in a row open it, so that a few tiles that a server cannot draw do not hide the others.
struct CircuitBreaker: Equatable, Sendable {
    /// What a request may do.
    enum Answer: Equatable {
        /// It may go.
        case go
        /// It may go, and what becomes of it decides for the others.
        case probe
        /// The host is left alone until then (nanoseconds of the clock that never goes back).
        case wait(until: UInt64)
    }

    private enum State: Equatable {
        case closed
        case open(until: UInt64)
        case probing(since: UInt64)
    }

    private var state = State.closed
    private var failures = 0
    /// Tiles in a row that the host answered with an error.
    private var errors = 0
    private var openings = 0
    /// Until when the host asked to be left alone.
    private var pause: UInt64 = 0

    /// So many failures in a row open it.
    static let threshold = 5
    /// So many tiles in a row that were answered with an error open it.
    static let errorThreshold = 32
    /// The longest that answers with an error double the wait: 8 times the first one.
    static let mostErrorOpenings = 4
    /// A probe that has told nothing for so long is given up.
    static let probeTimeout: UInt64 = 60_000_000_000
    /// While a probe is out, others are told to come again after so long: most answer in milliseconds.
    static let probeRecheck: UInt64 = 250_000_000

    /// Nothing is known against the host.
    var isUnblemished: Bool { state == .closed && failures == 0 && errors == 0 }

    /// Until when the host is left alone, without taking the place of a probe; `nil` if a request may go.
    func wait(at now: UInt64) -> UInt64? {
        switch state {
        case .open(let until) where now < until: until
        case .probing(let since) where now < since &+ Self.probeTimeout:
            min(now &+ Self.probeRecheck, since &+ Self.probeTimeout)
        default: nil
        }
    }

    /// Whether a request may go now.
    mutating func ask(at now: UInt64) -> Answer {
        if let until = wait(at: now) { return .wait(until: until) }
        if state == .closed { return .go }
        state = .probing(since: now)
        return .probe
    }

    /// The host answered.
    ///
    /// A pause that it asked for stands: nothing goes out during one, so the answer is to a request from before.
    mutating func succeeded() {
        if case .open(until: pause) = state { return }
        self = CircuitBreaker()
    }

    /// A request was given up before anything was known: a probe lets the next one try.
    mutating func abandoned(at now: UInt64) {
        if case .probing = state { state = .open(until: now) }
    }

    /// The host answered with an error (5xx) that may be about the tile alone.
    ///
    /// - Parameter isKnown: Whether the tile has failed before: that it does again says nothing about the host.
    mutating func answeredError(at now: UInt64, backoff: Backoff, random: UInt64, isKnown: Bool) {
        if !isKnown { errors += 1 }
        if case .open = state { return }
        if errors >= Self.errorThreshold, !isKnown {
            openings = min(openings + 1, Self.mostErrorOpenings)
            open(until: now &+ backoff.nanoseconds(failures: openings, random: random))
        } else if case .probing = state {
            if errors >= Self.errorThreshold {
                // A tile that has failed before proves nothing: the next one tries.
                state = .open(until: now)
            } else {
                // The host was silent, and answers again.
                (state, failures, openings) = (.closed, 0, 0)
            }
        }
    }

    /// The host did not answer, or answered that it has too much to do.
    ///
    /// - Parameters:
    ///   - isKnown: Whether the tile has failed before: one tile that fails again and again opens nothing.
    ///   - pause: Until when the host asked to be left alone (`Retry-After`), if it did.
    mutating func failed(
        at now: UInt64, backoff: Backoff, random: UInt64, isKnown: Bool = false, pause: UInt64? = nil
    ) {
        if !isKnown { failures += 1 }
        var wasProbing = false
        if case .probing = state { wasProbing = true }
        if wasProbing || failures >= Self.threshold {
            openings += 1
            failures = 0
            open(until: now &+ backoff.nanoseconds(failures: openings, random: random))
        }
        if let pause, pause > now, open(until: pause) { self.pause = pause }
    }

    /// Opens it for at least so long.
    ///
    /// - Returns: Whether it would have been open for less.
    @discardableResult
    private mutating func open(until: UInt64) -> Bool {
        if case .open(let known) = state, known >= until { return false }
        state = .open(until: until)
        return true
    }
}
