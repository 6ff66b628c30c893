package import HTTPCaching
import TileStore

/// Whether an origin that has failed is asked again by a request that could do without it: a value, without a clock.
///
/// After each failure in a row such requests are answered from what is stored for longer; then one of them asks, and the
/// others go on as before until it is known what came of it. Requests that nothing stored can answer ask all the same, and
/// what becomes of them counts too.
package struct OriginBackoff: Equatable {
    /// How long it is left alone: up to a minute, as it may be back at any time.
    package static let rule = Backoff(first: .seconds(1), longest: .seconds(60))
    /// A request that has told nothing for so long is given up.
    package static let patience: UInt64 = 60_000_000_000

    private var failures = 0
    private var until: UInt64 = 0
    private var askedSince: UInt64?
    /// What the last failure was.
    private(set) var last = OriginFailure.unreachable

    /// Nothing is known against the origin.
    package var isUnblemished: Bool { failures == 0 }

    /// Whether a request that could be answered from what is stored may ask; if so while something is known against the
    /// origin, what becomes of it must be told.
    package mutating func mayAsk(at now: UInt64) -> Bool {
        guard failures > 0 else { return true }
        if now < until { return false }
        if let askedSince, now < askedSince &+ Self.patience { return false }
        askedSince = now
        return true
    }

    /// The origin gave no answer, or one that says that it cannot.
    ///
    /// Those that were under way when it was left alone say nothing new.
    package mutating func failed(_ failure: OriginFailure, at now: UInt64, random: UInt64) {
        last = failure
        guard failures == 0 || now >= until else { return }
        failures += 1
        until = now &+ Self.rule.nanoseconds(failures: failures, random: random)
        askedSince = nil
    }

    /// The origin answered.
    package mutating func answered() { self = OriginBackoff() }

    /// The one who was to ask is gone: the next one may.
    package mutating func abandoned() { askedSince = nil }
}

/// What is known of one origin: a value, without a clock.
///
/// An origin that cannot be connected to is away, whatever it was asked. One that takes a question and drops it, or answers
/// it as a gateway does that got no answer, may have trouble with that question alone: only that one is left alone, until
/// several different ones have failed so with no answer to anything in between.
package struct OriginState: Equatable {
    /// So many different questions in a row, without an answer, and the origin counts as failing.
    package static let several = 3
    /// So many questions are remembered, at most; to forget one costs one request.
    package static let mostQuestions = 256

    private(set) var origin = OriginBackoff()
    private var questions: [Int: OriginBackoff] = [:]
    /// The questions that have failed since the last answer.
    private var suspects: Set<Int> = []

    /// Nothing is known against the origin.
    package var isUnblemished: Bool { origin.isUnblemished && questions.isEmpty }
    /// How many questions are remembered.
    package var questionCount: Int { questions.count }

    /// What a request that could be answered from what is stored does.
    ///
    /// - Parameter question: What names the question, such as the hash of its URL.
    package mutating func leave(_ question: Int, at now: UInt64) -> OriginHealth.Leave {
        let isSuspect = questions[question] != nil
        if origin.isUnblemished, !isSuspect { return .ask }
        // Asked in this order: a question that is left alone must not use up the origin's one attempt.
        if var known = questions[question] {
            guard known.mayAsk(at: now) else { return .wait(known.last) }
            questions[question] = known
        }
        guard origin.mayAsk(at: now) else {
            questions[question]?.abandoned()
            return .wait(origin.last)
        }
        return .probe
    }

    /// A question got no answer, or one that says that the origin cannot.
    ///
    /// - Parameter isConnecting: Whether there was no connection in the first place.
    package mutating func failed(
        _ question: Int, _ failure: OriginFailure, isConnecting: Bool, at now: UInt64, random: UInt64
    ) {
        if !isConnecting {
            if questions.count >= Self.mostQuestions, questions[question] == nil { questions.removeAll() }
            questions[question, default: OriginBackoff()].failed(failure, at: now, random: random)
            if suspects.count < Self.several { suspects.insert(question) }
        } else {
            questions[question]?.abandoned()
        }
        // What failed before it was judged, its probe included, counts too.
        if isConnecting || !origin.isUnblemished || suspects.count >= Self.several {
            origin.failed(failure, at: now, random: random)
        }
    }

    /// The origin answered a question.
    package mutating func answered(_ question: Int) {
        origin.answered()
        questions[question] = nil
        suspects = []
    }

    /// The one who was to ask is gone: the next one may.
    package mutating func abandoned(_ question: Int) {
        origin.abandoned()
        questions[question]?.abandoned()
    }
}

/// What is known of all origins, over all event loops.
///
/// There are as many as the configuration names.
package final class OriginHealth: Sendable {
    private let origins = Locked<[String: OriginState]>([:])
    private let ticks: @Sendable () -> UInt64
    private let random: @Sendable () -> UInt64

    /// - Parameter ticks: Nanoseconds of a clock that never goes back.
    package init(ticks: @escaping @Sendable () -> UInt64, random: @escaping @Sendable () -> UInt64) {
        self.ticks = ticks
        self.random = random
    }

    /// What a request that could be answered from what is stored does.
    package enum Leave: Equatable {
        case ask
        /// Ask, and tell what comes of it: others wait for that.
        case probe
        /// Do without the origin, which has failed so.
        case wait(OriginFailure)
    }

    /// Asks for leave to ask an origin a question.
    package func leave(for origin: String, _ question: Int) -> Leave {
        let now = ticks()
        return origins.withLock { origins in origins[origin]?.leave(question, at: now) ?? .ask }
    }

    /// The origin failed to answer a question; without a connection if `isConnecting`.
    package func failed(_ origin: String, _ question: Int, _ failure: OriginFailure, isConnecting: Bool) {
        let (now, random) = (ticks(), random())
        origins.withLock {
            $0[origin, default: OriginState()].failed(
                question, failure, isConnecting: isConnecting, at: now, random: random)
        }
    }

    /// The origin answered a question.
    package func answered(_ origin: String, _ question: Int) {
        origins.withLock { origins in
            guard !origins.isEmpty, origins[origin] != nil else { return }
            origins[origin]?.answered(question)
            if origins[origin]?.isUnblemished ?? false { origins[origin] = nil }
        }
    }

    /// A probe came to nothing.
    package func abandoned(_ origin: String, _ question: Int) {
        origins.withLock { $0[origin]?.abandoned(question) }
    }
}
