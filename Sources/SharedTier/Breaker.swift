/// Whether a bucket that has failed is asked again: after some failures in a row, or where more than a third of it fails, it is left
/// alone for a while, then asked once.
///
/// A value without a clock: times are nanoseconds of any clock that goes forward.
package struct Breaker: Sendable {
    /// What may be done.
    package enum Leave: Hashable, Sendable {
        case ask
        /// The bucket has rested; this one request tells whether it is back. ``succeeded()``, ``failed(at:)`` or
        /// ``abandoned()`` must follow.
        case probe
        /// It is left alone.
        case leaveAlone
    }

    private enum State {
        /// Each failure adds two, each answer takes one away.
        case closed(score: Int)
        case open(until: UInt64, rest: UInt64)
        case probing(rest: UInt64)
    }
    private var state = State.closed(score: 0)

    /// After so many failures in a row it is left alone.
    package static let mostFailures = 5
    /// How long it rests at first, and at most (ns): each time twice as long.
    package static let rests = UInt64(1_000_000_000)...30_000_000_000

    package init() {}

    /// Whether it is left alone, or asked by one probe only.
    package var isOpen: Bool { if case .closed = state { false } else { true } }

    /// Whether it would be left alone now.
    package func isResting(at now: UInt64) -> Bool {
        switch state {
        case .closed: false
        case .probing: true
        case .open(let until, _): now < until
        }
    }

    /// Asks for leave.
    package mutating func leave(at now: UInt64) -> Leave {
        switch state {
        case .closed: return .ask
        case .probing: return .leaveAlone
        case .open(let until, let rest):
            guard now >= until else { return .leaveAlone }
            state = .probing(rest: rest)
            return .probe
        }
    }

    /// The bucket has answered, be it that there is no such object.
    ///
    /// What was asked before it was left alone tells nothing new.
    ///
    /// - Parameter isProbe: Whether it was the probe.
    package mutating func succeeded(isProbe: Bool) {
        switch state {
        case .closed(let score): state = .closed(score: max(0, score - 1))
        case .probing: if isProbe { state = .closed(score: 0) }
        case .open: break
        }
    }

    /// It has not answered, or not in time, or refused.
    package mutating func failed(isProbe: Bool, at now: UInt64) {
        switch state {
        case .closed(let score):
            state =
                score + 2 < 2 * Self.mostFailures
                ? .closed(score: score + 2)
                : .open(until: now &+ Self.rests.lowerBound, rest: Self.rests.lowerBound)
        case .probing(let rest):
            guard isProbe else { return }
            let next = min(rest * 2, Self.rests.upperBound)
            state = .open(until: now &+ next, rest: next)
        case .open: break
        }
    }

    /// The probe was given up before anything came of it: the next one who asks is the probe.
    package mutating func abandoned(at now: UInt64) {
        if case .probing(let rest) = state { state = .open(until: now, rest: rest) }
    }
}
