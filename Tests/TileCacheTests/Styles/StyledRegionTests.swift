import Foundation
import HTTPTypes
import Testing
import TileStoreTesting

@testable import TileCache
@testable import TileStore

/// An area of a map with all that its styles name, as one region.
///
/// Its tiles are resources here: which sources a cache has as such, ``TileCacheURLProtocol`` is told for the whole process.
@Suite(.timeLimit(.minutes(60)))
struct StyledRegionTests {
    private static let page = "https://maps.example/style.json"

    /// A server with a small map: 1 style, 1 TileJSON, 4 files of signs, 1 range of glyphs and 5 + 5 tiles.
    private final class Site: Sendable {
        let pages = Locked<[String: TransportResponse]>([:])
        static let total = 17

        init(
            _ lab: CacheLab, lifetime: String = "max-age=60",
            before: @escaping @Sendable (_ path: String) async throws -> Void = { _ in }
        ) {
            set("style.json", Self.style, lifetime: "max-age=0")
            set(
                "tiles.json", #"{"maxzoom": 1, "tiles": ["https://maps.example/base/{z}/{x}/{y}.pbf?key=s"]}"#,
                lifetime: lifetime)
            for name in ["signs.json", "signs.png", "signs@2x.json", "signs@2x.png", "fonts/A%20B%2cC/0-255.pbf"] {
                set(name, name, lifetime: lifetime)
            }
            for z in 0...1 {
                for x in 0..<(1 << z) {
                    for y in 0..<(1 << z) {
                        set("base/\(z)/\(x)/\(y).pbf?key=s", "base \(z) \(x) \(y)", lifetime: lifetime)
                        set("relief/\(z)/\(x)/\(y).png", "relief \(z) \(x) \(y)", lifetime: lifetime)
                    }
                }
            }
            let pages = self.pages
            lab.transport.script { request in
                try await before(request.head.path ?? "")
                let page = pages.withLock { $0[request.head.path ?? ""] } ?? .answer(404)
                guard let tag = request.head.headerFields[.ifNoneMatch], tag == page.head.headerFields[.eTag] else {
                    return page
                }
                return .answer(304, page.head.headerFields)
            }
        }

        static let style = """
            {"version": 8, "sprite": "https://maps.example/signs", "glyphs": "https://maps.example/fonts/{fontstack}/{range}.pbf",
            "sources": {"base": {"type": "vector", "url": "https://maps.example/tiles.json"},
            "relief": {"type": "raster", "maxzoom": 1, "tiles": ["https://maps.example/relief/{z}/{x}/{y}{ratio}.png"]}},
            "layers": [{"id": "a", "type": "symbol", "layout": {"text-field": "x", "text-font": ["A B", "C"]}}]}
            """

        func set(_ path: String, _ text: String, lifetime: String = "max-age=60", _ more: HTTPFields = [:]) {
            var fields = more
            fields[.cacheControl] = lifetime
            fields[.eTag] = "\"\(text.hashValue)\""
            let answer = TransportResponse.answer(200, fields, body: Data(text.utf8))
            pages.withLock { $0["/" + path] = answer }
        }

        func set(_ path: String, _ answer: TransportResponse?) { pages.withLock { $0["/" + path] = answer } }
    }

    private func map(_ style: String = Self.page, zooms: ClosedRange<Int> = 0...1) throws -> StyledRegion {
        var map = StyledRegion(
            .box(try GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: zooms,
            styles: [try #require(URL(string: style))])
        map.glyphs = [0...255]
        return map
    }

    private func options(requests: Int? = nil) -> DownloadOptions {
        var options = DownloadOptions()
        options.requestBudget = requests
        options.patience = .zero
        return options
    }

    private func code(_ work: () async throws -> Void) async -> TileCacheError.Code? {
        do { try await work(); return nil } catch { return (error as? TileCacheError)?.code }
    }

    /// What a client gets without a network.
    private func text(_ path: String, _ lab: CacheLab) async throws -> String? {
        let url = try #require(URL(string: "https://maps.example/" + path))
        let answer = try await lab.cache.response(for: url)
        guard answer?.head.status == .ok else { return nil }
        return answer.map { String(decoding: $0.body, as: UTF8.self) }
    }

    @Test func aWholeMapIsOneRegion() async throws {
        let lab = try CacheLab()
        let site = Site(lab)
        let download = try await lab.cache.download(map(), named: "alps", options: options())
        let report = await download.report()
        #expect(report.verdict == .complete && report.progress.total == Site.total && report.present == Site.total)
        #expect(report.progress.fraction == 1)
        // Each once: what was read to know what there is, is not asked for again.
        #expect(lab.transport.count == Site.total && Set(lab.transport.paths).count == Site.total)
        let figures = try #require(try await lab.cache.regions().first)
        #expect(try await lab.cache.regions().count == 1)
        #expect(figures.region.name == "alps" && figures.region.resources.count == Site.total)
        #expect(figures.presentResources == Site.total && figures.tiles == 0 && figures.present == 0)
        #expect(try await lab.cache.downloads().isEmpty && lab.disk.names("downloads").isEmpty)
        // Whatever else there is, is evicted; this is not, and is there without a network at any age.
        _ = try lab.store.evict(toBytes: 0)
        try lab.store.setLimits(StoreLimits(capacity: 0, entryLimit: 0))
        #expect(try lab.store.statistics().pinnedEntries == Site.total)
        lab.transport.goOffline()
        lab.clock.advance(seconds: 100_000)
        for path in site.pages.withLock({ $0.keys }) {
            #expect(try await text(String(path.dropFirst()), lab) != nil, "\(path)")
        }
        #expect(try lab.store.verify().ok)
        // No URL's query, and no token, is written down.
        for (path, bytes) in lab.bytesOnDisk() where !path.hasPrefix("objects/") {
            #expect(!String(decoding: bytes, as: UTF8.self).contains("key=s"), "\(path)")
        }
        #expect(try await lab.cache.removeRegion("alps")?.removedEntries == Site.total)
        #expect(try lab.store.statistics().entries == 0)
        #expect(try lab.store.regions().isEmpty)
    }

    @Test func aSecondDownloadAsksByConditionalRequestsForWhatIsStale() async throws {
        let lab = try CacheLab()
        let site = Site(lab)
        _ = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        let first = lab.transport.count
        lab.clock.advance(seconds: 2)
        // All but the style is fresh.
        var report = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        #expect(report.verdict == .complete && report.progress.unchanged == Site.total)
        #expect(lab.transport.paths.dropFirst(first) == ["/style.json"])
        lab.clock.advance(seconds: 100)
        site.set("signs.png", "other signs")
        let second = lab.transport.count
        report = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        #expect(report.verdict == .complete)
        // The style and the TileJSON were read before.
        #expect(report.progress.fetched == 1 && report.progress.revalidated == Site.total - 3)
        #expect(lab.transport.requests.dropFirst(second).allSatisfy { $0.head.headerFields[.ifNoneMatch] != nil })
        #expect(lab.transport.requests.allSatisfy { $0.head.headerFields[.cacheControl] == nil })
        lab.transport.goOffline()
        #expect(try await text("signs.png", lab) == "other signs")
    }

    @Test func whatAStyleDoesNotNameAnyMoreIsGivenUp() async throws {
        let lab = try CacheLab()
        let site = Site(lab)
        _ = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        lab.clock.advance(seconds: 2)
        site.set("style.json", Site.style.replacingOccurrences(of: "signs", with: "marks"), lifetime: "max-age=0")
        for name in ["marks.json", "marks.png", "marks@2x.json", "marks@2x.png"] { site.set(name, name) }
        let report = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        #expect(report.verdict == .complete && report.progress.fetched == 4)
        _ = try lab.store.evict(toBytes: 0)
        #expect(try lab.store.statistics().entries == Site.total)
        lab.transport.goOffline()
        #expect(await code { _ = try await text("signs.png", lab) } != nil)
        #expect(try await text("marks.png", lab) == "marks.png")
    }

    @Test func aDownloadThatEndedEarlyGoesOnAndAsksForNothingTwice() async throws {
        let lab = try CacheLab()
        let site = Site(lab, lifetime: "max-age=0")
        let download = try await lab.cache.download(map(), named: "alps", options: options(requests: 5))
        let report = await download.report()
        #expect(report.verdict != .complete && report.reachedBudget && report.progress.fraction < 1)
        #expect(lab.transport.count == 7)
        lab.clock.advance(seconds: 100)
        // As another process finds it.
        let files = SimulatedFileSystem(lab.disk)
        let store = try TileStore(
            environment: lab.clock.manual.environment(files), configuration: StoreConfiguration())
        let cache = TileCache(
            store: store, transport: lab.transport, configuration: lab.cache.configuration, clock: lab.clock.cacheClock)
        let unfinished = try #require(try await cache.downloads().first)
        #expect(unfinished.isStyled && unfinished.region.name == "alps")
        let source = try lab.source("resources")
        #expect(await code { try await unfinished.resume(from: source) } == .invalidSource)
        let other = try map(zooms: 0...2)
        #expect(await code { try await unfinished.resume(other) } == .invalidStyle)
        // The style's query is another one now, and with it its key.
        site.set("style.json?token=new", Site.style)
        let rest = await (try await unfinished.resume(map(Self.page + "?token=new"), options: options())).report()
        #expect(rest.verdict == .complete && rest.progress.total == Site.total)
        #expect(lab.transport.requests.filter { $0.head.path != "/style.json?token=new" }.count == Site.total)
        #expect(lab.transport.count == Site.total + 1)
        #expect(try await cache.downloads().isEmpty)
    }

    @Test func whatForbidsToBeUsedWithoutAskingIsThereAllTheSame() async throws {
        let lab = try CacheLab()
        let site = Site(lab)
        site.set("style.json", Site.style, lifetime: "no-cache")
        site.set("signs.png", "signs.png", lifetime: "max-age=0, must-revalidate")
        #expect(
            await (try await lab.cache.download(map(), named: "alps", options: options())).report().verdict == .complete
        )
        lab.transport.goOffline()
        #expect(try await text("style.json", lab) == Site.style)
        #expect(try await text("signs.png", lab) == "signs.png")
        // Nobody relies on it any more.
        _ = try lab.store.unpin("alps")
        #expect(await code { _ = try await text("signs.png", lab) } != nil)
    }

    /// 100 % is said of what is there, and of what does not exist.
    @Test func whatCannotBeKeptIsMissing() async throws {
        let lab = try CacheLab()
        let site = Site(lab)
        site.set("signs.json", "signs.json", lifetime: "no-store")
        site.set("signs.png", .answer(302, [.location: "https://maps.example/signs@2x.png"]))
        site.set("signs@2x.png", "<html>", [.contentType: "text/html; charset=utf-8"])
        site.set("base/1/1/1.pbf?key=s", .answer(403))
        site.set("relief/0/0/0.png", nil)
        let report = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        #expect(report.verdict == .incomplete(missing: 4) && report.progress.failed == 4 && report.progress.absent == 1)
        let codes = Dictionary(
            uniqueKeysWithValues: report.failures.map {
                ($0.key.description.split(separator: "/").last.map(String.init), $0.error.code)
            })
        #expect(
            codes["signs.json"] == .notStored && codes["signs.png"] == .badRedirect && codes["signs@2x.png"] == .badBody
        )
        #expect(report.failures.contains { $0.error.status == 403 })
        // A page in the place of a picture does not count as there the next time either.
        let again = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        #expect(again.verdict == .incomplete(missing: 4))
        #expect(try await lab.cache.downloads().count == 1)
        site.pages.withLock { pages in
            for name in ["signs.json", "signs.png", "signs@2x.png"] { pages["/" + name] = nil }
        }
        for name in ["signs.json", "signs.png", "signs@2x.png", "base/1/1/1.pbf?key=s"] { site.set(name, name) }
        #expect(
            await (try await lab.cache.download(map(), named: "alps", options: options())).report().verdict == .complete
        )
        #expect(try await lab.cache.downloads().isEmpty)
    }

    @Test func nothingIsPinnedWithoutAStyle() async throws {
        let lab = try CacheLab()
        let site = Site(lab)
        func refusal(_ map: StyledRegion) async -> TileCacheError.Code? {
            await code { _ = try await lab.cache.download(map, named: "alps", options: options()) }
        }
        #expect(await refusal(try map("https://maps.example/none.json")) == .badStatus)
        #expect(await refusal(try map("https://maps.example/signs.png")) == .invalidStyle)
        #expect(await refusal(try map("file:///etc/passwd")) == .invalidStyle)
        var none = try map()
        none.styles = []
        #expect(await refusal(none) == .invalidStyle)
        none.styles = Array(repeating: try #require(URL(string: Self.page)), count: 17)
        #expect(await refusal(none) == .invalidStyle)
        site.set("tiles.json", "[]")
        #expect(await refusal(try map()) == .invalidStyle)
        site.set("tiles.json", #"{"tiles": ["https://tile.openstreetmap.org/{z}/{x}/{y}.png"]}"#)
        lab.clock.advance(seconds: 100)
        #expect(await refusal(try map()) == .forbidden)
        site.set("tiles.json", #"{"tiles": ["https://a.example/?{bbox-epsg-3857}"]}"#)
        lab.clock.advance(seconds: 100)
        #expect(await refusal(try map()) == .invalidStyle)
        #expect(try lab.store.regions().isEmpty)
        #expect(try lab.store.plans().isEmpty)
        // A TileJSON that leads back to the style, or to itself, names no tiles.
        site.set("tiles.json", #"{"url": "https://maps.example/tiles.json", "sources": {}, "maxzoom": 20}"#)
        lab.clock.advance(seconds: 100)
        let report = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        #expect(report.verdict == .complete && report.progress.total == Site.total - 5)
    }

    @Test func tooManyTilesByTheirURLsAreRefusedBeforeTheyAreListed() async throws {
        let lab = try CacheLab()
        let site = Site(lab)
        let large = try map(zooms: 0...24)
        site.set("tiles.json", #"{"maxzoom": 24, "tiles": ["https://maps.example/base/{z}/{x}/{y}.pbf"]}"#)
        let error = await #expect(throws: TileCacheError.self) {
            try await lab.cache.download(large, named: "alps", options: options())
        }
        #expect(error?.code == .invalidStyle && error?.message.contains("65536 files") ?? false)
        #expect(lab.transport.paths == ["/style.json", "/tiles.json"])
    }

    @Test func aStyledMapAndTilesOfASourceDoNotTakeEachOthersName() async throws {
        let lab = try CacheLab()
        _ = Site(lab)
        _ = await (try await lab.cache.download(map(), named: "alps", options: options())).report()
        let source = try lab.source("resources", "https://maps.example/relief/{z}/{x}/{y}.png")
        let coverage = try source.coverage(map().shape, zooms: 0...0)
        #expect(
            await code { _ = try await lab.cache.download(source, coverage, named: "alps", options: options()) }
                == .invalidRegion)
        _ = await (try await lab.cache.download(source, coverage, named: "tiles", options: options())).report()
        #expect(
            await code { _ = try await lab.cache.download(map(), named: "tiles", options: options()) } == .invalidRegion
        )
        #expect(try lab.store.regions().map(\.isOfOneSource) == [false, true])
    }

    /// By its first tile, whose column and row are equal, it would be.
    @Test func aTemplateWithRowsFirstIsNotASources() throws {
        let lab = try CacheLab()
        let source = try lab.source("relief", "https://maps.example/relief/{z}/{x}/{y}.png")
        func contents(_ template: String) throws -> StyleContents {
            let keys = ResourceKeyMaker(store: lab.store)
            var contents = StyleContents(try map(zooms: 0...3), keys, bulkAllowedHosts: []) { request in
                source.template.tile(.https, authority: "maps.example", path: request.path ?? "", format: source.format)
                    .map { (source, TileKey(source: source.name, tile: $0)) }
            }
            let link = StyleLink(base: Self.page, place: "style 1")
            let tiles = try #require(try TileSet(["tiles": .array([.string(template)])], link))
            try contents.add(tiles, "style 1")
            _ = try contents.region(named: "alps")
            return contents
        }
        let same = try contents("https://maps.example/relief/{z}/{x}/{y}.png")
        #expect(same.resources.isEmpty && same.tiles.isEmpty && same.total == 1 + 4 + 16 + 64)
        // The world's one tile is the source's, in whichever order it is named. The others are answered with tiles of the source,
        // but with other ones.
        let swapped = try contents("https://maps.example/relief/{z}/{y}/{x}.png")
        #expect(swapped.resources.isEmpty && swapped.tiles.count == 4 + 16 + 64 && swapped.total == 1 + 4 + 16 + 64)
    }

    /// Its resources would have gone by the cache's own transport, whatever the network, and no process could have gone on with it.
    @Test func itIsNotDownloadedInTheBackground() async throws {
        let lab = try CacheLab()
        var options = DownloadOptions()
        options.inBackground = true
        let map = StyledRegion(
            .box(try GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...1,
            styles: [try #require(URL(string: Self.page))])
        let error = await #expect(throws: TileCacheError.self) {
            try await lab.cache.download(map, named: "world", options: options)
        }
        #expect(error?.code == .invalidOptions && lab.transport.count == 0)
    }

    /// What is read first takes its time: meanwhile the region may be removed, or another one take its place.
    @Test(arguments: [true, false])
    func aRegionThatIsReplacedMeanwhileDoesNotComeBack(isRemoved: Bool) async throws {
        let lab = try CacheLab()
        let latch = Latch()
        let site = Site(lab) { path in if path.hasSuffix("token=new") { try await latch.pass() } }
        site.set("style.json?token=new", Site.style)
        let first = try await lab.cache.download(map(zooms: 0...0), named: "alps", options: options(requests: 4))
        _ = await first.report()
        let unfinished = try #require(try await lab.cache.downloads().first)
        let other = try map(Self.page + "?token=new", zooms: 0...0)
        let resuming = Task { try await unfinished.resume(other, options: options()) }
        await until { latch.arrivals == 1 }
        if isRemoved {
            #expect(try await lab.cache.removeRegion("alps") != nil)
        } else {
            let larger = try await lab.cache.download(map(), named: "alps", options: options())
            #expect(await larger.report().verdict == .complete)
        }
        latch.open()
        #expect(await code { _ = try await resuming.value } == .invalidRegion)
        #expect(try lab.store.regions().map(\.resources.count) == (isRemoved ? [] : [Site.total]))
    }

    /// Only the template's host was looked at, with its placeholders.
    @Test(arguments: [
        "tile.openstreetmap{ratio}.org", "tile.openstreetmap.%6Frg", "a@tile.openstreetmap.org",
        "TILE.openstreetmap.org.",
    ])
    func aForbiddenHostIsNotAskedHoweverItIsWritten(_ host: String) async throws {
        let lab = try CacheLab()
        let site = Site(lab)
        site.set(
            "style.json",
            "{\"layers\": [], \"sources\": {\"a\": {\"type\": \"raster\", \"tiles\": [\"https://\(host)/{z}/{x}/{y}.png\"]}}}"
        )
        let refused = await code { _ = try await lab.cache.download(map(), named: "alps", options: options()) }
        #expect(refused == .forbidden || refused == .invalidStyle)
        #expect(lab.transport.paths == ["/style.json"])
        #expect(try lab.store.regions().isEmpty)
    }

    /// A fresh style grew stale while the rest was read, was asked for again, and a newer one took its place.
    @Test func theStyleThatWasReadIsTheOneThatIsKept() async throws {
        let lab = try CacheLab()
        let clock = lab.clock
        let site = Site(lab) { path in if path == "/tiles.json" { clock.advance(seconds: 2) } }
        site.set("style.json", Site.style, lifetime: "max-age=60")
        let url = try #require(URL(string: Self.page))
        _ = try await lab.cache.response(for: url)
        clock.advance(seconds: 59)
        site.set("style.json", Site.style.replacingOccurrences(of: "signs", with: "marks"), lifetime: "max-age=60")
        let download = try await lab.cache.download(map(), named: "alps", options: options())
        #expect(await download.report().verdict == .complete)
        lab.transport.goOffline()
        #expect(try await text("style.json", lab) == Site.style)
        #expect(try await text("signs@2x.png", lab) == "signs@2x.png")
    }
}
