import TileCache
public import TileStore

extension MapCache {
    /// How large a cache is.
    public struct Size: Hashable, Sendable {
        /// Bytes that the tiles of all maps in this cache take on the disk, in whole blocks.
        public var diskBytes: Int
        /// Bytes of this map's tiles, those that are alike counted each time.
        public var tileBytes: Int
        /// This map's tiles.
        public var tiles: Int
    }

    /// How large the cache is.
    ///
    /// Exact, and costs about 25 ms for a million tiles, on a thread of the cache's own.
    /// - Throws: `StoreError`.
    public func size() async throws -> Size {
        if let openingError { throw openingError }
        let (store, name) = (cache.store, source.name)
        return try await cache.onFileThread {
            let figures = try store.statistics()
            let own = figures.sources.first { $0.name == name }
            return Size(
                diskBytes: figures.allocatedBytes, tileBytes: own?.bytes ?? 0, tiles: own?.entries ?? 0)
        }
    }

    /// Removes this map's tiles; other maps in the cache stay.
    ///
    /// Space is free when it returns. Overlays of this map should be told: see `CachedTileOverlay.reload()`.
    /// - Parameter includingRegions: Whether the map's downloaded regions are given up too; what a styled map has pinned
    ///   beside others stays.
    /// - Throws: `StoreError`.
    @discardableResult
    public func clear(includingRegions: Bool = false) async throws -> RemovalReport {
        if let openingError { throw openingError }
        let (store, name) = (cache.store, source.name)
        return try await cache.onFileThread {
            var report = RemovalReport()
            if includingRegions {
                for region in try store.regions() where region.source == name && region.isOfOneSource {
                    if let removed = try store.removeRegion(region.name) { report += removed }
                }
            }
            var all = EntrySelection()
            all.source = name
            report += try store.remove(all)
            return report
        }
    }
}
