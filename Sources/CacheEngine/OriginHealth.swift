package import HTTPCaching
import TileStore

/// How origins that fail are left alone: a value that each use of the engine gives.
package struct OriginRules: Hashable, Sendable {
    /// How long an origin, or a question, is left alone after so many failures in a row.
    package var backoff: Backoff
    /// So many different questions in a row without an answer, and the origin is left alone.
    package var silences: Int
    /// So many different questions in a row with an error for an answer.
    ///
    /// An answer of 5xx comes from an origin that is up, and may be about its question: a few tiles that a server cannot draw
    /// must not hide the others.
    package var errors: Int
    /// The longest that errors double the wait: by 2 to the power of one less.
    package var mostErrorOpenings: Int
    /// Whether a wait is somewhere between half and all of what the back-off says, or all of it.
    package var isSpread: Bool

    /// - Parameters:
    ///   - silences: How many questions without an answer; a connection that cannot be made counts as all of them.
    ///   - errors: How many questions with an error; never reached where errors are told as silence.
    package init(
        backoff: Backoff, silences: Int, errors: Int = .max, mostErrorOpenings: Int = 4, isSpread: Bool = true
    ) {
        self.backoff = backoff
        self.silences = silences
        self.errors = errors
        self.mostErrorOpenings = mostErrorOpenings
        self.isSpread = isSpread
    }

    /// How long it is left alone after so many openings in a row, in nanoseconds.
    fileprivate func wait(openings: Int, random: UInt64) -> UInt64 {
        isSpread ? backoff.nanoseconds(failures: openings, random: random) : backoff.nanoseconds(failures: openings)
    }

    /// The rules of a proxy's routes: requests that nothing stored can answer ask all the same, so an origin is left alone
    /// for a minute at most, as it may be back at any time.
    package static let clients = OriginRules(
        backoff: Backoff(first: .seconds(1), longest: .seconds(60)), silences: 3)

    /// The rules of hosts that stand for one another: each failure counts, as the next one is asked in its place.
    ///
    /// The waits are not spread: one request tries a host, and it costs the others nothing.
    package static let mirrors = OriginRules(
        backoff: Backoff(first: .seconds(2), longest: .seconds(60)), silences: 1, isSpread: false)

    /// The rules of tiles, which nobody else asks for meanwhile.
    package static func tiles(_ backoff: Backoff) -> OriginRules {
        OriginRules(backoff: backoff, silences: 5, errors: 32)
    }
}

/// A failed question: what it says about its origin, and how long that asked to be left alone.
package struct OriginSetback: Hashable, Sendable {
    /// What a failure says about the origin.
    package enum Blame: Hashable, Sendable {
        /// There was no connection in the first place: the origin is away, whatever it was asked.
        case unconnected
        /// It took the question and gave no answer, or answered as a gateway does that got none. It may have trouble with that
        /// question alone.
        case silent
        /// It answered that it has too much to do.
        case overloaded
        /// It answered with an error that may be about the question alone.
        case error
        /// Nothing: it answered, and the failure is about the question.
        case none
        /// Nothing: it was not asked at all.
        case unasked
    }

    package var blame: Blame
    /// What those are told who are kept from asking.
    package var failure: OriginFailure
    /// How long the origin asked to be left alone (`Retry-After`), already bounded.
    package var retryAfter: Duration?

    package init(_ blame: Blame, _ failure: OriginFailure, retryAfter: Duration? = nil) {
        self.blame = blame
        self.failure = failure
        self.retryAfter = retryAfter
    }
}

/// What is known of one origin: a value, without a clock.
///
/// After several failures in a row it is left alone for a while, then tried with one request, a probe. Without that a phone
/// that has gone offline would wait for a time-out at every tile, and a server that comes back would be asked by everybody
/// at once.
package struct OriginState: Equatable {
    private enum State: Equatable {
        case closed
        case open(until: UInt64)
        /// - Parameter number: Who tries it. Only that one's failure, or its giving up, decides.
        case probing(since: UInt64, number: UInt64)
    }

    private var state = State.closed
    /// The questions without an answer, and those with an error for one, since the last answer.
    private var silent: Set<Int> = []
    private var failing: Set<Int> = []
    /// How often in a row it has been left alone.
    private var openings = 0
    /// Until when it asked to be left alone, and when it did.
    private var pause: (until: UInt64, since: UInt64) = (0, 0)
    /// When it last gave an answer that was no failure, or the network came back.
    private var answeredAt: UInt64 = 0
    /// What the last failure was.
    package private(set) var last = OriginFailure.unreachable

    /// A probe that has told nothing for so long is given up.
    package static let patience: UInt64 = 60_000_000_000
    /// While a probe is out, others are told to come again after so long: most answer in milliseconds.
    package static let recheck: UInt64 = 250_000_000
    /// So many questions are told apart, at most.
    private static let mostQuestions = 256

    package init() {}

    package static func == (a: OriginState, b: OriginState) -> Bool {
        a.state == b.state && a.silent == b.silent && a.failing == b.failing && a.openings == b.openings
            && a.pause == b.pause && a.answeredAt == b.answeredAt && a.last == b.last
    }

    /// Whether nothing is known against the origin.
    package var isUnblemished: Bool { state == .closed && silent.isEmpty && failing.isEmpty }

    /// Until when the origin is left alone, without taking the place of a probe; `nil` if a request may go.
    package func wait(at now: UInt64) -> UInt64? {
        switch state {
        case .open(let until) where now < until: until
        case .probing(let since, _) where now < since &+ Self.patience: min(now &+ Self.recheck, since &+ Self.patience)
        default: nil
        }
    }

    /// Whether a request may go now; if it is a probe, what becomes of it must be told.
    ///
    /// - Parameter number: What names the probe if it is one.
    package mutating func leave(at now: UInt64, number: UInt64) -> OriginHealth.Leave {
        if let until = wait(at: now) { return .wait(last, until: until) }
        if state == .closed { return .ask }
        state = .probing(since: now, number: number)
        return .probe(number)
    }

    /// The origin answered.
    ///
    /// - Parameter sentAt: When the request was sent. A pause that the origin asked for after that goes on.
    package mutating func answered(at now: UInt64, sentAt: UInt64?) {
        if case .open(until: pause.until) = state, (sentAt ?? 0) <= pause.since { return }
        self = OriginState()
        answeredAt = now
    }

    /// The network is back: that nothing came before says nothing of the origin any more.
    ///
    /// A pause that the origin asked for goes on, and so does one after answers that were errors.
    fileprivate mutating func networkIsBack(at now: UInt64) {
        guard last == .unreachable else { return }
        let asked = pause
        self = OriginState()
        answeredAt = now
        if asked.until > now { (pause, state) = (asked, .open(until: asked.until)) }
    }

    /// A probe was given up before anything was known: if it is the one that is out, the next one tries.
    package mutating func abandoned(_ probe: UInt64, at now: UInt64) {
        if case .probing(_, probe) = state { state = .open(until: now) }
    }

    /// Whether a probe is out, and this is not the one.
    private func isBeside(_ probe: UInt64?) -> Bool {
        if case .probing(_, let number) = state { number != probe } else { false }
    }

    /// A question failed.
    ///
    /// Those that were under way when the origin was left alone say nothing new, and neither do those without an answer that
    /// were sent before another one was answered. While a probe is out, the failure of another question decides nothing: it
    /// was sent before the probe, or by one who asks whatever is known. An answer, and a `Retry-After`, count from anybody.
    ///
    /// - Parameter probe: The probe that the question was, if it was one.
    package mutating func failed(
        _ question: Int, _ setback: OriginSetback, at now: UInt64, sentAt: UInt64?, probe: UInt64? = nil,
        random: UInt64, _ rules: OriginRules
    ) {
        if setback.blame == .unasked {
            if let probe { abandoned(probe, at: now) }
            return
        }
        let isBeside = isBeside(probe)
        let isSilence = setback.blame == .silent || setback.blame == .unconnected
        if isSilence, let sentAt, answeredAt > sentAt { return }
        guard setback.blame != .none || setback.retryAfter != nil else { return answered(at: now, sentAt: sentAt) }
        last = setback.failure
        if setback.blame == .error, setback.retryAfter == nil {
            answeredError(question, at: now, isBeside: isBeside, random: random, rules)
        } else {
            Self.note(question, in: &silent)
            let isEnough = setback.blame == .unconnected || silent.count >= rules.silences
            if state == .closed ? isEnough : !isOpen(at: now) && !isBeside {
                openings += 1
                open(until: now &+ rules.wait(openings: openings, random: random))
            }
        }
        guard let retryAfter = setback.retryAfter else { return }
        let until = now &+ retryAfter.nanoseconds
        if until > now, open(until: until) { pause = (until, now) }
    }

    /// Whether nobody asks it at all.
    private func isOpen(at now: UInt64) -> Bool {
        if case .open(let until) = state { now < until } else { false }
    }

    private mutating func answeredError(
        _ question: Int, at now: UInt64, isBeside: Bool, random: UInt64, _ rules: OriginRules
    ) {
        let isNew = Self.note(question, in: &failing)
        if case .open = state { return }
        if isBeside, failing.count >= rules.errors { return }
        if failing.count >= rules.errors, isNew {
            openings = min(openings + 1, rules.mostErrorOpenings)
            open(until: now &+ rules.wait(openings: openings, random: random))
        } else if case .probing = state {
            if failing.count >= rules.errors {
                // A question that has failed before proves nothing: the next one tries.
                state = .open(until: now)
            } else {
                // The origin was silent, and answers again.
                (state, silent, openings) = (.closed, [], 0)
            }
        }
    }

    /// Notes a question; `false` if it had failed before.
    @discardableResult
    private static func note(_ question: Int, in questions: inout Set<Int>) -> Bool {
        guard questions.count < mostQuestions else { return !questions.contains(question) }
        return questions.insert(question).inserted
    }

    /// Leaves it alone for at least so long.
    ///
    /// - Returns: Whether it would have been for less.
    @discardableResult
    private mutating func open(until: UInt64) -> Bool {
        if case .open(let known) = state, known >= until { return false }
        state = .open(until: until)
        return true
    }
}

/// What is known of one question that failed: a value, without a clock.
private struct QuestionState {
    var failures = 0
    var until: UInt64 = 0
    var last = OriginFailure.unreachable
    /// The one that is out for the others, and since when.
    var probe: (number: UInt64, since: UInt64)?

    /// Whether one who could be answered otherwise may ask, under this number.
    mutating func mayAsk(at now: UInt64, number: UInt64) -> Bool {
        if now < until { return false }
        if let probe, now < probe.since &+ OriginState.patience { return false }
        probe = (number, now)
        return true
    }

    /// The one of this number is over.
    mutating func isOver(_ number: UInt64?) {
        if probe?.number == number { probe = nil }
    }

    mutating func failed(
        _ setback: OriginSetback, at now: UInt64, sentAt: UInt64?, random: UInt64, _ backoff: Backoff
    ) {
        last = setback.failure
        // Those that were under way when it was left alone say nothing new.
        if sentAt == nil || failures == 0 || now >= until {
            failures += 1
            until = max(until, now &+ backoff.nanoseconds(failures: failures, random: random))
        }
        if let pause = setback.retryAfter { until = max(until, now &+ pause.nanoseconds) }
    }
}

/// What failed lately and when it may be tried again: origins as a whole, and single questions.
///
/// Shared by all who ask. A question is named by a number, such as the hash of its key. Bounded: it forgets first what may be
/// tried again soonest, which costs a request.
package final class OriginHealth: Sendable {
    /// So many origins are remembered, at most.
    package static let mostOrigins = 1024
    /// So many questions are remembered, at most.
    package static let mostQuestions = 16_384

    /// What a request that could be answered otherwise does.
    package enum Leave: Equatable, Sendable {
        case ask
        /// Ask, and tell what comes of it by this number: others wait for that.
        case probe(UInt64)
        /// Do without the origin, which has failed so, until then.
        case wait(OriginFailure, until: UInt64)

        /// Whether it may be asked.
        fileprivate var mayAsk: Bool { if case .wait = self { false } else { true } }

        /// The number of the probe that it is leave for; `nil` if it is none.
        package var probe: UInt64? { if case .probe(let number) = self { number } else { nil } }
    }

    /// Something that is left alone for now.
    package struct Wait: Equatable, Sendable {
        /// Until when.
        package var until: UInt64
        /// What the last failure was.
        package var failure: OriginFailure

        package init(until: UInt64, failure: OriginFailure) {
            self.until = until
            self.failure = failure
        }
    }

    /// What became of a question.
    package enum Judgement: Equatable, Sendable {
        case answered
        case failed(OriginSetback)
    }

    fileprivate struct State {
        var origins: [String: OriginState] = [:]
        var questions: [Int: QuestionState] = [:]
        /// Hosts that stand for one another, as far as they have been asked; bounded by the configuration.
        var mirrors: [OriginHost: OriginState] = [:]
        /// When each origin was last reported to have a clock that is ahead.
        var clockReports: [String: UInt64] = [:]
        /// The number of the latest probe; never used again, so that one that is late ends nobody else's.
        var lastProbe: UInt64 = 0
    }

    private let state = Locked(State())
    private let rules: OriginRules
    private let ticks: @Sendable () -> UInt64
    private let random: @Sendable () -> UInt64

    /// - Parameter ticks: Nanoseconds of a clock that never goes back.
    package init(
        _ rules: OriginRules = .clients, ticks: @escaping @Sendable () -> UInt64,
        random: @escaping @Sendable () -> UInt64
    ) {
        self.rules = rules
        self.ticks = ticks
        self.random = random
    }

    // MARK: Leave

    /// Whether a question is left alone for now; changes nothing.
    package func wait(for question: Int) -> Wait? {
        let now = ticks()
        return state.withLock { state in
            guard let known = state.questions[question], now < known.until else { return nil }
            return Wait(until: known.until, failure: known.last)
        }
    }

    /// Whether an origin is left alone for now; changes nothing.
    package func wait(forOrigin origin: String) -> Wait? {
        let now = ticks()
        return state.withLock { state in
            guard let known = state.origins[origin], let until = known.wait(at: now) else { return nil }
            return Wait(until: until, failure: known.last)
        }
    }

    /// Asks for leave to ask an origin.
    ///
    /// - Parameter question: Left alone by itself, where it is told.
    package func leave(for origin: String, _ question: Int? = nil) -> Leave {
        let now = ticks()
        return state.withLock { state in
            let number = state.lastProbe + 1
            // Asked in this order: a question that is left alone must not use up the origin's one attempt.
            var isProbe = false
            if let question, var known = state.questions[question] {
                guard known.mayAsk(at: now, number: number) else { return .wait(known.last, until: known.until) }
                state.questions[question] = known
                isProbe = true
            }
            let leave = state.origins[origin]?.leave(at: now, number: number) ?? .ask
            if case .wait = leave, let question { state.questions[question]?.isOver(number) }
            if isProbe || leave.probe != nil { state.lastProbe = number }
            return leave == .ask && isProbe ? .probe(number) : leave
        }
    }

    /// A probe came to nothing: another may try, unless another one is out by now.
    package func abandoned(_ origin: String, _ question: Int? = nil, probe: UInt64) {
        let now = ticks()
        state.withLock { state in
            state.origins[origin]?.abandoned(probe, at: now)
            if let question { state.questions[question]?.isOver(probe) }
        }
    }

    // MARK: Judgements

    /// Tells what became of a question.
    ///
    /// - Parameters:
    ///   - sentAt: When it was sent, in ticks. What had happened by then is not ended by its answer, nor made worse by
    ///     its failure.
    ///   - probe: The number of the leave that it was sent by; `nil` if it was no probe.
    package func judge(
        _ origin: String, _ question: Int?, _ judgement: Judgement, sentAt: UInt64? = nil, probe: UInt64?
    ) {
        switch judgement {
        case .answered: answered(origin, question, sentAt: sentAt)
        case .failed(let setback):
            failed(origin, question ?? origin.hashValue, setback, sentAt: sentAt, probe: probe)
        }
    }

    /// The origin answered; a question that it answered, if it is told, is left alone no longer.
    package func answered(_ origin: String, _ question: Int? = nil, sentAt: UInt64? = nil) {
        let now = ticks()
        state.withLock { state in
            state.makeRoom(for: origin, now)
            state.origins[origin, default: OriginState()].answered(at: now, sentAt: sentAt)
            if let question, !state.questions.isEmpty { state.questions[question] = nil }
        }
    }

    private func failed(
        _ origin: String, _ question: Int, _ setback: OriginSetback, sentAt: UInt64?, probe: UInt64?
    ) {
        let (now, random) = (ticks(), random())
        state.withLock { state in
            if setback.blame != .unconnected {
                state.makeRoom(for: question, now)
                state.questions[question, default: QuestionState()]
                    .failed(setback, at: now, sentAt: sentAt, random: random, rules.backoff)
            }
            if let probe { state.questions[question]?.isOver(probe) }
            state.makeRoom(for: origin, now)
            state.origins[origin, default: OriginState()]
                .failed(question, setback, at: now, sentAt: sentAt, probe: probe, random: random, rules)
        }
    }

    // MARK: Hosts that stand for one another

    /// The hosts to ask, the best first: those that are left alone come last.
    ///
    /// - Parameter hosts: As the configuration has them.
    /// - Returns: With the number of the probe that the first one is, if it has failed and rested: what becomes of that must
    ///   be told. Until then it is one of the last for all others.
    package func order(of hosts: [OriginHost]) -> (hosts: [OriginHost], probe: UInt64?) {
        let now = ticks()
        return state.withLock { state in
            var (first, last): ([OriginHost], [OriginHost]) = ([], [])
            var probe: UInt64?
            for host in hosts {
                if state.mirrors[host]?.isUnblemished ?? true {
                    first.append(host)
                } else if first.isEmpty,
                    let leave = state.mirrors[host]?.leave(at: now, number: state.lastProbe + 1), leave.mayAsk
                {
                    // One that is not the first to be asked tries nothing.
                    first.append(host)
                    guard let number = leave.probe else { continue }
                    (probe, state.lastProbe) = (number, number)
                } else {
                    last.append(host)
                }
            }
            return (first + last, probe)
        }
    }

    /// Tells what became of a question at one of such hosts: any failure has the others asked first for a while.
    package func judge(_ host: OriginHost, _ judgement: Judgement, sentAt: UInt64? = nil, probe: UInt64?) {
        let now = ticks()
        state.withLock { state in
            var known = state.mirrors[host] ?? OriginState()
            switch judgement {
            case .answered: known.answered(at: now, sentAt: sentAt)
            case .failed(var setback):
                if setback.blame != .unasked { setback.blame = .silent }
                known.failed(0, setback, at: now, sentAt: sentAt, probe: probe, random: 0, .mirrors)
            }
            state.mirrors[host] = known
        }
    }

    /// A probe of one of such hosts came to nothing.
    package func abandoned(_ host: OriginHost, probe: UInt64) {
        let now = ticks()
        state.withLock { $0.mirrors[host]?.abandoned(probe, at: now) }
    }

    /// How long it is until the first of such hosts has rested.
    package func rest(of hosts: [OriginHost]) -> Duration {
        let now = ticks()
        let ends = state.withLock { state in hosts.map { state.mirrors[$0]?.wait(at: now) ?? now } }
        return .nanoseconds(Int64(clamping: (ends.min() ?? now) - now))
    }

    /// Forgets what is known of such hosts, as when others may stand for them from now on.
    package func forgetMirrors() { state.withLock { $0.mirrors = [:] } }

    /// Whether it is to be reported now that an origin's clock is ahead: once an hour for each origin.
    package func reportsClock(of origin: String) -> Bool {
        let now = ticks()
        return state.withLock { state in
            if let last = state.clockReports[origin], now < last &+ 3_600_000_000_000 { return false }
            if state.clockReports.count >= Self.mostOrigins { state.clockReports = [:] }
            state.clockReports[origin] = now
            return true
        }
    }

    /// Lets everything be tried again at once, as when a person asks for it.
    package func forget() {
        state.withLock { state in
            let last = state.lastProbe
            state = State()
            state.lastProbe = last
        }
    }

    /// Lets origins and questions be tried again at once that gave no answer, as when the network is back.
    ///
    /// What an origin answered, or asked for by `Retry-After`, counts on.
    package func forgetUnreachable() {
        let now = ticks()
        state.withLock { state in
            for index in state.origins.indices { state.origins.values[index].networkIsBack(at: now) }
            state.questions = state.questions.filter { $0.value.last != .unreachable }
        }
    }

    /// How many origins and questions are remembered.
    var counts: (origins: Int, questions: Int) { state.withLock { ($0.origins.count, $0.questions.count) } }
}

extension OriginHealth.State {
    fileprivate mutating func makeRoom(for origin: String, _ now: UInt64) {
        guard origins.count >= OriginHealth.mostOrigins, origins[origin] == nil else { return }
        origins = origins.filter { $0.value.wait(at: now) != nil }
        guard origins.count >= OriginHealth.mostOrigins else { return }
        let waits = origins.mapValues { $0.wait(at: now) ?? 0 }
        let soonest = waits.keys.sorted { waits[$0, default: 0] < waits[$1, default: 0] }
        for origin in soonest.prefix(origins.count / 2) { origins[origin] = nil }
    }

    fileprivate mutating func makeRoom(for question: Int, _ now: UInt64) {
        guard questions.count >= OriginHealth.mostQuestions, questions[question] == nil else { return }
        questions = questions.filter { $0.value.until > now }
        guard questions.count >= OriginHealth.mostQuestions / 2 else { return }
        let times = questions.values.map(\.until).sorted()
        let middle = times[times.count / 2]
        questions = questions.filter { $0.value.until > middle }
    }
}
