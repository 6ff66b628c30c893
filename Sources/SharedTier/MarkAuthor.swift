package import TileStore

/// Adds marks to a bucket's index, which knows no locks and no conditional writes, so that none is lost, whoever else does the same.
///
/// Each author reads the index, adds what it has to say, and writes it. Another one may have done the same between, and its write lacks
/// what this one says. So the author reads the index again, and writes once more if its marks are not there. They are safe when they
/// are there at a time at which nobody can be left who has read an index without them and still writes one: each author writes within
/// ``window`` of its reading, or reads anew.
///
/// A write that nobody has answered may be carried out much later, and then lacks what others have added since. So its author stays
/// until ``lateness`` has passed, remembers all marks that it reads meanwhile, and writes them once more if they are gone.
///
/// A value; times are nanoseconds of a clock that goes forward.
package struct MarkAuthor: Sendable {
    /// What happens.
    package enum Event: Sendable {
        /// The answer to ``Action/read``: the index, or an empty one where there is none.
        case index(Marks)
        /// The answer to ``Action/write(_:)``.
        case written
        /// The answer to ``Action/wait(_:)``.
        case waited
        /// A request failed.
        ///
        /// - Parameter mayHappen: Whether it may be carried out yet.
        case failed(mayHappen: Bool)
    }

    /// What is to be done; its answer is the next event.
    package enum Action: Equatable, Sendable {
        case read
        /// Write it, within ``window`` of the reading before; a request that cannot be sent by then is ``Event/failed``.
        case write(Marks)
        case wait(UInt64)
        /// The marks are there to stay.
        case done
        /// The bucket has failed too often; the marks may be there or not.
        case giveUp
    }

    private enum State { case reading, writing, waiting, confirming, over }

    /// What must be there: its own marks, and all that it has read.
    private var known: Marks
    private let now: Timestamp
    private var state = State.reading
    private var readAt: UInt64 = 0
    /// When the marks were first seen to be written.
    private var writtenAt: UInt64?
    private var failures = 0
    private var writes = 0
    private var begunAt: UInt64 = 0
    /// Until when a write may be carried out that was not answered, and how many there are since the last one that was.
    private var lateUntil: UInt64 = 0
    private var unanswered = 0

    /// How long an author may take from having asked for the index until its write is answered (ns).
    package static let window: UInt64 = 4_000_000_000
    /// For how long a write that was not answered may still be carried out (ns).
    package static let lateness: UInt64 = 30_000_000_000
    /// How often a request may fail, the index be written, and a write be left unanswered before the next one waits.
    private static let (mostFailures, mostWrites, mostUnanswered) = (5, 100, 3)
    /// How long it tries (ns).
    private static let patience: UInt64 = 180_000_000_000

    /// - Parameters:
    ///   - own: What is to be added.
    ///   - now: By the bucket's clock.
    package init(adding own: Marks, at now: Timestamp) { (known, self.now) = (own, now) }

    /// Begins.
    ///
    /// - Parameter ticks: When the reading that it asks for begins.
    package mutating func begin(at ticks: UInt64) -> Action {
        begunAt = ticks
        return read(.reading, ticks)
    }

    /// Takes an event.
    package mutating func on(_ event: Event, at ticks: UInt64) -> Action {
        guard ticks &- begunAt <= Self.patience else { return giveUp() }
        switch (event, state) {
        case (.index(let marks), .reading):
            let isThere = marks.includes(known)
            known = known.merged(marks, at: now)
            return isThere ? confirm(ticks) : write(ticks)
        case (.written, .writing):
            // Whatever was read before, this is when they were last known to be there.
            writtenAt = ticks
            unanswered = 0
            return wait(Self.window / 4)
        case (.waited, .waiting): return read(.confirming, ticks)
        case (.index(let marks), .confirming):
            let isThere = marks.includes(known)
            known = known.merged(marks, at: now)
            guard isThere else {
                writtenAt = nil
                return write(ticks)
            }
            // The reading began after the window of all who had read the index without them.
            guard let writtenAt, readAt &- writtenAt > Self.window, readAt > lateUntil else { return confirm(ticks) }
            state = .over
            return .done
        case (.failed(let mayHappen), .reading), (.failed(let mayHappen), .writing),
            (.failed(let mayHappen), .confirming):
            if state == .writing, mayHappen {
                lateUntil = ticks &+ Self.lateness
                unanswered += 1
            } else {
                failures += 1
            }
            guard failures <= Self.mostFailures else { return giveUp() }
            return wait(Self.window / 8)
        default: return .giveUp
        }
    }

    private mutating func giveUp() -> Action {
        state = .over
        return .giveUp
    }

    private mutating func read(_ next: State, _ ticks: UInt64) -> Action {
        state = next
        readAt = ticks
        return .read
    }

    private mutating func wait(_ time: UInt64) -> Action {
        state = .waiting
        return .wait(time)
    }

    private mutating func write(_ ticks: UInt64) -> Action {
        // More of them at once would only come late together.
        if unanswered >= Self.mostUnanswered {
            guard ticks > lateUntil else { return wait(Self.window / 4) }
            unanswered = 0
        }
        writes += 1
        guard writes <= Self.mostWrites else { return giveUp() }
        // The reading took so long that others may have written since.
        guard ticks &- readAt < Self.window / 2 else { return read(.reading, ticks) }
        state = .writing
        return .write(known)
    }

    /// They are there: they must be there still when nobody can undo it any more.
    private mutating func confirm(_ ticks: UInt64) -> Action {
        let since = writtenAt ?? readAt
        writtenAt = since
        // While a late write may come, what others add is to be seen before it goes.
        guard ticks > lateUntil else { return wait(Self.window / 4) }
        let left = Self.window &- min(Self.window, ticks &- since)
        return wait(left + 1_000_000)
    }
}
