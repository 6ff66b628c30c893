#if canImport(MapKit) && !os(watchOS)
import MapKit
import TileStore

/// An overlay as a painter sees it: tiles instead of paths, rows from the north.
// Safe to share: MapKit itself uses an overlay on several threads, and CachingTileOverlay asks for that.
struct OverlaySource: PaintSource, @unchecked Sendable {
    let overlay: any CachingTileOverlay

    var layout: TileLayout {
        // Behind a lock, unlike the overlay's own properties, which change when it is given another cache.
        if let overlay = overlay as? CachedTileOverlay { return overlay.cache.layout }
        let first = min(max(overlay.minimumZ, 0), 28)
        return TileLayout(
            zooms: first...min(max(overlay.maximumZ, first), 28), tileSize: Double(overlay.tileSize.width),
            scales: overlay.scales, overzooms: overlay.overzooms)
    }

    func state(of tile: TileAddress) -> CachedTileState {
        if let overlay = overlay as? CachedTileOverlay { return overlay.cache.state(of: tile) }
        return overlay.cachedState(at: tile.path(isFlipped: overlay.isGeometryFlipped))
    }

    func data(for tile: TileAddress) -> Data? {
        if let overlay = overlay as? CachedTileOverlay { return overlay.cache.cachedData(for: tile) }
        return overlay.cachedData(at: tile.path(isFlipped: overlay.isGeometryFlipped))
    }

    func load(_ tile: TileAddress, refreshing: Bool) async throws -> LoadedTile {
        if let cache = (overlay as? CachedTileOverlay)?.cache {
            if let cache = cache as? MapCache { return try await cache.load(tile, refreshing: refreshing) }
            return LoadedTile(data: try await cache.loadTile(tile, refreshing: refreshing))
        }
        let path = tile.path(isFlipped: overlay.isGeometryFlipped)
        return try await withCheckedThrowingContinuation { continuation in
            // Called twice, it must not be the end of the app.
            let waiting = Locked<CheckedContinuation<LoadedTile, any Error>?>(continuation)
            overlay.loadTile(at: path) { data, error in
                let continuation = waiting.withLock { waiting in
                    defer { waiting = nil }
                    return waiting
                }
                if let error, data == nil {
                    continuation?.resume(throwing: error)
                } else {
                    continuation?.resume(returning: LoadedTile(data: data))
                }
            }
        }
    }
}
#endif
