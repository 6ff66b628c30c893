import TileCache
import TileStore

// What the quick start of the library MapCache (merlos) uses, under its names, so that an app can change its import and
// nothing else. Its other names are in Docs/migrating-from-mapcache.md, each with the one that does the same here.

/// The name that the library MapCache has for ``MapCacheConfiguration``.
public typealias MapCacheConfig = MapCacheConfiguration

extension MapCacheConfiguration {
    /// The same as ``init(urlTemplate:)``.
    public init(withUrlTemplate urlTemplate: String) { self.init(urlTemplate: urlTemplate) }
}

extension MapCache {
    /// Opens the cache that a configuration names, or makes it, where an error cannot be thrown.
    ///
    /// Where ``init(_:transport:)`` would throw, the map has no tiles: each fails with that error, and ``openingError``
    /// is the same. A new app uses ``init(_:transport:)``.
    public convenience init(withConfig configuration: MapCacheConfiguration) {
        let parts: Parts
        do { parts = try Parts(configuration, URLSessionTransport()) } catch {
            parts = Parts(configuration, unavailable: error)
        }
        self.init(configuration, parts)
    }
}

extension MapCache.Parts {
    /// A cache and a source that have nothing, because of an error.
    init(_ configuration: MapCacheConfiguration, unavailable error: any Error) {
        cache = TileCache(store: TileStore(neverOpenedAt: configuration.name))
        layout = configuration.layout
        source = TileSource(
            unavailable: SourceName(unchecked: "unavailable"), local: UnavailableTiles(error: error),
            zooms: 0...28)
        openingError = error
    }
}

/// Tiles that cannot be had for one and the same reason.
private final class UnavailableTiles: LocalTiles {
    private let error: any Error

    init(error: any Error) { self.error = error }

    func tile(_ address: TileAddress) throws -> LocalTile? { throw error }
    func tileNow(_ address: TileAddress) throws -> ImmediateTile { throw error }
}
