import CacheEngine
import TileStore

/// Which hosts of sources that have mirrors are asked last, because they failed lately.
///
/// A host that fails rests for two seconds, and for twice as long after each further failure, up to a minute. Meanwhile the
/// others are asked first. After it one request tries it; the others go on as before until it has answered.
final class Mirrors: Sendable {
    private struct Health {
        var failures: UInt64 = 0
        var restUntil: UInt64 = 0

        var rest: UInt64 { min(60, 1 << failures) * 1_000_000_000 }
    }

    /// Hosts that have failed; those that are well are not in it.
    private let health = Locked<[OriginHost: Health]>([:])

    /// Forgets which hosts have failed, as when the configuration is read again.
    func forget() { health.withLock { $0 = [:] } }

    /// The hosts to ask for a tile, the best first.
    ///
    /// - Parameters:
    ///   - own: The host that the source's template names.
    ///   - others: Those that stand for it.
    ///   - now: Nanoseconds of a clock that never goes back.
    func order(_ own: OriginHost, _ others: [OriginHost], at now: UInt64) -> [OriginHost] {
        health.withLock { known in
            var (first, last): ([OriginHost], [OriginHost]) = ([], [])
            for host in CollectionOfOne(own) + others.filter({ $0 != own }) {
                guard let health = known[host] else {
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
                known[host]?.restUntil = now &+ health.rest
            }
            return first + last
        }
    }

    /// Notes what came of asking a host.
    ///
    /// - Parameter pause: How long it asked to be left alone (`Retry-After`).
    func note(_ host: OriginHost, failed: Bool, pause: Duration? = nil, at now: UInt64) {
        self.health.withLock { known in
            guard failed else {
                known[host] = nil
                return
            }
            var health = known[host] ?? Health()
            health.failures = min(health.failures + 1, 6)
            health.restUntil =
                now &+ max(health.rest, UInt64(clamping: pause?.components.seconds ?? 0) &* 1_000_000_000)
            known[host] = health
        }
    }

    /// How long it is until the first of some hosts has rested.
    func shortestRest(of hosts: [OriginHost], at now: UInt64) -> Duration {
        let ends = health.withLock { known in hosts.map { known[$0]?.restUntil ?? 0 } }
        let end = ends.min() ?? 0
        return .nanoseconds(Int64(clamping: end > now ? end - now : 0))
    }
}
