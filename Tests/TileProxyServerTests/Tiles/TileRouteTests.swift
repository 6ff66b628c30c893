import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

@Suite(.timeLimit(.minutes(60)))
struct TileRouteTests {
    @Test
    func aTileIsFetchedOnceAndThenAHit() async throws {
        try await TileLab.with { lab in
            let first = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(first.status == 200 && first.body == TileLab.png("sea"))
            #expect(first[.cacheStatus] == "tileproxy; fwd=uri-miss; ttl=60; stored")
            #expect(first[.age] == "0" && first[.eTag] == "\"v1\"" && first[.contentType] == "image/png")
            lab.clock.advance(seconds: 7)
            // The second may still be on the long way, the third goes by the prepared block; they say the same.
            for _ in 0..<3 {
                let hit = try await lab.get("/tiles/osm/3/4/2.png?nocache=\(Int.random(in: 0...99))")
                #expect(hit.status == 200 && hit.body == first.body && hit[.age] == "7")
                #expect(hit[.cacheStatus] == "tileproxy; hit; ttl=53" && hit[.cacheControl] == "public, max-age=60")
                #expect(hit[.accessControlAllowOrigin] == "*" && hit[.xContentTypeOptions] == "nosniff")
                #expect(hit[.date] != nil && hit[.contentLength] == "11" && hit[.acceptRanges] == "bytes")
            }
            #expect(lab.origin.count == 1)
            let counts = try #require(lab.statistics.snapshot.sources.first)
            #expect(counts.requests.hits == 3 && counts.requests.misses == 1 && counts.requests.bytesSent == 44)
        }
    }

    @Test
    func onAFullDiskClientsWhoAskTogetherCostOneRequest() async throws {
        let files = SimulatedFileSystem(SimulatedDisk(clock: ManualClock()))
        let (asked, gate) = (Locked(0), TileCacheTesting.Gate())
        try await TileLab.with(
            files: files,
            origin: { _ in
                asked.withLock { $0 += 1 }
                await gate.wait()
                return TileLab.Answer(fields: [.cacheControl: "max-age=60"], body: TileLab.png("sea"))
            }
        ) { lab in
            files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
            try await withThrowingTaskGroup(of: Data.self) { group in
                for _ in 0..<12 { group.addTask { try await lab.get("/tiles/osm/3/4/2.png").body } }
                let key = try TileKey("osm/3/4/2")
                while lab.service.flights.followers(of: lab.flight(key)) < 12 { await Task.yield() }
                gate.open()
                for try await body in group { #expect(body == TileLab.png("sea")) }
            }
            #expect(asked.withLock { $0 } == 1)
            files.fail(nil)
        }
    }

    /// As `location /maps/ { proxy_pass http://tileproxy/; }` has it.
    @Test
    func behindAPathTileJSONNamesURLsBelowIt() async throws {
        try await TileLab.with(publicURL: "https://maps.example/maps") { lab in
            let json = try await lab.get("/tiles/osm.json").text
            #expect(json.contains("\"https://maps.example/maps/tiles/osm/{z}/{x}/{y}.png\""))
        }
    }

    @Test
    func nothingOfTheClientReachesTheOrigin() async throws {
        try await TileLab.with { lab in
            let fields: HTTPFields = [
                .cookie: "id=1", .authorization: "Basic x", .cacheControl: "no-cache", .referer: "https://me.example",
                .userAgent: "Me", .acceptEncoding: "br",
            ]
            _ = try await lab.get("/tiles/osm/3/4/2.png?key=s3cret", fields)
            let asked = lab.origin.asked.withLock { $0[0] }
            #expect(asked.path == "/3/4/2.png")
            #expect(asked.headerFields[.cookie] == nil && asked.headerFields[.authorization] == nil)
            #expect(
                asked.headerFields[.referer] == nil && asked.headerFields[.userAgent]?.hasPrefix("tileproxy/") == true)
            // A reload in the browser costs no request.
            let again = try await lab.get("/tiles/osm/3/4/2.png", fields)
            #expect(again[.cacheStatus]?.hasPrefix("tileproxy; hit") == true && lab.origin.count == 1)
        }
    }

    @Test
    func whatTheOriginSaysToItsOwnClientsIsDropped() async throws {
        try await TileLab.with(
            "osm=https://tiles.example/{z}/{x}/{y}.png",
            origin: { _ in
                var fields: HTTPFields = [
                    .cacheControl: "max-age=60", .contentType: "image/png", .vary: "Origin, Cookie",
                ]
                fields[.setCookie] = "session=1"
                fields[.accessControlAllowOrigin] = "https://only.example"
                fields[.accessControlAllowCredentials] = "true"
                return TileLab.Answer(fields: fields, body: TileLab.png("x"))
            }
        ) { lab in
            for _ in 0..<3 {
                let answer = try await lab.get("/tiles/osm/1/0/0.png")
                #expect(answer[.setCookie] == nil && answer[.vary] == nil)
                #expect(answer[.accessControlAllowOrigin] == "*" && answer[.accessControlAllowCredentials] == nil)
                #expect(answer[.eTag]?.count == 34, "one made of the bytes")
            }
            #expect(lab.origin.count == 1)
        }
    }

    @Test
    func clientsRevalidateAndAskForParts() async throws {
        try await TileLab.with { lab in
            for _ in 0..<2 {
                _ = try await lab.get("/tiles/osm/3/4/2.png")
                let same = try await lab.get("/tiles/osm/3/4/2.png", [.ifNoneMatch: "\"v1\""])
                #expect(same.status == 304 && same.body.isEmpty && same[.eTag] == "\"v1\"" && same[.age] == "0")
                #expect(same[.contentType] == nil && same[.contentLength] == nil)
                let weak = try await lab.get("/tiles/osm/3/4/2.png", [.ifNoneMatch: "\"v0\", W/\"v1\""])
                #expect(weak.status == 304)
                let other = try await lab.get("/tiles/osm/3/4/2.png", [.ifNoneMatch: "\"v2\""])
                #expect(other.status == 200 && other.body.count == 11)
                let part = try await lab.get("/tiles/osm/3/4/2.png", [.range: "bytes=8-"])
                #expect(part.status == 206 && part.text == "sea" && part[.contentRange] == "bytes 8-10/11")
                let head = try await lab.get("/tiles/osm/3/4/2.png", method: .head)
                #expect(head.status == 200 && head.body.isEmpty && head[.contentLength] == "11")
            }
            #expect(lab.origin.count == 1)
        }
    }

    @Test
    func aStaleTileIsConfirmed() async throws {
        try await TileLab.with(
            "osm=https://tiles.example/{z}/{x}/{y}.png",
            origin: { request in
                let fields: HTTPFields = [.cacheControl: "max-age=60", .eTag: "\"v1\"", .contentType: "image/png"]
                if request.headerFields[.ifNoneMatch] == "\"v1\"" { return TileLab.Answer(status: 304, fields: fields) }
                return TileLab.Answer(fields: fields, body: TileLab.png("sea"))
            }
        ) { lab in
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            lab.clock.advance(seconds: 61)
            let confirmed = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(confirmed.status == 200 && confirmed.body.count == 11)
            #expect(confirmed[.cacheStatus] == "tileproxy; fwd=stale; fwd-status=304; ttl=60; stored")
            let counts = try #require(lab.statistics.snapshot.sources.first)
            #expect(counts.upstream.bytesSaved == 11 && counts.upstream.notModified == 1)
            #expect(counts.requests.revalidated == 1)
        }
    }

    @Test(arguments: [401, 403, 429, 500, 503])
    func aStaleTileIsServedWhereTheOriginFails(_ status: Int) async throws {
        try await TileLab.with { lab in
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            lab.origin.become { _ in TileLab.Answer(status: status) }
            lab.clock.advance(seconds: 120)
            let stale = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(stale.status == 200 && stale.body.count == 11 && stale[.age] == "120")
            #expect(stale[.cacheStatus] == "tileproxy; fwd=stale; fwd-status=\(status); ttl=-60; detail=stale-if-error")
        }
    }

    @Test
    func whereThereIsNothingTheFailureIsSaidInAFewWords() async throws {
        try await TileLab.with(
            "osm=https://tiles.example/{z}/{x}/{y}.png",
            origin: { _ in throw TransportError(.timeout, "tiles.example: too slow") }
        ) { lab in
            let answer = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(answer.status == 504 && answer.text == "The tile server gives no answer.\n")
            #expect(answer[.cacheControl] == "no-store" && answer[.cacheStatus]?.contains("fwd=uri-miss") == true)
            #expect(answer[.accessControlAllowOrigin] == "*")
            lab.origin.become { _ in TileLab.Answer(status: 403, body: Data("key s3cret is wrong".utf8)) }
            lab.clock.advance(seconds: 3600)
            let refused = try await lab.get("/tiles/osm/3/4/3.png")
            #expect(refused.status == 502 && refused.text.contains("403") && !refused.text.contains("s3cret"))
            lab.origin.become { _ in
                TileLab.Answer(fields: [.contentType: "text/html"], body: Data("<html>sorry</html>".utf8))
            }
            lab.clock.advance(seconds: 3600)
            #expect(try await lab.get("/tiles/osm/3/4/4.png").status == 502)
        }
    }

    @Test
    func anAbsentTileIsRemembered() async throws {
        try await TileLab.with(
            "osm=https://tiles.example/{z}/{x}/{y}.png", { $0.lifetimes.absent = .seconds(300) },
            origin: { _ in TileLab.Answer(status: 404) }
        ) {
            lab in
            for _ in 0..<3 {
                let answer = try await lab.get("/tiles/osm/3/4/2.png")
                #expect(answer.status == 404 && answer.body.isEmpty && answer[.cacheControl] == "public, max-age=300")
            }
            #expect(lab.origin.count == 1)
            lab.clock.advance(seconds: 301)
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(lab.origin.count == 2)
        }
    }

    @Test
    func outsideOfTheSourceNobodyIsAsked() async throws {
        try await TileLab.with(
            "osm=https://tiles.example/{z}/{x}/{y}.png",
            {
                $0.zooms = 2...5; $0.box = ConfigValue.box("5,44,17,48")
            }
        ) { lab in
            for path in ["1/0/0.png", "6/33/22.png", "4/0/0.png", "4/8/5.jpg", "4/99/5.png", "nope"] {
                let answer = try await lab.get("/tiles/osm/" + path)
                #expect(answer.status == 404, "\(path)")
            }
            #expect(try await lab.get("/tiles/other/3/4/2.png").status == 404)
            #expect(lab.origin.count == 0)
            #expect(try await lab.get("/tiles/osm/4/8/5.png").status == 200)
        }
    }

    @Test
    func onlyIfCachedAsksNobody() async throws {
        try await TileLab.with { lab in
            let wish: HTTPFields = [.cacheControl: "only-if-cached"]
            #expect(try await lab.get("/tiles/osm/3/4/2.png", wish).status == 504)
            #expect(lab.origin.count == 0)
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            for _ in 0..<2 { #expect(try await lab.get("/tiles/osm/3/4/2.png", wish).status == 200) }
            lab.clock.advance(seconds: 61)
            #expect(try await lab.get("/tiles/osm/3/4/2.png", wish).status == 504)
            #expect(lab.origin.count == 1)
        }
    }

    @Test
    func manyWhoAskForOneTileCostOneRequest() async throws {
        try await TileLab.with { lab in
            let gate = AsyncStream<Void>.makeStream()
            let opened = Locked(gate.stream)
            lab.origin.become { _ in
                for await _ in opened.withLock({ $0 }) { break }
                return TileLab.Answer(fields: [.cacheControl: "max-age=60"], body: TileLab.png("x"))
            }
            try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<40 { group.addTask { try await lab.get("/tiles/osm/3/4/2.png").status } }
                gate.continuation.yield()
                for try await status in group { #expect(status == 200) }
            }
            #expect(lab.origin.count == 1)
        }
    }

    @Test
    func codedTilesGoToThoseWhoTakeThem() async throws {
        try await TileLab.with(
            // Not as vector tiles, which are no text.
            "v=https://tiles.example/{z}/{x}/{y}.pbf", { $0.kind = .any },
            origin: { _ in
                TileLab.Answer(
                    fields: [
                        .cacheControl: "max-age=60", .contentEncoding: "gzip", .contentType: "application/x-protobuf",
                    ],
                    body: TileFieldsTests.zipped)
            }
        ) { lab in
            for _ in 0..<2 {
                let coded = try await lab.get("/tiles/v/3/4/2.pbf", [.acceptEncoding: "gzip, br"])
                #expect(coded[.contentEncoding] == "gzip" && coded.body == TileFieldsTests.zipped)
                let plain = try await lab.get("/tiles/v/3/4/2.pbf", [.acceptEncoding: "identity"])
                #expect(plain[.contentEncoding] == nil && plain.text == "hello tile")
                #expect(coded[.vary] == "Accept-Encoding" && plain[.vary] == "Accept-Encoding")
                #expect(coded[.eTag] != nil && coded[.eTag] != plain[.eTag])
            }
            #expect(lab.origin.count == 1)
        }
    }

    @Test
    func tilesAreReadAndNothingElse() async throws {
        try await TileLab.with { lab in
            let post = try await lab.get("/tiles/osm/3/4/2.png", method: .post)
            #expect(post.status == 405 && post[.allow] == "GET, HEAD, OPTIONS")
            let preflight = try await lab.get("/tiles/osm/3/4/2.png", [.origin: "https://a.example"], method: .options)
            #expect(preflight.status == 204 && preflight[.accessControlAllowMethods] == "GET, HEAD")
            #expect(lab.origin.count == 0)
        }
    }

    @Test
    func aFolderIsServedAndNotCopied() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("folder-\(UUID())")
        defer { try? FileManager.default.removeItem(at: folder) }
        let tiles = folder.appendingPathComponent("1/0")
        try FileManager.default.createDirectory(at: tiles, withIntermediateDirectories: true)
        try TileLab.png("file").write(to: tiles.appendingPathComponent("0.png"))
        try await TileLab.with("world=\(folder.path)/{z}/{x}/{y}.png") { lab in
            let tile = try await lab.get("/tiles/world/1/0/0.png")
            #expect(tile.status == 200 && tile.body == TileLab.png("file") && tile[.contentType] == "image/png")
            #expect(tile[.cacheControl] == "public, max-age=60" && tile[.cacheStatus]?.contains("fwd=bypass") == true)
            let same = try await lab.get("/tiles/world/1/0/0.png", [.ifNoneMatch: tile[.eTag] ?? ""])
            #expect(same.status == 304)
            #expect(try await lab.get("/tiles/world/1/1/0.png").status == 404)
            #expect(try lab.store.statistics().entries == 0)
        }
    }

    @Test
    func aReloadSwapsTheSources() async throws {
        try await TileLab.with { lab in
            for _ in 0..<2 { #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 200) }
            var other = try SourceConfiguration(argument: "osm=https://tiles.example/{z}/{x}/{y}.png")
            other.sharing = .origin("https://maps.example")
            let topo = try SourceConfiguration(argument: "topo=https://topo.example/{z}/{x}/{y}.png")
            try await lab.adopt([topo, other])
            let tile = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(tile[.accessControlAllowOrigin] == "https://maps.example" && lab.origin.count == 1)
            #expect(try await lab.get("/tiles/topo/3/4/2.png").status == 200)
            try await lab.adopt([topo])
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 404)
        }
    }

    @Test
    func theOperatorsRoutesAreThere() async throws {
        try await TileLab.with { lab in
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(try await lab.get("/_tileproxy/health").text.contains("\"status\":\"ok\""))
            let page = try await lab.get("/")
            #expect(page.status == 200 && page[.contentSecurityPolicy]?.contains("unpkg.com") == true)
            #expect(try await lab.get("/", [.ifNoneMatch: page[.eTag] ?? ""]).status == 304)
            #expect(try await lab.get("/_tileproxy/").status == 200)
            let metrics = try await lab.get("/_tileproxy/metrics").text
            #expect(metrics.contains("tileproxy_requests_total{source=\"osm\",result=\"miss\"} 1"))
            #expect(metrics.contains("tileproxy_cache_entries 1"))
            let stats = try await lab.get("/_tileproxy/stats.json").text
            #expect(stats.contains("\"requests\":1") && !stats.contains("tiles.example"))
            let states = try await lab.get("/_tileproxy/states.json?source=osm&z=3&x=4-5&y=2").text
            #expect(states.contains("\"state\":\"fresh\"") && states.contains("\"state\":\"missing\""))
            #expect(try await lab.get("/_tileproxy/states.json?source=osm").status == 400)
            #expect(try await lab.get("/_tileproxy/leaflet/leaflet.js").status == 404)
            #expect(try await lab.get("/elsewhere").status == 404)
            let json = try await lab.get("/tiles/osm.json")
            #expect(json.text.contains("http://127.0.0.1:\(lab.server.port)/tiles/osm/{z}/{x}/{y}.png"))
            lab.admin.isStopping()
            #expect(try await lab.get("/_tileproxy/health").status == 503)
        }
    }
}
