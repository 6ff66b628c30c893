import CacheEngine
package import HTTPCaching
package import TileStore

/// Which lists of a set are to be noted as used.
///
/// They are in memory while their tiles are looked at, and eviction, which takes first what was not used for long, would take them
/// before those tiles. Without them nobody finds the tiles when there is no server.
package final class ListUses: Sendable {
    /// When each was noted, in seconds.
    private let noted = Locked<[BlobDigest: Int64]>([:])

    /// A list is noted once in so many seconds.
    private static let interval: Int64 = 60
    /// So many are remembered; beyond that some are noted once more.
    private static let most = 4096

    package init() {}

    /// The keys whose use is to be noted now: those of lists, and of `set.json` with a root.
    ///
    /// A version's root is known without looking at `set.json` again.
    /// - Parameter lists: The root and the chunk that have led to a tile.
    package func due(_ lists: [BlobDigest], of parts: SetParts, at now: HTTPDate) -> [TileKey] {
        lists.enumerated().flatMap { number, list -> [TileKey] in
            guard isDue(list, at: now) else { return [] }
            return [parts.key(ofList: list)] + (number == 0 ? [parts.document.key] : [])
        }
    }

    private func isDue(_ list: BlobDigest, at now: HTTPDate) -> Bool {
        noted.withLock { noted in
            if let last = noted[list], (0..<Self.interval).contains(now.seconds &- last) { return false }
            if noted.count >= Self.most { noted.removeAll(keepingCapacity: true) }
            noted[list] = now.seconds
            return true
        }
    }
}
