import HTTPCaching
import TileCache
import TileStore

/// Whether an origin that has failed is asked again by a request that could do without it: a value, without a clock.
///
/// After each failure in a row such requests are answered from what is stored for longer; then one of them asks, and the
/// others go on as before until it is known what came of it. Requests that nothing stored can answer ask all the same, and
/// what becomes of them counts too.
struct OriginBackoff: Equatable {
    /// How long it is left alone: up to a minute, as it may be back at any time.
    static let rule = Backoff(first: .seconds(1), longest: .seconds(60))
    /// A request that has told nothing for so long is given up.
    static let patience: UInt64 = 60_000_000_000

    private var failures = 0
    private var until: UInt64 = 0
    private var askedSince: UInt64?
    /// What the last failure was.
    private(set) var last = OriginFailure.unreachable

    /// Nothing is known against the origin.
    var isUnblemished: Bool { failures == 0 }

    /// Whether a request that could be answered from what is stored may ask; if so while something is known against the
    /// origin, what becomes of it must be told.
    mutating func mayAsk(at now: UInt64) -> Bool {
        guard failures > 0 else { return true }
        if now < until { return false }
        if let askedSince, now < askedSince &+ Self.patience { return false }
        askedSince = now
        return true
    }

    /// The origin gave no answer, or one that says that it cannot.
    ///
    /// Those that were under way when it was left alone say nothing new.
    mutating func failed(_ failure: OriginFailure, at now: UInt64, random: UInt64) {
        last = failure
        guard failures == 0 || now >= until else { return }
        failures += 1
        until = now &+ Self.rule.nanoseconds(failures: failures, random: random)
        askedSince = nil
    }

    /// The origin answered.
    mutating func answered() { self = OriginBackoff() }

    /// The one who was to ask is gone: the next one may.
    mutating func abandoned() { askedSince = nil }
}

/// What is known of all origins, over all event loops.
///
/// There are as many as the configuration names.
final class OriginHealth: Sendable {
    private let origins = Locked<[Origin: OriginBackoff]>([:])
    private let ticks: @Sendable () -> UInt64
    private let random: @Sendable () -> UInt64

    /// - Parameter ticks: Nanoseconds of a clock that never goes back.
    init(ticks: @escaping @Sendable () -> UInt64, random: @escaping @Sendable () -> UInt64) {
        self.ticks = ticks
        self.random = random
    }

    /// What a request that could be answered from what is stored does.
    enum Leave: Equatable {
        case ask
        /// Ask, and tell what comes of it: others wait for that.
        case probe
        /// Do without the origin, which has failed so.
        case wait(OriginFailure)
    }

    /// Asks for leave.
    func leave(for origin: Origin) -> Leave {
        let now = ticks()
        return origins.withLock { origins in
            guard var known = origins[origin] else { return .ask }
            guard known.mayAsk(at: now) else { return .wait(known.last) }
            origins[origin] = known
            return .probe
        }
    }

    /// The origin failed.
    func failed(_ origin: Origin, _ failure: OriginFailure) {
        let (now, random) = (ticks(), random())
        origins.withLock { $0[origin, default: OriginBackoff()].failed(failure, at: now, random: random) }
    }

    /// The origin answered.
    func answered(_ origin: Origin) { origins.withLock { if !$0.isEmpty { $0[origin] = nil } } }

    /// A probe came to nothing.
    func abandoned(_ origin: Origin) { origins.withLock { $0[origin]?.abandoned() } }
}
