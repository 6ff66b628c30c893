import CacheEngine
import ContentCoding
import HTTPCaching
import HTTPTypes
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TileCache {
    /// Downloads an area of a map with all that its styles name, and pins it under one name.
    ///
    /// That is: the styles, their TileJSONs, sheets of signs (both scales), glyphs, GeoJSON and pictures by URL, and the tiles. A
    /// style's tiles are those of a ``TileSource`` where the URLs are its template's and it was named for this cache
    /// (`URLSessionConfiguration.use(_:for:)`, ``TileCacheURLProtocol/use(_:for:)``); all others are resources by their URLs. So
    /// ``TileCacheURLProtocol`` finds everything, whether there is a network or not, in this process or another.
    ///
    /// All of it is one region: pinned and removed at once, with one progress and one verdict. Otherwise it is as with tiles of one
    /// source (``download(_:_:named:options:)``): what is fresh is not asked for, what is stale by a conditional request, and
    /// ``downloads()`` lists it until all is there. Styles and TileJSONs are fetched first, before anything is pinned: without
    /// them it is not known what there is to download.
    /// - Parameters:
    ///   - map: The area, and its styles.
    ///   - name: The region's name in the cache.
    ///   - options: How to go about it. Budgets and rate hold from when the styles have been read.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidStyle`` if a style cannot be read or names what cannot be
    ///   downloaded, with the reason why a style cannot be had, with ``TileCacheError/Code/forbidden`` if a tile host's terms forbid
    ///   it, with ``TileCacheError/Code/invalidRegion`` if another kind of region has that name; `StoreError`.
    @discardableResult
    public func download(
        _ map: StyledRegion, named name: String, options: DownloadOptions = DownloadOptions()
    ) async throws -> TileDownload {
        try await download(map, named: name, options: options, begun: clock.now(), goingOnWith: nil)
    }

    /// The same; what was stored since it began is not asked for.
    ///
    /// - Parameter earlier: The region that is gone on with, if one is: it must still be there when all has been read.
    func download(
        _ map: StyledRegion, named name: String, options: DownloadOptions, begun: Timestamp,
        goingOnWith earlier: PinnedRegion?
    ) async throws -> TileDownload {
        if isClosed { throw TileCacheError.closed }
        try options.check()
        guard !options.inBackground else {
            throw TileCacheError(
                .invalidOptions,
                "download options: a map by its styles cannot be downloaded in the background; its sources one by one can"
            )
        }
        let fingerprint: String
        do { fingerprint = try map.fingerprint(in: store) } catch let error as StoreError {
            throw TileCacheError(.invalidRegion, error.message, cause: error)
        }
        var contents = try await contents(of: map, options, since: begun)
        let region = try contents.region(named: name)
        for source in contents.sources.values { try checkBulk(source) }
        let (store, found) = (self.store, contents)
        let plan = try DownloadPlan(region, fingerprint: fingerprint, scale: map.scale, begun: begun, options).written()
        try await pool.run {
            try Self.checkName(of: region, in: store)
            if let earlier, try !store.regions().contains(earlier) { throw TileCacheError.replaced(earlier) }
            try store.pin(region, plan: plan.text)
        }
        endDownloads(of: region.name, "replaced by another one of that name", exceptOf: region)
        return running.download(of: plan) {
            TileDownload(
                self, .ofStyles, .styled(found.iterator), total: found.total, options, contents: found,
                isRegion: true, plan: plan, since: begun)
        }
    }

    /// Reads the styles, and finds out what they need.
    private func contents(
        of map: StyledRegion, _ options: DownloadOptions, since: Timestamp
    ) async throws -> StyleContents {
        guard (1...Self.mostStyles).contains(map.styles.count) else {
            throw TileCacheError(
                .invalidStyle, "\(map.styles.count) styles; 1 to \(Self.mostStyles) can be downloaded at once")
        }
        var contents = StyleContents(
            map, ResourceKeyMaker(store: store), bulkAllowedHosts: configuration.bulkAllowedHosts,
            route: { TileCacheURLProtocol.tile($0, of: self) })
        for (number, style) in map.styles.enumerated() {
            let place = "style \(number + 1)"
            try contents.addDocument(style, place)
            let body = try await document(style, place, options, since: since, &contents)
            let document = try await pool.run { try StyleDocument(body, place, base: style.absoluteString) }
            try document.addURLs(glyphRanges: map.glyphRanges) { try contents.add($0, place) }
            for source in document.sources {
                var tiles = source.tiles
                if let text = source.url {
                    guard let url = URL(string: text) else {
                        throw TileCacheError(.invalidStyle, "\(place) names a TileJSON by what is no URL")
                    }
                    try contents.addDocument(url, place)
                    let name = "a TileJSON of \(place)"
                    let body = try await self.document(url, name, options, since: since, &contents)
                    tiles = try TileSet(StyleDocument.object(body, name), StyleLink(base: text, place: name)) ?? tiles
                }
                guard let tiles else { continue }
                let (known, asked) = (contents, tiles)
                contents = try await pool.run {
                    var contents = known
                    try contents.add(asked, place)
                    return contents
                }
            }
        }
        return contents
    }

    /// At most so many styles are downloaded at once.
    private static var mostStyles: Int { 16 }

    /// The body of a style or a TileJSON: from the cache where that needs no request.
    private func document(
        _ url: URL, _ place: String, _ options: DownloadOptions, since: Timestamp, _ contents: inout StyleContents
    ) async throws -> Data {
        guard let resource = resource(url, options, RequestMeter()) else {
            throw TileCacheError(.invalidStyle, "\(place) has a URL that is not absolute, or not by http or https")
        }
        var body: Data
        if let stored = try await settled(resource, ifFresh: !options.revalidatesFresh, since: since) {
            body = stored
        } else {
            let response: CachedResponse
            do { response = try await update(resource) } catch let failure as FetchFailure { throw failure.error }
            guard response.head.status == .ok else {
                throw TileCacheError(
                    .badStatus, "\(place): \(resource.origin) answered with status \(response.head.status.code)",
                    status: response.head.status.code)
            }
            body = response.body
        }
        contents.read(url, body)
        guard Gzip.isMarked(body) else { return body }
        let (coded, limit) = (body, StyleDocument.longest)
        guard let plain = try await pool.run({ Gzip.decode(coded, limit: limit) }) else {
            throw TileCacheError(.invalidStyle, "\(place) is damaged, or has more than \(limit >> 20) MiB")
        }
        return plain
    }
}
