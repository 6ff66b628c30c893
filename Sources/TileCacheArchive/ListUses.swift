import CacheEngine
package import HTTPCaching
package import TileArchive
import TileSets
package import TileStore

/// A list that has led to a tile.
package enum UsedList: Sendable {
    case root(SetVersion)
    case chunk(Int, of: SetListing)

    /// The name of its JSON.
    var digest: BlobDigest {
        switch self {
        case .root(let version): version.root
        case .chunk(let number, let listing): listing.items[number].digest
        }
    }
}

/// Which lists of a set are to be looked after in the cache.
///
/// They are in memory while their tiles are looked at, and eviction, which takes first what was not used for long, would take them
/// before those tiles; somebody may have removed them, or they came when nothing was stored. Without them nobody finds the tiles when
/// there is no server.
package final class ListUses: Sendable {
    private struct Use: Hashable {
        /// A source may be used with several caches.
        let cache: UInt64
        let list: BlobDigest
    }

    /// When each was noted, in seconds.
    private let noted = Locked<[Use: Int64]>([:])

    /// A list is looked after once in so many seconds.
    private static let interval: Int64 = 60
    /// So many are remembered; beyond that some are noted once more.
    private static let most = 4096

    package init() {}

    /// Notes the use of the lists on a way, and of `set.json` with a root, in the cache; each once in a while.
    ///
    /// A version's root is known without looking at `set.json` again.
    /// - Parameters:
    ///   - way: It has come to a tile, or to that there is none.
    ///   - cache: What tells the cache from others, where there are several.
    ///   - isCertain: Whether all of them are looked after now: a download is not done without them.
    ///   - touch: Notes the use of an entry; `false` if there is none.
    /// - Returns: Those that are not there, which are looked for again until ``note(_:in:at:)`` says that they were had.
    package func missing(
        on way: SetSteps, of parts: SetParts, in cache: UInt64 = 0, isCertain: Bool = false, at now: HTTPDate,
        _ touch: (TileKey) throws -> Bool
    ) rethrows -> [UsedList] {
        guard let ends = way.ends,
            isCertain || isDue(ends.root, cache, now) || ends.chunk.map({ isDue($0, cache, now) }) ?? false
        else { return [] }
        return try way.lists.filter { list in
            guard isCertain || isDue(list.digest, cache, now) else { return false }
            if case .root = list { _ = try touch(parts.document.key) }
            guard try touch(parts.key(of: list)) else { return true }
            note(list, in: cache, at: now)
            return false
        }
    }

    /// A list was had: it is in the cache, or its server forbids that.
    package func note(_ list: UsedList, in cache: UInt64 = 0, at now: HTTPDate) {
        noted.withLock { noted in
            if noted.count >= Self.most { noted.removeAll(keepingCapacity: true) }
            noted[Use(cache: cache, list: list.digest)] = now.seconds
        }
    }

    private func isDue(_ list: BlobDigest, _ cache: UInt64, _ now: HTTPDate) -> Bool {
        noted.withLock { noted in
            guard let last = noted[Use(cache: cache, list: list)] else { return true }
            return !(0..<Self.interval).contains(now.seconds &- last)
        }
    }
}
