import CacheEngine
import TileStore

/// The fills of the tile routes, over all event loops.
typealias TileFlights = Flights<TileFlight, FillEnd>

/// What requests for a tile share a fill by: the tile, and the configuration of its source.
///
/// Without the latter a request that comes after a reload would wait for an answer of the server that was configured before.
struct TileFlight: Hashable, Sendable {
    let key: TileKey
    /// The number of the source's configuration.
    let generation: UInt64
}

/// How many fills go on to each host though nobody waits for them.
final class LoneFills: Sendable {
    private let most: Int
    private let counts = Locked<[String: Int]>([:])

    /// - Parameter most: So many at each host, at most.
    init(most: Int) { self.most = most }

    /// Takes a place at a host; `false` if there is none.
    func take(_ host: String) -> Bool {
        counts.withLock { counts in
            guard counts[host, default: 0] < most else { return false }
            counts[host, default: 0] += 1
            return true
        }
    }

    /// Gives a place back.
    func give(_ host: String) {
        counts.withLock { counts in
            guard let count = counts[host] else { return }
            counts[host] = count > 1 ? count - 1 : nil
        }
    }

    /// How many there are.
    var count: Int { counts.withLock { $0.values.reduce(0, +) } }
}
