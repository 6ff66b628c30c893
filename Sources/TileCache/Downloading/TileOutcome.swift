#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How one tile of a download was settled.
public enum TileOutcome: Sendable {
    /// It came from its server, with so many bytes.
    case fetched(bytes: Int)
    /// Its server said that the copy in the cache still holds (304).
    case revalidated
    /// It is fresh in the cache, and nobody was asked.
    case unchanged
    /// Its server said that it does not exist.
    case absent
    /// It could not be had, or not be stored.
    case failed(TileCacheError)
}

extension TileOutcome {
    /// How a tile that a download asked for was settled, by what came.
    init(of tile: CachedTile) {
        switch (tile.notStored, tile.data) {
        case (nil, _) where tile.origin == .revalidated: self = .revalidated
        case (_, nil): self = .absent
        case (nil, let data?): self = .fetched(bytes: data.count)
        case (let reason?, _?):
            self = .failed(
                reason as? TileCacheError
                    ?? TileCacheError(
                        .notStored, "\(tile.key): it could not be stored: \(reason)", key: tile.key, cause: reason))
        }
    }
}
