#if canImport(MapKit) && !os(watchOS)
public import MapKit
import TileCache
import TileStore

// Safe to share: what it adds to MKTileOverlay is behind the lock of `state`.
/// A map overlay whose tiles come from a ``MapCache``, or from a cache of your own.
///
/// Give it to a map view with `mapView.useCache(_:)`, and to ``CachedTileOverlayRenderer`` for drawing without flicker.
/// MapKit's own `MKTileOverlayRenderer` can draw it too, with what that does not know: no stand-ins for tiles that are
/// missing, nothing beyond the last zoom.
public final class CachedTileOverlay: MKTileOverlay, CachingTileOverlay, @unchecked Sendable {
    private struct State {
        var cache: any MapCaching
        var watchers: [UInt64: @Sendable () -> Void] = [:]
        var lastWatcher: UInt64 = 0
    }
    private let state: Locked<State>

    /// An overlay with the tiles of a cache.
    public init(_ cache: any MapCaching) {
        state = Locked(State(cache: cache))
        // Not the template: there may be secrets in it.
        super.init(urlTemplate: nil)
        takeOver(cache)
    }

    /// An overlay over a ``MapCache``, or over a cache of its own that a configuration names.
    ///
    /// - Throws: What ``MapCache/init(_:transport:)`` throws.
    public convenience init(_ configuration: MapCacheConfiguration) throws {
        self.init(try MapCache(configuration))
    }

    /// Where its tiles come from.
    public var cache: any MapCaching { state.withLock { $0.cache } }

    /// Takes its tiles from elsewhere from now on, and has the map drawn again.
    ///
    /// For switching between maps without another overlay. On the main thread, since MapKit reads zooms and tile size
    /// there.
    @MainActor public func use(_ cache: any MapCaching) {
        state.withLock { $0.cache = cache }
        takeOver(cache)
        reload()
    }

    /// Has everything drawn again from what the cache has now; for after it was cleared or filled from elsewhere.
    public func reload() {
        for watcher in state.withLock({ Array($0.watchers.values) }) { watcher() }
    }

    private func takeOver(_ cache: any MapCaching) {
        let layout = cache.layout
        tileSize = CGSize(width: layout.tileSize, height: layout.tileSize)
        minimumZ = layout.zooms.lowerBound
        maximumZ = layout.zooms.upperBound
        // So that paths, and what they become in a template, have the rows that MapKit's users expect.
        isGeometryFlipped = (cache as? MapCache)?.configuration.isGeometryFlipped ?? false
    }

    /// Calls a closure whenever all is to be drawn again; returns what ends that.
    func watch(_ onReload: @escaping @Sendable () -> Void) -> UInt64 {
        state.withLock { state in
            state.lastWatcher += 1
            state.watchers[state.lastWatcher] = onReload
            return state.lastWatcher
        }
    }

    func unwatch(_ number: UInt64) { state.withLock { _ = $0.watchers.removeValue(forKey: number) } }

    // MARK: What MapKit and the renderer ask

    private func tile(_ path: MKTileOverlayPath, _ cache: any MapCaching) -> TileAddress? {
        TileAddress(path, isFlipped: isGeometryFlipped, layout: cache.layout)
    }

    /// Whether the tiles of the last zoom are enlarged beyond it.
    public var overzooms: Bool { cache.layout.overzooms }
    /// The pixels per point that there are tiles for.
    public var scales: ClosedRange<Int> { cache.layout.scales }

    /// The URL of a tile, secrets included; `file:///dev/null` for a tile that has none.
    public override func url(forTilePath path: MKTileOverlayPath) -> URL {
        let cache = self.cache
        return tile(path, cache).flatMap { cache.url(for: $0) } ?? URL(fileURLWithPath: "/dev/null")
    }

    /// The bytes of a tile if the cache has them; does not wait for a network.
    public func cachedData(at path: MKTileOverlayPath) -> Data? {
        let cache = self.cache
        return tile(path, cache).flatMap { cache.cachedData(for: $0) }
    }

    /// What is there of a tile; costs a look at tables in memory.
    public func cachedState(at path: MKTileOverlayPath) -> CachedTileState {
        let cache = self.cache
        return tile(path, cache).map { cache.state(of: $0) } ?? .missing
    }

    /// Gets a tile, from the cache or its server, and calls `result` once, on any thread.
    ///
    /// With neither bytes nor error if there is no such tile.
    public override func loadTile(
        at path: MKTileOverlayPath, result: @escaping @Sendable (Data?, (any Error)?) -> Void
    ) {
        let cache = self.cache
        guard let tile = tile(path, cache) else {
            result(nil, TileCacheError(.outOfBounds, "there is no tile \(path.z)/\(path.x)/\(path.y)"))
            return
        }
        Task {
            do { result(try await cache.loadTile(tile, refreshing: false), nil) } catch { result(nil, error) }
        }
    }
}
#endif
