public import TileStore

/// The download of a region that is not complete: of this process or of one that is gone.
///
/// ```swift
/// for download in try await cache.downloads() where download.region.source == source.name {
///     try await download.resume(from: source)
/// }
/// ```
public struct UnfinishedDownload: Sendable {
    /// The region: its name, its source's name, and the tiles.
    public let region: PinnedRegion
    /// Whether it is of all that styles name: ``resume(_:options:)`` goes on with it.
    public let isStyled: Bool
    /// Pixels per point of the tiles; of a styled map those of the screen.
    public let scale: Int
    /// The format of the tiles, where the source has several.
    public let format: String?
    /// When it began.
    public let begun: Timestamp
    /// The options that it was begun with.
    public let options: DownloadOptions
    private let cache: TileCache
    private let fingerprint: String
    private let plan: WrittenPlan

    init(_ cache: TileCache, _ plan: DownloadPlan, _ written: WrittenPlan, _ region: PinnedRegion) throws {
        self.region = region
        self.cache = cache
        self.plan = written
        fingerprint = plan.fingerprint
        isStyled = plan.download == DownloadPlan.styles
        scale = plan.scale
        format = plan.format
        begun = Timestamp(seconds: plan.begun)
        options = try plan.options.value()
        // Refuses a scale or a format that is none.
        _ = try TileAddress(z: 0, x: 0, y: 0, scale: scale, format: format)
    }

    /// Goes on with it: asks only for what has not been stored since it began.
    ///
    /// One that is under way in this cache is given as it is, with its own options and paused if it is; not one that was
    /// cancelled, or whose budget is used up.
    /// - Parameters:
    ///   - source: Where the tiles come from. What is in a template's query and values, and in a source's header fields, is
    ///     never kept: give the source as it was, with the secrets of today.
    ///   - options: How to go about it; `nil` for the ``options`` that it was begun with, whose budgets count anew.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidSource`` for another source, with
    ///   ``TileCacheError/Code/invalidRegion`` if the region was removed or replaced, and otherwise as
    ///   ``TileCache/download(_:_:named:options:)``.
    @discardableResult
    public func resume(from source: TileSource, options: DownloadOptions? = nil) async throws -> TileDownload {
        let options = options ?? self.options
        try TileCache.checkBulk(source, allowed: cache.configuration.bulkAllowedHosts)
        try options.check()
        guard !isStyled else {
            throw TileCacheError(
                .invalidSource, "the download of region \(region.name) was begun from styles: give them, and its area")
        }
        guard source.name == region.source, source.fingerprint(in: cache.store) == fingerprint else {
            throw TileCacheError(
                .invalidSource,
                "the download of region \(region.name) was begun from a source \(region.source) with another host, path, kind or "
                    + "format: give that one, or download the region anew")
        }
        let (cache, region) = (self.cache, self.region)
        guard try await cache.pool.run({ try cache.store.regions().contains(region) }) else {
            throw TileCacheError.replaced(region)
        }
        let tiles = SpanIterator(region, like: try TileAddress(z: 0, x: 0, y: 0, scale: scale, format: format))
        return cache.running.download(of: plan) {
            TileDownload(
                cache, source, .pinned(tiles), total: region.tileCount, options, isRegion: true, plan: plan,
                since: begun)
        }
    }

    /// Goes on with the download of a styled map: asks only for what has not been stored since it began.
    ///
    /// What the styles name is read again, from the cache where it has been stored since. One that is under way in this cache is
    /// given as it is.
    /// - Parameters:
    ///   - map: What it was begun with; the styles' queries may be others by now.
    ///   - options: How to go about it; `nil` for the ``options`` that it was begun with, whose budgets count anew.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidStyle`` for another map, with
    ///   ``TileCacheError/Code/invalidRegion`` if the region was removed or replaced, and otherwise as
    ///   ``TileCache/download(_:named:options:)``.
    @discardableResult
    public func resume(_ map: StyledRegion, options: DownloadOptions? = nil) async throws -> TileDownload {
        guard isStyled, try map.fingerprint(in: cache.store) == fingerprint else {
            throw TileCacheError(
                .invalidStyle,
                "the download of region \(region.name) was begun with other styles, another area, or no styles at all: give "
                    + "those, or download the region anew")
        }
        if let running = cache.running.download(of: plan) { return running }
        let (cache, region) = (self.cache, self.region)
        guard try await cache.pool.run({ try cache.store.regions().contains(region) }) else {
            throw TileCacheError.replaced(region)
        }
        return try await cache.download(
            map, named: region.name, options: options ?? self.options, begun: begun, goingOnWith: region)
    }
}

extension TileCacheError {
    /// The error of who wants to go on with a region that is not there as it was.
    static func replaced(_ region: PinnedRegion) -> TileCacheError { replaced(region.name) }

    static func replaced(_ region: String) -> TileCacheError {
        TileCacheError(
            .invalidRegion, "region \(region) was removed, or replaced by another one; download it anew")
    }
}

extension TileCache {
    /// The downloads of regions that are not complete, in the order of the regions' names: those that were cancelled, ended
    /// early or lack tiles that failed, those that a process left that was killed, and those that are under way.
    ///
    /// What ``download(_:_:named:options:)`` and ``download(_:named:options:)`` are to do for a region with a name is kept in the cache's folder until all is
    /// there, or the region is removed. What cannot be read is reported to ``TileCacheConfiguration/onEvent`` and passed over.
    /// - Throws: `StoreError`; ``TileCacheError`` with ``TileCacheError/Code/closed``.
    public func downloads() async throws -> [UnfinishedDownload] {
        if isClosed { throw TileCacheError.closed }
        let store = self.store
        let (found, regions) = try await pool.run { (try store.plans(), try store.regions()) }
        var unfinished: [UnfinishedDownload] = []
        for (file, found) in found {
            do {
                switch found {
                case .unreadable(let error): throw error
                case .plan(let text):
                    let plan = try DownloadPlan(text)
                    guard store.isPlan(file, of: plan.region) else {
                        throw TileCacheError(
                            .invalidRegion, "it is the plan of region \(plan.region), under another name")
                    }
                    // Otherwise an older program has removed or replaced the region.
                    guard let region = regions.first(where: plan.isFor) else { continue }
                    unfinished.append(
                        try UnfinishedDownload(self, plan, WrittenPlan(region: plan.region, text: text), region))
                }
            } catch {
                configuration.onEvent?(.planNotRead(file: file, error))
            }
        }
        return unfinished.sorted { $0.region.name < $1.region.name }
    }
}

/// The tiles of a region, rectangle by rectangle.
struct SpanIterator: IteratorProtocol, Sendable {
    let region: PinnedRegion
    /// A tile of the scale and format that are wanted.
    let variant: TileAddress
    private var span = 0
    private var column = 0
    private var row = 0

    init(_ region: PinnedRegion, like variant: TileAddress) {
        self.region = region
        self.variant = variant
        enter()
    }

    private mutating func enter() {
        guard span < region.spans.count else { return }
        (column, row) = (region.spans[span].columns.lowerBound, region.spans[span].rows.lowerBound)
    }

    mutating func next() -> TileKey? {
        guard span < region.spans.count else { return nil }
        let current = region.spans[span]
        let tile = variant.at(current.zoom, column, row)
        column += 1
        if column > current.columns.upperBound {
            column = current.columns.lowerBound
            row += 1
        }
        if row > current.rows.upperBound {
            span += 1
            enter()
        }
        return TileKey(source: region.source, tile: tile)
    }
}
