public import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Where an overlay has its tiles from: ``MapCache``, or a cache of your own.
///
/// Tiles are addressed with rows from the north, whatever their server does. Every function may be called on any thread
/// and by several at a time.
public protocol MapCaching: Sendable {
    /// Zooms, tile size, scales.
    var layout: TileLayout { get }

    /// What is there of a tile.
    ///
    /// Called for every tile of every drawing, and for its neighbours: must be cheap, and must not wait for a network.
    /// By default a tile whose bytes are there is fresh, and nothing is known of others.
    func state(of tile: TileAddress) -> CachedTileState

    /// The bytes of a tile if they are there; must not wait for a network.
    func cachedData(for tile: TileAddress) -> Data?

    /// Gets a tile.
    ///
    /// - Parameters:
    ///   - tile: Which.
    ///   - refreshing: Whether its server is to be asked although there is something.
    /// - Returns: Its bytes; `nil` if there is no such tile.
    /// - Throws: Why there is none.
    func loadTile(_ tile: TileAddress, refreshing: Bool) async throws -> Data?

    /// The URL that a tile is asked for with; `nil` where there is none.
    ///
    /// May hold secrets: do not print it.
    func url(for tile: TileAddress) -> URL?
}

extension MapCaching {
    /// Fresh where there are bytes, else missing.
    public func state(of tile: TileAddress) -> CachedTileState {
        cachedData(for: tile) == nil ? .missing : CachedTileState(.picture)
    }

    /// `nil`: most who keep tiles need no URL to be known outside.
    public func url(for tile: TileAddress) -> URL? { nil }
}
