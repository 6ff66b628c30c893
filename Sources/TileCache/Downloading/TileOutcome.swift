import HTTPTypes

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
    /// How a resource that a download asked for was settled, by what came.
    init(of response: CachedResponse, _ key: TileKey) {
        let isThere = response.head.status == .ok
        switch (response.notStored, response.origin) {
        case (_, _) where !isThere: self = .absent
        case (nil, .revalidated): self = .revalidated
        // Somebody else has brought it since.
        case (nil, .stored): self = .unchanged
        case (nil, _): self = .fetched(bytes: response.body.count)
        case (let reason?, _): self = .failed(.notStored(key, reason))
        }
    }

    /// How a tile that a download asked for was settled, by what came.
    init(of tile: CachedTile) {
        switch (tile.notStored, tile.data) {
        case (nil, _) where tile.origin == .revalidated: self = .revalidated
        case (_, nil): self = .absent
        // A part of an archive, or a file of a set, that never changes.
        case (nil, _) where tile.origin == .memory || tile.origin == .disk: self = .unchanged
        case (nil, let data?): self = .fetched(bytes: data.count)
        case (let reason?, _?):
            self = .failed(.notStored(tile.key, reason))
        }
    }
}

extension TileCacheError {
    /// Something came and could not be stored.
    fileprivate static func notStored(_ key: TileKey, _ reason: any Error) -> TileCacheError {
        reason as? TileCacheError
            ?? TileCacheError(.notStored, "\(key): it could not be stored: \(reason)", key: key, cause: reason)
    }
}
