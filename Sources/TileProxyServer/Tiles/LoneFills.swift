import TileStore

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
