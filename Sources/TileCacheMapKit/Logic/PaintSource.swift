import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A tile that was asked for.
struct LoadedTile: Sendable {
    /// Its bytes; `nil` if there is no such tile.
    var data: Data?
    /// Whether its server could not be asked, and this is what was there before.
    var isOld = false
    /// Which bytes they are, as ``CachedTileState/version`` of the same would say; `nil` where the source does not tell.
    var version: Int?
}

/// Where a painter has tiles from.
protocol PaintSource: Sendable {
    var layout: TileLayout { get }
    /// What is there; must not wait for a network.
    func state(of tile: TileAddress) -> CachedTileState
    /// The bytes that are there; must not wait for a network.
    func data(for tile: TileAddress) -> Data?
    /// Gets a tile; for a refresh by asking its server even if something is there.
    func load(_ tile: TileAddress, refreshing: Bool) async throws -> LoadedTile
}

extension MapCache: PaintSource {
    func data(for tile: TileAddress) -> Data? { cachedData(for: tile) }
}
