public import TileStore

/// What is fetched around a place before somebody goes there.
public struct PrefetchPlan: Hashable, Sendable {
    /// Rings of tiles around the one in the middle.
    public var rings: ClosedRange<Int>
    /// How many zooms further out: the tiles above those of the rings.
    public var parents: Int
    /// Whether the tiles of the next zoom in, below the middle, are fetched too.
    public var nextZoom: Bool

    /// Makes a plan.
    public init(rings: ClosedRange<Int> = 0...2, parents: Int = 2, nextZoom: Bool = true) {
        self.rings = rings
        self.parents = parents
        self.nextZoom = nextZoom
    }

    /// The tiles, each once, in the order in which they are likely to be wanted.
    ///
    /// First what is further out, since it covers most; then ring by ring; then the next zoom in.
    func tiles(around center: TileAddress, zooms: ClosedRange<Int>) -> [TileAddress] {
        var seen = Set<TileAddress>()
        var tiles: [TileAddress] = []
        func add(_ tile: TileAddress?) {
            guard let tile, zooms.contains(tile.z), tiles.count < Self.most, seen.insert(tile).inserted else { return }
            tiles.append(tile)
        }
        let around = Array(center.rings(rings).prefix(Self.most))
        for distance in 1...max(1, min(parents, 28)) where distance <= parents {
            for tile in around { add(tile.ancestor(zoom: tile.z - distance)) }
        }
        for tile in around { add(tile) }
        if nextZoom {
            for tile in center.rings(0...1) { tile.children.forEach(add) }
        }
        return tiles
    }

    /// No plan has more tiles.
    private static let most = 4096
}

extension TileCache {
    /// Fetches what lies around a tile at low priority, so that it is there when somebody moves or zooms.
    ///
    /// Asks only for what is missing or stale. Visible tiles overtake it. In Low Data Mode it asks for nothing and ends with
    /// ``DownloadReport/stoppedBy``.
    /// - Parameters:
    ///   - source: Where the tiles come from.
    ///   - center: The tile in the middle of what somebody looks at.
    ///   - plan: What is wanted around it.
    ///   - byteBudget: It stops when so many bytes have come.
    ///   - requestBudget: It stops when so many requests have been sent, those that failed included.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/forbidden`` if the host's terms forbid it, with
    ///   ``TileCacheError/Code/invalidOptions`` for a negative budget; `StoreError` if the source's format is none.
    public func prefetch(
        _ source: TileSource, around center: TileAddress, plan: PrefetchPlan = PrefetchPlan(),
        byteBudget: Int = 4 << 20, requestBudget: Int = 100
    ) throws -> TileDownload {
        try checkBulk(source)
        // Under the keys that a look at the map asks for, whatever scale and format the caller's tile names.
        let middle = try TileAddress(
            z: center.z, x: center.x, y: center.y, scale: source.scale(for: center.scale), format: source.format)
        let keys = plan.tiles(around: middle, zooms: source.zooms).map { TileKey(source: source.name, tile: $0) }
        var options = DownloadOptions()
        options.concurrency = 2
        options.attempts = 1
        // It is of use soon or not at all.
        options.patience = .seconds(60)
        // Somebody looks at the place now; but Low Data Mode asks for just this not to be done.
        options.networks = NetworkUse(allowsExpensive: true, allowsConstrained: false)
        options.waitsForNetwork = false
        options.byteBudget = byteBudget
        options.requestBudget = requestBudget
        try options.check()
        try checkOpen()
        return TileDownload(self, source, .listed(keys[...]), total: keys.count, options)
    }

    /// Refreshes stale tiles of a source, those first that have been stale longest.
    ///
    /// For idle time. A tile that has not changed costs a request without a body. Blocks no caller: the list is made on
    /// a thread of the cache's own.
    /// - Parameters:
    ///   - source: Where the tiles come from.
    ///   - limit: At most so many tiles.
    ///   - selection: Which of the source's stale tiles; all if left out.
    ///   - options: How to go about it.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidOptions``; `StoreError`.
    public func refreshStale(
        _ source: TileSource, limit: Int = 500, where selection: EntrySelection = EntrySelection(),
        options: DownloadOptions = .refreshing
    ) async throws -> TileDownload {
        try options.check()
        try checkOpen()
        var selection = selection
        selection.source = source.name
        selection.stale = true
        let (store, wanted, zooms) = (self.store, selection, source.zooms)
        let keys = try await pool.run { () -> [TileKey] in
            var found: [(expires: Timestamp, key: TileKey)] = []
            try store.forEachEntry(where: wanted) { entry in
                guard let tile = entry.key.tile, zooms.contains(tile.z) else { return }
                found.append((entry.metadata.expires, entry.key))
            }
            found.sort { $0.expires < $1.expires }
            return found.prefix(max(0, limit)).map(\.key)
        }
        var options = options
        // These are tiles that somebody has looked at before.
        options.isBulk = false
        return TileDownload(self, source, .listed(keys[...]), total: keys.count, options)
    }

    /// Refuses to download from servers whose terms forbid it, and from what is no server.
    func checkBulk(_ source: TileSource) throws {
        try Self.checkBulk(source, allowed: configuration.bulkAllowedHosts)
    }

    private func checkOpen() throws {
        if isClosed { throw TileCacheError.closed }
    }
}
