public import TileCache
import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A map's tiles in a cache, as an overlay wants them.
///
/// A `TileCache` and a `TileSource` with what MapKit asks on top; both are there for what is not repeated here. Safe
/// from any thread.
public final class MapCache: MapCaching {
    /// What it was made from.
    public let configuration: MapCacheConfiguration
    /// The cache, with its limits, regions, prefetching and figures.
    public let cache: TileCache
    /// The source in that cache.
    public let source: TileSource
    /// Zooms, tile size, scales.
    public let layout: TileLayout
    /// Why this map has no tiles, if its cache could not be opened; only ``init(withConfig:)`` makes such a map.
    public let openingError: (any Error)?

    /// What a map is made of.
    struct Parts {
        var cache: TileCache
        var source: TileSource
        var layout: TileLayout
        var openingError: (any Error)?
    }

    init(_ configuration: MapCacheConfiguration, _ parts: Parts) {
        self.configuration = configuration
        cache = parts.cache
        source = parts.source
        layout = parts.layout
        openingError = parts.openingError
    }

    /// Opens the cache that a configuration names, or makes it.
    ///
    /// Blocks for the time that reading the manifest takes: about a third of a second for a million tiles.
    /// - Throws: `TileCacheError` for a configuration that is wrong, `StoreError` for a cache that cannot be opened.
    public convenience init(
        _ configuration: MapCacheConfiguration, transport: any TileTransport = URLSessionTransport()
    ) throws {
        self.init(configuration, try Parts(configuration, transport))
    }

    /// Uses a cache that is open already: several maps in one folder, with one limit for all.
    ///
    /// Name, place, capacity and user agent of the configuration are then those of the cache.
    /// - Throws: `TileCacheError` for a configuration that is wrong.
    public convenience init(_ configuration: MapCacheConfiguration, cache: TileCache) throws {
        self.init(configuration, try Parts(configuration, cache))
    }

    /// An imported package, or any other cache, shown without ever asking anybody.
    ///
    /// The cache may be in the app's bundle: it is opened for reading alone. `tilegc import` makes one from an MBTiles or
    /// PMTiles file, `TileArchive` does so in an app.
    /// - Parameters:
    ///   - folder: The cache's folder.
    ///   - sourceName: Which of its sources; `nil` if it has only one.
    /// - Throws: `StoreError`; `TileCacheError` if there is no such source.
    public convenience init(offline folder: URL, sourceName: String? = nil) throws {
        var options = TileCacheConfiguration()
        options.store.readOnly = true
        options.store.createIfMissing = false
        let cache = try TileCache(at: folder.path, configuration: options)
        let sources = try cache.store.statistics().sources
        guard let found = sources.first(where: { sourceName == nil || $0.name.description == sourceName }),
            sourceName != nil || sources.count == 1, let zooms = found.zooms
        else {
            throw TileCacheError(
                .invalidSource,
                "\(folder.lastPathComponent) has \(sources.isEmpty ? "no tiles" : "the sources ")"
                    + sources.map(\.name.description).joined(separator: ", ")
                    + (sourceName.map { ", and no tiles of \($0)" } ?? "; name one of them"))
        }
        // Never asked for: what is not there is not there.
        var configuration = MapCacheConfiguration(urlTemplate: "file:///{z}/{x}/{y}{r}")
        configuration.sourceName = found.name.description
        configuration.minimumZ = zooms.lowerBound
        configuration.maximumZ = zooms.upperBound
        configuration.loadMode = .cacheOnly
        configuration.scales = try Self.scales(of: found.name, in: cache.store)
        try self.init(configuration, cache: cache)
    }

    /// The scales that a source's tiles are in.
    private static func scales(of source: SourceName, in store: TileStore) throws -> ClosedRange<Int> {
        var selection = EntrySelection()
        selection.source = source
        var found: ClosedRange<Int>?
        try store.forEachEntry(where: selection) { entry in
            guard let scale = entry.key.tile?.scale else { return }
            found = min(found?.lowerBound ?? scale, scale)...max(found?.upperBound ?? scale, scale)
        }
        return found ?? 1...1
    }

    // MARK: Tiles

    /// `nil` for a tile that the source cannot have: there is nothing of it, and nothing to ask for.
    private func key(_ tile: TileAddress) -> TileKey? {
        try? source.key(z: tile.z, x: tile.x, y: tile.y, scale: tile.scale)
    }

    /// What is there of a tile, and whether the mode wants it asked for again.
    ///
    /// A stale tile whose server forbids its use before it was asked (`must-revalidate`, `no-cache`) is missing in
    /// `LoadMode.standard`, unless a region pins it or `TileSource.offlineUse` allows it. Costs a look at the tables in
    /// memory; for an archive reading the tile. A cache that cannot be read has nothing.
    public func state(of tile: TileAddress) -> CachedTileState {
        guard let key = key(tile) else { return .missing }
        if let local = source.local, let address = key.tile {
            // Nobody has to be asked for what an archive does not have.
            return CachedTileState(picture(address, in: local) == nil ? .absent : .picture)
        }
        guard configuration.loadMode != .serverOnly else { return .missing }
        if let remote = source.remote { return (try? state(of: key, remote)) ?? .missing }
        guard let entry = (try? cache.store.entry(for: key)) ?? nil else { return .missing }
        return state(of: entry)
    }

    /// What is there of a tile that lies in a file at a server.
    private func state(of key: TileKey, _ remote: any TilesAtServer) throws -> CachedTileState {
        func counts(_ isStale: Bool) -> Bool {
            switch configuration.loadMode {
            case .cacheOnly, .cacheThenServer: false
            case .serverThenCache, .serverOnly: true
            case .standard: isStale
            }
        }
        switch try remote.state(of: key, in: cache) {
        case .unknown: return .missing
        case .absent(let isStale): return CachedTileState(.absent, isStale: counts(isStale))
        case .entry(let entry, let isStale):
            return CachedTileState(
                .picture, isStale: counts(isStale), isPinned: entry.isPinned, version: entry.blob?.hashValue ?? 0)
        }
    }

    private func state(of entry: TileEntry) -> CachedTileState {
        let isStale: Bool
        switch configuration.loadMode {
        case .cacheOnly, .cacheThenServer: isStale = false
        // The server's word first: what is here is good only until that has come.
        case .serverThenCache, .serverOnly: isStale = true
        case .standard:
            let response = entry.metadata.response
            isStale = response.noCache || entry.metadata.isStale(at: cache.now())
            let isForbidden = isStale && (response.noCache || response.mustRevalidate)
            if isForbidden, !entry.isPinned, source.offlineUse != .always { return .missing }
        }
        guard let blob = entry.blob else {
            return CachedTileState(.absent, isStale: isStale, isPinned: entry.isPinned)
        }
        return CachedTileState(.picture, isStale: isStale, isPinned: entry.isPinned, version: blob.hashValue)
    }

    /// The bytes of a tile that ``state(of:)`` knows to be there, stale or not, without a content coding.
    ///
    /// Reads the disk at most. Nothing with `LoadMode.serverOnly`.
    public func cachedData(for tile: TileAddress) -> Data? {
        guard let key = key(tile) else { return nil }
        if let local = source.local, let address = key.tile {
            return picture(address, in: local).flatMap { try? configuration.transform?($0, tile) ?? $0 }
        }
        guard configuration.loadMode != .serverOnly else { return nil }
        if let remote = source.remote {
            guard case .entry(let entry, let isStale) = try? remote.state(of: key, in: cache),
                let stored = (try? cache.store.read(entry.key)) ?? nil
            else { return nil }
            cache.tell(.hit(entry.key, isStale: isStale))
            return try? plain(CachedTile(stored: stored), tile)
        }
        guard let stored = (try? cache.store.read(key)) ?? nil else { return nil }
        let state = state(of: stored.entry)
        guard state.content == .picture else { return nil }
        cache.tell(.hit(key, isStale: state.isStale))
        return try? plain(CachedTile(stored: stored), tile)
    }

    // MARK: Tiles of an archive

    /// The bytes of an archive's tile; `nil` for one that it does not have or cannot give, and for what is no picture.
    ///
    /// Waits for the disk. ``loadTile(_:refreshing:)`` says why a tile cannot be had.
    private func picture(_ address: TileAddress, in local: any LocalTiles) -> Data? {
        let found: LocalTile?
        do {
            found =
                switch try local.tileNow(address) {
                case .tile(let tile): tile
                case .absent: nil
                case .mustWait: try local.tile(address)
                }
        } catch { return nil }
        guard let found, found.contentEncoding == nil, found.data.count <= source.bodyLimit else { return nil }
        return found.data
    }

    // MARK: Loading

    /// Gets a tile by the configuration's mode.
    ///
    /// A refresh asks the server by a conditional request. However many ask for one tile, one request is sent.
    public func loadTile(_ tile: TileAddress, refreshing: Bool) async throws -> Data? {
        try await load(tile, refreshing: refreshing).data
    }

    /// Gets a tile, and tells whether that is only what was there before.
    func load(_ tile: TileAddress, refreshing: Bool) async throws -> LoadedTile {
        let key = try source.key(z: tile.z, x: tile.x, y: tile.y, scale: tile.scale)
        let mode = configuration.loadMode
        // What lies in a file at a server never changes within a version, and that is looked after by itself.
        let asked = refreshing && mode == .standard && source.remote == nil ? .serverThenCache : mode
        let priority = refreshing ? FetchPriority.refresh : .visible
        guard let found = try await cache.tile(source, key, mode: asked, priority: priority) else {
            throw TileCacheError(.noAnswer, "\(key) is not in the cache, and no server may be asked", key: key)
        }
        let isOld = if case .stale = found.origin { mode == .standard || mode == .serverThenCache } else { false }
        let version =
            source.local == nil ? found.data.map { $0.withUnsafeBytes { BlobDigest(hashing: $0) }.hashValue } : nil
        return LoadedTile(data: try plain(found, tile), isOld: isOld, version: version)
    }

    /// Where a tile is asked for, secrets included; `nil` for the tiles of an archive.
    public func url(for tile: TileAddress) -> URL? {
        guard source.local == nil, source.remote == nil, let address = key(tile)?.tile else { return nil }
        let place = source.template.url(for: address)
        return place.scheme == .file ? URL(fileURLWithPath: place.path) : URL(string: place.text)
    }

    /// As a decoder of pictures wants them, and as the configuration's hook makes them.
    private func plain(_ found: CachedTile, _ tile: TileAddress) throws -> Data? {
        guard let data = try found.decodedData(limit: source.bodyLimit) else { return nil }
        return try configuration.transform?(data, tile) ?? data
    }
}

extension MapCache.Parts {
    /// Opens the cache that a configuration names, or makes it.
    init(_ configuration: MapCacheConfiguration, _ transport: any TileTransport) throws {
        var options = TileCacheConfiguration()
        options.store.capacity = configuration.capacity
        options.userAgent = configuration.userAgent
        guard let base = configuration.baseURL else {
            let folder = try TileCache.folder(named: configuration.name, in: configuration.place)
            try self.init(configuration, TileCache(at: folder, transport: transport, configuration: options))
            return
        }
        // Only a name that is none of a path's special parts may lead below the app's own folder.
        let folder = base.appendingPathComponent(try SourceName(configuration.name).description, isDirectory: true)
        // What is no file URL is refused there.
        try self.init(configuration, TileCache(at: folder, transport: transport, configuration: options))
    }

    /// Uses a cache that is open already.
    init(_ configuration: MapCacheConfiguration, _ cache: TileCache) throws {
        self.cache = cache
        let name =
            configuration.sourceName
            ?? "map-"
            + cache.store.fingerprint(of: configuration.location).description.prefix(16)
        source = try configuration.source(named: name)
        layout = configuration.layout
        layout.zooms = source.zooms
        // A template without a place for the scale has one picture of a tile for every screen.
        let finest = try source.key(z: source.zooms.lowerBound, x: 0, y: 0, scale: layout.scales.upperBound)
        if finest.tile?.scale != layout.scales.upperBound { layout.scales = 1...1 }
    }
}
