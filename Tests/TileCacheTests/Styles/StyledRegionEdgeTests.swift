import Foundation
import HTTPTypes
import Testing
import TileStoreTesting

@testable import TileCache
@testable import TileStore

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Maps that were called complete and were not there offline, and downloads that did not end.
///
/// Each test has hosts of its own: which sources a cache has, ``TileCacheURLProtocol`` is told for the whole process.
@Suite(.timeLimit(.minutes(60)))
struct StyledRegionEdgeTests {
    private let fresh: HTTPFields = [.cacheControl: "max-age=864000", .eTag: "\"a\""]

    private func box() throws -> RegionShape { .box(try GeoBox(west: -180, south: -85, east: 180, north: 85)) }

    private func map(
        _ style: String, _ shape: RegionShape? = nil, zooms: ClosedRange<Int> = 0...1
    ) throws -> StyledRegion {
        var map = StyledRegion(try shape ?? box(), zooms: zooms, styles: [try #require(URL(string: style))])
        map.glyphs = [0...255]
        return map
    }

    private func options(requests: Int? = nil, patience: Duration = .zero) -> DownloadOptions {
        var options = DownloadOptions()
        options.requestBudget = requests
        options.concurrency = 1
        options.patience = patience
        return options
    }

    private static func json(_ text: String, _ control: String = "max-age=864000") -> TransportResponse {
        .answer(
            200, [.cacheControl: control, .eTag: "\"\(text.count)\"", .contentType: "application/json"],
            body: Data(text.utf8))
    }

    private static func style(_ sources: String) -> String { #"{"layers": [], "sources": {\#(sources)}}"# }

    /// A style's source of tiles.
    private static func raster(_ template: String, last: Int, _ more: String = "") -> String {
        #""\#(template.hashValue)": {"type": "raster", \#(more) "maxzoom": \#(last), "tiles": ["\#(template)"]}"#
    }

    private static let files = style(
        ["a", "b", "c"].map { #""\#($0)": {"type": "geojson", "data": "https://m.example/\#($0).json"}"# }
            .joined(separator: ", "))

    /// What a client under the cache gets.
    private func view(_ url: String) async throws -> Int {
        switch await URLAnswer(URLRequest(url: try #require(URL(string: url)))) {
        case .response(let response, _): return response.statusCode
        case .failure(let error): return -abs(error.errorCode)
        }
    }

    /// The middle of a tile.
    private func middle(_ z: Int, _ x: Int, _ y: Int) throws -> RegionShape {
        let box = try TileAddress(z: z, x: x, y: y).box
        let (w, h) = (box.east - box.west, box.north - box.south)
        return .box(
            try GeoBox(
                west: box.west + w * 0.4, south: box.south + h * 0.4, east: box.east - w * 0.4,
                north: box.north - h * 0.4))
    }

    /// Its first sixteen tiles have equal columns and rows, so that either order of them gives the same URLs.
    @Test func aTemplateThatDiffersOnlyOffADiagonalIsNotASources() async throws {
        let lab = try CacheLab()
        let source = try lab.source("relief", "https://diag.example/{z}/{x}/{y}.png")
        TileCacheURLProtocol.use(lab.cache, for: [source])
        let style = Self.style(Self.raster("https://diag.example/{z}/{y}/{x}.png", last: 6))
        let fields = fresh
        lab.transport.script { $0.head.path == "/style.json" ? Self.json(style) : .answer(200, fields) }
        let parts = try (0..<16).map { try middle(6, $0, $0) } + [middle(6, 30, 20)]
        let region = try map("https://diag.example/style.json", .union(parts), zooms: 6...6)
        let report = await (try await lab.cache.download(region, named: "d", options: options())).report()
        #expect(report.verdict == .complete && report.progress.total == 18)
        lab.transport.goOffline()
        #expect(try await view("https://diag.example/6/5/5.png") == 200)
        #expect(try await view("https://diag.example/6/20/30.png") == 200)
    }

    /// They were kept as resources, and asked for as the source's tiles.
    @Test(arguments: ["tms", "swapped"]) func urlsOfASourceInAnotherOrderWereNotThere(_ what: String) async throws {
        let host = "\(what).example"
        let lab = try CacheLab()
        let source = try lab.source("relief", "https://\(host)/{z}/{x}/{y}.png")
        TileCacheURLProtocol.use(lab.cache, for: [source])
        let order = what == "tms" ? "{z}/{x}/{y}" : "{z}/{y}/{x}"
        let style = Self.style(
            Self.raster("https://\(host)/\(order).png", last: 3, what == "tms" ? #""scheme": "tms","# : ""))
        let fields = fresh
        lab.transport.script { $0.head.path == "/style.json" ? Self.json(style) : .answer(200, fields) }
        let region = try map("https://\(host)/style.json", middle(3, 4, 2), zooms: 3...3)
        let report = await (try await lab.cache.download(region, named: "d", options: options())).report()
        #expect(report.verdict == .complete && report.progress.total == 2)
        #expect(try lab.store.regions().first?.tileCount == 1)
        lab.transport.goOffline()
        #expect(try await view(what == "tms" ? "https://\(host)/3/4/5.png" : "https://\(host)/3/2/4.png") == 200)
    }

    /// The same of one picture; beyond the source's zooms it is made of the tile that is kept.
    @Test(arguments: ["3/4/2", "14/8192/4096"])
    func aPictureWhoseURLIsASourcesWasNotThere(_ tile: String) async throws {
        let lab = try CacheLab()
        let host = "pict\(tile.count).example"
        var source = try lab.source("relief", "https://\(host)/{z}/{x}/{y}.png")
        source.zooms = 0...12
        source.overzoom.levels = 4
        TileCacheURLProtocol.use(lab.cache, for: [source])
        let style = Self.style(#""a": {"type": "image", "url": "https://\#(host)/\#(tile).png"}"#)
        let fields = fresh
        lab.transport.script { $0.head.path == "/style.json" ? Self.json(style) : .answer(200, fields) }
        let report = await
            (try await lab.cache.download(map("https://\(host)/style.json"), named: "d", options: options())).report()
        #expect(report.verdict == .complete)
        lab.transport.goOffline()
        let first = tile == "3/4/2" ? tile : "12/2048/1024"
        #expect(try await view("https://\(host)/\(first).png") == 200)
    }

    /// It was complete by what the older style named.
    @Test func aStyleThatAViewerHasReplacedMeanwhileIsNotComplete() async throws {
        let lab = try CacheLab()
        let newer = Self.files.replacingOccurrences(of: "b.json", with: "newb.json")
        let cache = lab.cache
        let style = try #require(URL(string: "https://m.example/style.json"))
        let isNewer = Locked(false)
        lab.transport.script { request in
            let path = request.head.path ?? ""
            if path == "/style.json" { return Self.json(isNewer.withLock { $0 } ? newer : Self.files, "max-age=0") }
            if path == "/b.json" {
                isNewer.withLock { $0 = true }
                _ = try? await cache.response(for: style)
            }
            return Self.json(path)
        }
        let region = try map("https://m.example/style.json")
        let report = await (try await cache.download(region, named: "d", options: options())).report()
        #expect(report.verdict != .complete && report.progress.lost == 1)
        #expect(try await cache.downloads().count == 1)
        // Done again, it has what the newer one names.
        let second = await (try await cache.download(region, named: "d", options: options())).report()
        #expect(second.verdict == .complete)
        lab.transport.goOffline()
        #expect(try await cache.response(for: #require(URL(string: "https://m.example/newb.json"))) != nil)
    }

    /// Somebody else's request brought it, behind a gate that answers everything with a page.
    @Test func aPageInThePlaceOfAPinnedFileIsNotThatFile() async throws {
        let lab = try CacheLab()
        let cache = lab.cache
        let b = try #require(URL(string: "https://m.example/b.json"))
        let isGate = Locked(false)
        lab.transport.script { request in
            let path = request.head.path ?? ""
            if path == "/style.json" { return Self.json(Self.files) }
            if path == "/b.json" {
                if isGate.withLock({ $0 }) {
                    return .answer(
                        200, [.contentType: "text/html", .cacheControl: "max-age=60"], body: Data("<html>".utf8))
                }
                return Self.json(path, "max-age=0")
            }
            if path == "/c.json" {
                isGate.withLock { $0 = true }
                _ = try? await cache.response(for: b)
            }
            return Self.json(path)
        }
        let region = try map("https://m.example/style.json")
        let report = await (try await cache.download(region, named: "d", options: options())).report()
        #expect(report.verdict != .complete && report.progress.lost == 1)
    }

    /// What says that it varies outlives what it says that of.
    @Test func aFileThatVariesAndIsLostMeanwhileWasCounted() async throws {
        let lab = try CacheLab()
        let cache = lab.cache
        let b = try #require(URL(string: "https://m.example/b.json"))
        let (isSecond, forbids) = (Locked(false), Locked(false))
        lab.transport.script { request in
            let path = request.head.path ?? ""
            if path == "/style.json" { return Self.json(Self.files, "max-age=0") }
            if path == "/b.json" {
                if forbids.withLock({ $0 }) { return Self.json("other", "no-store") }
                var answer = Self.json(path, "max-age=0")
                answer.head.headerFields[.vary] = "Accept-Language"
                return answer
            }
            if path == "/c.json", isSecond.withLock({ $0 }) {
                forbids.withLock { $0 = true }
                _ = try? await cache.response(for: b)
            }
            return Self.json(path, "max-age=0")
        }
        let region = try map("https://m.example/style.json")
        let first = await (try await cache.download(region, named: "d", options: options())).report()
        #expect(first.verdict == .complete)
        lab.clock.advance(seconds: 10)
        isSecond.withLock { $0 = true }
        let report = await (try await cache.download(region, named: "d", options: options())).report()
        lab.transport.goOffline()
        let there = try? await cache.response(for: b)
        #expect(report.verdict != .complete || there?.head.status == .ok)
    }

    @Test(arguments: [true, false]) func whatDoesNotExistWasAskedForAgain(isResumed: Bool) async throws {
        let lab = try CacheLab()
        let style = Self.style(Self.raster("https://sea.example/{z}/{x}/{y}.png", last: 2))
        lab.transport.script { request in
            request.head.path == "/style.json" ? Self.json(style) : .answer(404, [.cacheControl: "max-age=864000"])
        }
        let region = try map("https://sea.example/style.json", zooms: 0...2)
        let budget = isResumed ? 10 : nil
        _ = await (try await lab.cache.download(region, named: "d", options: options(requests: budget))).report()
        lab.clock.advance(seconds: 2)
        if isResumed {
            let unfinished = try #require(try await lab.cache.downloads().first)
            _ = await (try await unfinished.resume(region, options: options())).report()
        } else {
            _ = await (try await lab.cache.download(region, named: "d", options: options())).report()
        }
        #expect(lab.transport.count == 22 && Set(lab.transport.paths).count == 22)
    }

    /// All 5.7 billion keys were looked up to tell how many are there.
    @Test func aLargeMapThatEndsEarlyDidNotEnd() async throws {
        let lab = try CacheLab()
        let source = try lab.source("big", "https://big.example/{z}/{x}/{y}.png")
        TileCacheURLProtocol.use(lab.cache, for: [source])
        let style = Self.style(Self.raster("https://big.example/{z}/{x}/{y}.png", last: 16))
        let fields = fresh
        lab.transport.script { $0.head.path == "/style.json" ? Self.json(style) : .answer(200, fields) }
        let region = try map("https://big.example/style.json", zooms: 0...16)
        let report = await (try await lab.cache.download(region, named: "d", options: options(requests: 5))).report()
        #expect(report.reachedBudget && report.present == 6 && report.progress.total > 5_000_000_000)
    }

    /// Answers of the other one counted as proof that the tiles cannot be had.
    @Test(arguments: ["down", "503", "502", "slow"])
    func oneHostOfTwoThatIsAwayFailedItsTiles(_ how: String) async throws {
        let lab = try CacheLab()
        let style = Self.style(
            Self.raster("https://up.example/{z}/{x}/{y}.png", last: 2) + ", "
                + Self.raster("https://down.example/{z}/{x}/{y}.png", last: 2))
        let clock = lab.clock.manual
        let back = clock.ticks + 600_000_000_000
        let fields = fresh
        lab.transport.script { request in
            if request.head.path == "/style.json" { return Self.json(style) }
            if request.head.authority == "down.example", clock.ticks < back {
                switch how {
                case "503": return .answer(503)
                case "502": return .answer(502)
                case "slow": throw TransportError(.timeout, "no answer in time")
                default: throw TransportError(.connection, "no route to the host")
                }
            }
            return .answer(200, fields)
        }
        var options = options(patience: .seconds(86_400))
        options.concurrency = 4
        let download = try await lab.cache.download(
            map("https://up.example/style.json", zooms: 0...2), named: "d", options: options)
        let report = await lab.clock.running { await download.report() }
        #expect(report.verdict == .complete && report.progress.failed == 0)
    }

    /// Each of them sent a request of its own.
    @Test func manyWhoFollowedOneWithLessTimeShareARequest() async throws {
        let lab = try CacheLab()
        let (short, long) = (Latch(), Latch())
        lab.transport.script { request in
            if request.timeout <= .seconds(1) {
                try await short.pass()
                throw TransportError(.timeout, "no answer in time")
            }
            try await long.pass()
            return Self.json("x")
        }
        let cache = lab.cache
        let url = try #require(URL(string: "https://m.example/x.json"))
        let leader = Task { try? await cache.response(for: url, timeout: .seconds(1)) }
        await until { short.arrivals == 1 }
        let followers = (0..<20).map { _ in Task { try? await cache.response(for: url, timeout: .seconds(30)) } }
        await until { cache.resources.drivers.count >= 22 }
        short.open()
        #expect(await leader.value == nil)
        await until { long.arrivals > 0 }
        long.open()
        for follower in followers { #expect(await follower.value?.head.status == .ok) }
        #expect(lab.transport.count == 2)
    }

    /// A style of 20 KB: it names tiles by the same URL, for each of its sources and zooms.
    @Test func aStyleThatMakesTheSameURLsOverAndOverIsRefused() async throws {
        let lab = try CacheLab()
        let sources = (0..<256).map { #""s\#($0)": {"type": "raster", "tiles": ["https://m.example/x.png"]}"# }
        let style = Self.style(sources.joined(separator: ","))
        lab.transport.script { $0.head.path == "/style.json" ? Self.json(style) : .answer(200) }
        let error = await #expect(throws: TileCacheError.self) {
            try await lab.cache.download(
                map("https://m.example/style.json", zooms: 0...8), named: "d", options: options())
        }
        #expect(error?.code == .invalidStyle)
    }

    /// What lies outside was asked for where the tiles are a source's, and failed.
    @Test(arguments: [false, true]) func tilesOutsideOfAStylesBoundsAreNotWanted(isNamed: Bool) async throws {
        let lab = try CacheLab()
        let host = "bounds\(isNamed).example"
        if isNamed {
            TileCacheURLProtocol.use(lab.cache, for: [try lab.source("relief", "https://\(host)/{z}/{x}/{y}.png")])
        }
        let style = Self.style(
            Self.raster("https://\(host)/{z}/{x}/{y}.png", last: 4, #""bounds": [1, 46, 2, 47],"#))
        let fields = fresh
        lab.transport.script { request in
            if request.head.path == "/style.json" { return Self.json(style) }
            let inside = ["/0/0/0.png", "/1/1/0.png", "/2/2/1.png", "/3/4/2.png", "/4/8/5.png"]
            return inside.contains(request.head.path ?? "") ? .answer(200, fields) : .answer(403)
        }
        let report = await
            (try await lab.cache.download(
                map("https://\(host)/style.json", zooms: 0...4), named: "d", options: options()))
            .report()
        #expect(report.verdict == .complete && report.progress.total == 6)
    }

    /// It would have been downloaded as a style, and asked for as a tile.
    @Test func aStyleWhoseURLIsATilesIsRefused() async throws {
        let lab = try CacheLab()
        TileCacheURLProtocol.use(lab.cache, for: [try lab.source("relief", "https://odd.example/{z}/{x}/{y}.json")])
        let error = await #expect(throws: TileCacheError.self) {
            try await lab.cache.download(map("https://odd.example/0/0/0.json"), named: "d", options: options())
        }
        #expect(error?.code == .invalidStyle && lab.transport.count == 0)
    }
}
