public import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How large a download will be, by what a few of its tiles weigh.
public struct SizeEstimate: Hashable, Sendable {
    /// All tiles of the region.
    public var tiles: Int
    /// How many of them were looked at.
    public var samples: Int
    /// Bytes that all tiles together have, equal ones counted each time.
    public var bytes: Int
    /// Bytes that they will take in the cache, where equal ones are stored once, as far as the samples show it.
    public var storedBytes: Int
}

extension TileSource {
    /// What a shape covers of the source's zooms: counted exactly, before anything is asked for.
    ///
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidRegion``.
    public func coverage(_ shape: RegionShape, zooms: ClosedRange<Int>, scale: Int = 1) throws -> TileCoverage {
        guard zooms.overlaps(self.zooms) else {
            throw TileCacheError(
                .invalidRegion,
                "source \(name) has zooms \(self.zooms.lowerBound) to \(self.zooms.upperBound), none of "
                    + "\(zooms.lowerBound) to \(zooms.upperBound)")
        }
        do {
            let coverage = try TileCoverage(
                shape, zooms: zooms.clamped(to: self.zooms), scale: self.scale(for: scale), format: format)
            guard coverage.tileCount > 0 else {
                throw TileCacheError(
                    .invalidRegion, "the shape covers no tile: the map ends at 85.05 degrees north and south")
            }
            return coverage
        } catch let error as StoreError {
            throw TileCacheError(.invalidRegion, error.message, cause: error)
        }
    }
}

extension TileCache {
    /// Downloads a region, and pins it if it is given a name.
    ///
    /// Asks for what is missing or stale and for nothing that is fresh, so that the same call resumes a download that was
    /// interrupted, and brings an old region up to date: what has not changed costs a 304. Pinned tiles are kept whatever
    /// the limits say, and served when offline whatever their age. A region of that name is replaced if it is this source's.
    /// A download with a name outlives the process: ``downloads()`` lists it until all is there.
    /// - Parameters:
    ///   - source: Where the tiles come from.
    ///   - coverage: Which tiles; see ``TileSource/coverage(_:zooms:scale:)``.
    ///   - name: The region's name in the cache; `nil` for one that eviction may take.
    ///   - options: How to go about it.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/forbidden`` if the host's terms forbid it, with
    ///   ``TileCacheError/Code/invalidRegion`` if it cannot be pinned or another source has a region of that name, with ``TileCacheError/Code/invalidOptions`` for
    ///   options that make no sense; `StoreError`.
    @discardableResult
    public func download(
        _ source: TileSource, _ coverage: TileCoverage, named name: String? = nil,
        options: DownloadOptions = DownloadOptions()
    ) async throws -> TileDownload {
        if isClosed { throw TileCacheError.closed }
        let region = try Self.checkDownload(
            source, coverage, named: name, options: options, bulkAllowedHosts: configuration.bulkAllowedHosts)
        let keys = KeyIterator(source: source.name, coverage)
        var plan: WrittenPlan?
        if let region, let first = coverage.tiles().first(where: { _ in true }) {
            let store = self.store
            let written = try DownloadPlan(region, source, like: first, begun: clock.now(), options, in: store)
                .written()
            try await pool.run {
                try Self.checkName(of: region, in: store)
                try store.pin(region, plan: written.text)
            }
            plan = written
            endDownloads(of: region.name, "replaced by another one of that name", exceptOf: region)
        }
        return TileDownload(
            self, source, .covered(keys), total: coverage.tileCount, options, isRegion: true, plan: plan)
    }

    /// Refuses a download that cannot begin, before a cache is touched or a server asked.
    ///
    /// - Returns: The region to pin, if it has a name.
    /// - Throws: As ``download(_:_:named:options:)``.
    package static func checkDownload(
        _ source: TileSource, _ coverage: TileCoverage, named name: String?, options: DownloadOptions,
        bulkAllowedHosts: Set<String>
    ) throws -> PinnedRegion? {
        try checkBulk(source, allowed: bulkAllowedHosts)
        try options.check()
        guard let name else {
            guard !options.inBackground else {
                throw TileCacheError(
                    .invalidOptions,
                    "download options: a download in the background needs the region's name, by which another process goes on with it"
                )
            }
            return nil
        }
        if let remote = source.remote, !remote.isPinnable {
            throw TileCacheError(
                .invalidRegion,
                "region \(name): the tiles of the set \(source.name) are stored under their contents, which no region pins; "
                    + "pull the set into a cache with tilegc, or download without a name")
        }
        do {
            let spans = try coverage.spans()
            return try PinnedRegion(
                name: name, source: source.name, spans: spans, box: boundingBox(coverage.shape, spans))
        } catch let error as StoreError {
            throw TileCacheError(.invalidRegion, error.message, cause: error)
        }
    }

    /// Refuses the name of another source's region: pinning would replace that one, and eviction take its tiles.
    package static func checkName(of region: PinnedRegion, in store: TileStore) throws {
        guard let other = try store.regions().first(where: { $0.name == region.name }) else { return }
        let isAnother = region.isOfOneSource ? other.source != region.source : false
        guard isAnother || other.isOfOneSource != region.isOfOneSource else { return }
        let what = other.isOfOneSource ? "source \(other.source)" : "a styled map"
        throw TileCacheError(
            .invalidRegion,
            "the cache has a region \(region.name) of \(what), whose tiles would not be pinned any more: "
                + "choose another name, or remove that region first")
    }

    /// Refuses to download from servers whose terms forbid it, and from what is no server.
    static func checkBulk(_ source: TileSource, allowed: Set<String>) throws {
        guard source.template.scheme != .file else {
            throw TileCacheError(
                .invalidRegion, "source \(source.name) reads local files: they are there, and need no download")
        }
        for host in source.template.hosts {
            if let error = BulkPolicy.objection(toHost: host, allowed: allowed) { throw error }
        }
    }

    /// Estimates the size of a region from a few tiles drawn at random, which are fetched unless they are there.
    ///
    /// - Parameters:
    ///   - source: Where the tiles come from.
    ///   - coverage: Which tiles.
    ///   - samples: How many are drawn; more make it more exact.
    /// - Throws: ``TileCacheError`` if the samples cannot be had or the host's terms forbid bulk download.
    public func estimateSize(
        _ source: TileSource, _ coverage: TileCoverage, samples: Int = 48
    ) async throws -> SizeEstimate {
        try checkBulk(source)
        var generator = ClockRandomness(clock: clock)
        let total = coverage.tileCount
        let drawn = coverage.sample(min(max(1, samples), 1000), using: &generator)
        var bytes = 0
        var distinct = Set<Data>()
        var distinctBytes = 0
        for tile in drawn {
            let key = TileKey(source: source.name, tile: tile)
            let found = try await exactTile(source, key, mode: .standard, priority: .prefetch, isBulk: true)
            guard let data = found?.data else { continue }
            bytes += data.count
            if distinct.insert(data).inserted { distinctBytes += data.count }
        }
        let scale = drawn.isEmpty ? 0 : Double(total) / Double(drawn.count)
        func whole(_ sample: Int) -> Int { Int(min(Double(sample) * scale, 9e18)) }
        return SizeEstimate(
            tiles: total, samples: drawn.count, bytes: whole(bytes), storedBytes: whole(distinctBytes))
    }

    /// Gives a region up together with its tiles and resources, except those that another region covers, and ends its download.
    ///
    /// - Returns: What was removed; `nil` if there is no region of that name.
    /// - Throws: `StoreError`.
    public func removeRegion(_ name: String) async throws -> RemovalReport? {
        let store = self.store
        let report = try await pool.run { try store.removeRegion(name) }
        if report != nil { endDownloads(of: name, "removed while it was downloaded") }
        return report
    }

    /// Ends the downloads of a region that is not there any more: their tiles would not be pinned.
    func endDownloads(of name: String, _ why: String, exceptOf region: PinnedRegion? = nil) {
        for download in running.all {
            guard let plan = download.plan, plan.region == name else { continue }
            // Another run of what is pinned now is nobody's to end.
            if let region, let written = try? DownloadPlan(plan.text), written.isFor(region) { continue }
            download.end(TileCacheError(.invalidRegion, "region \(name) was \(why)"))
        }
    }

    /// The pinned regions and how much of each is there, by the cache's entries: it is not looked whether their files are.
    ///
    /// - Throws: `StoreError`.
    public func regions() async throws -> [RegionStatistics] {
        let store = self.store
        return try await pool.run { try store.regionStatistics() }
    }
}

/// The keys of the tiles of a source.
struct KeyIterator: IteratorProtocol, Sendable {
    let source: SourceName
    let coverage: TileCoverage
    private var tiles: CoveredTiles.Iterator

    init(source: SourceName, _ coverage: TileCoverage) {
        self.source = source
        self.coverage = coverage
        tiles = coverage.tiles().makeIterator()
    }

    mutating func next() -> TileKey? { tiles.next().map { TileKey(source: source, tile: $0) } }
}

/// Randomness from the cache's own source of it.
private struct ClockRandomness: RandomNumberGenerator {
    let clock: CacheClock
    mutating func next() -> UInt64 { clock.random() }
}

/// The box that people are shown: the shape itself if it is one, else that of the tiles of the deepest zoom.
private func boundingBox(_ shape: RegionShape, _ spans: [TileSpan]) throws -> GeoBox? {
    if case .box(let box) = shape { return box }
    guard let zoom = spans.map(\.zoom).max() else { return nil }
    let deepest = spans.filter { $0.zoom == zoom }
    guard let west = deepest.map(\.columns.lowerBound).min(), let east = deepest.map(\.columns.upperBound).max(),
        let north = deepest.map(\.rows.lowerBound).min(), let south = deepest.map(\.rows.upperBound).max()
    else { return nil }
    let first = try TileAddress(z: zoom, x: west, y: north).box
    let last = try TileAddress(z: zoom, x: east, y: south).box
    return try GeoBox(west: first.west, south: last.south, east: last.east, north: first.north)
}
