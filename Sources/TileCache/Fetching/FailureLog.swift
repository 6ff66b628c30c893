import CacheEngine
import TileStore

/// What failed lately and when it may be tried again: hosts as a whole, and single tiles.
///
/// Bounded: it remembers at most 1,024 hosts and 16,384 tiles, and forgets first what may be tried again soonest.
final class FailureLog: Sendable {
    /// A tile or host that is left alone for now.
    struct Wait: Equatable {
        /// Until when (nanoseconds of the clock that never goes back).
        var until: UInt64
        /// What the last failure was.
        var setback: FetchSetback
    }

    fileprivate struct Failed {
        var failures: Int
        var until: UInt64
        var setback: FetchSetback
    }

    fileprivate struct Host {
        var breaker = CircuitBreaker()
        var setback = FetchSetback.unreachable
    }

    /// What a request to a host may do.
    enum Pass: Equatable {
        /// It may go; for a probe, its outcome or ``FailureLog/abandoned(host:)`` must be told.
        case go(isProbe: Bool)
        case wait(Wait)
    }

    /// What a failed fetch says about its host.
    enum Blame: Equatable {
        /// Nothing: the host answered, and the failure is about this tile alone.
        case none
        /// Little: the host answered with an error that may be about this tile alone (5xx).
        case error
        /// It gave no answer, or has too much to do (429).
        case host
    }

    fileprivate struct State {
        var hosts: [String: Host] = [:]
        var tiles: [TileKey: Failed] = [:]
        /// When each host last gave an answer that was no failure.
        var answers: [String: UInt64] = [:]
        /// When each host was last reported to have a clock that is ahead.
        var clockReports: [String: UInt64] = [:]

        mutating func answered(_ host: String, at now: UInt64) {
            if answers.count >= FailureLog.mostHosts, answers[host] == nil { answers = [:] }
            answers[host] = now
            hosts[host]?.breaker.succeeded()
            if hosts[host]?.breaker.isUnblemished == true { hosts[host] = nil }
        }
    }

    fileprivate static let mostHosts = 1024
    fileprivate static let mostTiles = 16_384

    private let state = Locked(State())
    private let backoff: Backoff
    private let clock: CacheClock

    init(backoff: Backoff, clock: CacheClock) {
        self.backoff = backoff
        self.clock = clock
    }

    /// Whether a tile has to be left alone for now; `nil` if it may be asked for.
    func wait(for key: TileKey) -> Wait? {
        let now = clock.ticks()
        return state.withLock { state in
            guard let failed = state.tiles[key], now < failed.until else { return nil }
            return Wait(until: failed.until, setback: failed.setback)
        }
    }

    /// Whether a host has to be left alone for now; changes nothing.
    func wait(forHost host: String) -> Wait? {
        let now = clock.ticks()
        return state.withLock { state in
            guard let known = state.hosts[host], let until = known.breaker.wait(at: now) else { return nil }
            return Wait(until: until, setback: known.setback)
        }
    }

    /// Asks for leave to send a request to a host at once; one on probation lets one request through.
    func ask(host: String) -> Pass {
        let now = clock.ticks()
        return state.withLock { state in
            switch state.hosts[host]?.breaker.ask(at: now) {
            case nil, .go: .go(isProbe: false)
            case .probe: .go(isProbe: true)
            case .wait(let until): .wait(Wait(until: until, setback: state.hosts[host]?.setback ?? .unreachable))
            }
        }
    }

    /// The host answered, and the tile is settled: there, absent, or unchanged.
    func succeeded(_ key: TileKey, host: String) {
        let now = clock.ticks()
        state.withLock { state in
            state.answered(host, at: now)
            state.tiles[key] = nil
        }
    }

    /// The host answered, though not yet with the tile: it sent the request elsewhere.
    func answered(host: String) {
        let now = clock.ticks()
        state.withLock { $0.answered(host, at: now) }
    }

    /// Whether it is to be reported now that a host's clock is ahead: once an hour for each host.
    func reportsClock(of host: String) -> Bool {
        let now = clock.ticks()
        return state.withLock { state in
            if let last = state.clockReports[host], now < last &+ 3_600_000_000_000 { return false }
            if state.clockReports.count >= Self.mostHosts { state.clockReports = [:] }
            state.clockReports[host] = now
            return true
        }
    }

    /// Nothing became known of a probe: the caller went away.
    func abandoned(host: String) {
        let now = clock.ticks()
        state.withLock { $0.hosts[host]?.breaker.abandoned(at: now) }
    }

    /// A fetch failed.
    ///
    /// - Parameters:
    ///   - setback: What kind of failure it is.
    ///   - blame: What it says about the host, and not only about this tile.
    ///   - sentAt: When the request was sent (ticks). If the host has answered another one since, that this one was not
    ///     answered is about its tile.
    ///   - retryAfter: What the host asked for, already bounded.
    func failed(
        _ key: TileKey, host: String, setback: FetchSetback, blame: Blame, sentAt: UInt64? = nil, retryAfter: Duration?
    ) {
        let now = clock.ticks()
        let random = clock.random()
        let pause = retryAfter.map { now &+ $0.nanoseconds }
        state.withLock { state in
            let isKnown = state.tiles[key] != nil
            let failures = (state.tiles[key]?.failures ?? 0) + 1
            let wait = now &+ backoff.nanoseconds(failures: failures, random: random)
            if state.tiles.count >= Self.mostTiles { state.dropHalfOfTiles(now) }
            state.tiles[key] = Failed(failures: failures, until: max(wait, pause ?? 0), setback: setback)
            let isSilence = blame == .host && setback == .unreachable
            if isSilence, let sentAt, let answer = state.answers[host], answer > sentAt { return }
            if blame != .none || pause != nil {
                if state.hosts.count >= Self.mostHosts {
                    state.hosts = state.hosts.filter { $0.value.breaker.wait(at: now) != nil }
                }
                if state.hosts.count >= Self.mostHosts, state.hosts[host] == nil { state.dropHalfOfHosts(now) }
                state.hosts[host, default: Host()].setback = setback
                if blame == .error, pause == nil {
                    state.hosts[host, default: Host()].breaker
                        .answeredError(at: now, backoff: backoff, random: random, isKnown: isKnown)
                } else {
                    state.hosts[host, default: Host()].breaker
                        .failed(at: now, backoff: backoff, random: random, isKnown: isKnown, pause: pause)
                }
            } else {
                // It answered, if only about this tile.
                state.answered(host, at: now)
            }
        }
    }

    /// Lets everything be tried again at once, as when a person asks for it.
    func forget() { state.withLock { $0 = State() } }
}

extension FailureLog.State {
    /// Of the hosts that are left alone at the moment.
    fileprivate mutating func dropHalfOfHosts(_ now: UInt64) {
        let waits = hosts.mapValues { $0.breaker.wait(at: now) ?? 0 }
        for host in waits.keys.sorted(by: { waits[$0, default: 0] < waits[$1, default: 0] }).prefix(hosts.count / 2) {
            hosts[host] = nil
        }
    }

    fileprivate mutating func dropHalfOfTiles(_ now: UInt64) {
        tiles = tiles.filter { $0.value.until > now }
        guard tiles.count >= FailureLog.mostTiles / 2 else { return }
        let times = tiles.values.map(\.until).sorted()
        let middle = times[times.count / 2]
        tiles = tiles.filter { $0.value.until > middle }
    }
}
