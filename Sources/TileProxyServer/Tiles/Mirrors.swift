import CacheEngine
import TileStore

/// The mirrors of all sources, and which hosts are asked last because they failed lately.
///
/// A host that fails rests for two seconds, and for twice as long after each further failure, up to a minute. Meanwhile the
/// others are asked first. After it one request tries it; the others go on as before until it has answered.
final class Mirrors: Sendable {
    private struct Health {
        var failures: UInt64 = 0
        var restUntil: UInt64 = 0

        var rest: UInt64 { min(60, 1 << failures) * 1_000_000_000 }
    }

    private struct State {
        var bySource: [SourceName: [OriginHost]] = [:]
        /// Hosts of the configuration that have failed; those that are well are not in it.
        var health: [OriginHost: Health] = [:]
    }

    private let state = Locked(State())

    /// Takes over the mirrors of other sources, and forgets which hosts have failed.
    func adopt(_ sources: [SourceConfiguration]) {
        var state = State()
        for source in sources where !source.mirrors.isEmpty {
            state.bySource[source.name] = source.mirrors.compactMap { OriginHost($0) }
        }
        self.state.withLock { $0 = state }
    }

    /// The hosts to ask for a tile, the best first; only its own if the source has no mirrors.
    ///
    /// - Parameter now: Nanoseconds of a clock that never goes back.
    func order(_ own: OriginHost, of source: SourceName, at now: UInt64) -> [OriginHost] {
        state.withLock { state in
            guard let mirrors = state.bySource[source] else { return [own] }
            var (first, last): ([OriginHost], [OriginHost]) = ([], [])
            for host in CollectionOfOne(own) + mirrors.filter({ $0 != own }) {
                guard let health = state.health[host] else {
                    first.append(host)
                    continue
                }
                // One request at a time tries a host that has failed, so that not all wait for it. One that is not the first
                // to be asked tries nothing.
                guard health.restUntil <= now, first.isEmpty else {
                    last.append(host)
                    continue
                }
                first.append(host)
                state.health[host]?.restUntil = now &+ health.rest
            }
            return first + last
        }
    }

    /// Notes what came of asking a host.
    ///
    /// - Parameter pause: How long it asked to be left alone (`Retry-After`).
    func note(_ host: OriginHost, failed: Bool, pause: Duration? = nil, at now: UInt64) {
        state.withLock { state in
            guard failed else {
                state.health[host] = nil
                return
            }
            var health = state.health[host] ?? Health()
            health.failures = min(health.failures + 1, 6)
            health.restUntil =
                now &+ max(health.rest, UInt64(clamping: pause?.components.seconds ?? 0) &* 1_000_000_000)
            state.health[host] = health
        }
    }

    /// How long it is until the first of some hosts has rested.
    func shortestRest(of hosts: [OriginHost], at now: UInt64) -> Duration {
        let ends = state.withLock { state in hosts.map { state.health[$0]?.restUntil ?? 0 } }
        let end = ends.min() ?? 0
        return .nanoseconds(Int64(clamping: end > now ? end - now : 0))
    }

    /// Whether a source has a mirror of that name, on whatever port.
    func contains(hostName: String, of source: SourceName) -> Bool {
        state.withLock { $0.bySource[source] ?? [] }.contains { $0.name == hostName }
    }
}
