import Foundation
import HTTPCaching
import NIOCore
import Testing
import TileCache
import TileStore

@testable import TileProxyServer

@Suite(.timeLimit(.minutes(60)))
struct PageTests {
    @Test
    func thePolicyPermitsThePagesOwnScriptsAndNoOther() {
        let page = MapPage(leaflet: .own, own: "_tileproxy/", root: "")
        let html = String(buffer: page.html)
        for script in MapPage.scripts {
            #expect(html.contains("<script>" + script + "</script>"), "the very text that is hashed")
            #expect(page.policy.contains(" '\(MapPage.digest(script))' "))
            // What would end the script early, or take what tiles and figures say for HTML.
            let words = ["</script", "<!--", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            for word in words { #expect(!script.contains(word)) }
        }
        #expect(MapPage.scripts.count == 4 && html.components(separatedBy: "<script>").count == 5)
        #expect(html.contains("<style>" + MapPage.style + "</style>"))
        #expect(page.policy.contains("script-src 'sha256-") && page.policy.contains("' 'self'; style-src "))
        #expect(page.policy.contains("default-src 'none'") && !page.policy.contains("unsafe-inline"))
        #expect(!page.policy.contains("unpkg") && !html.contains("unpkg"))
        #expect(!html.contains("{{"), "every placeholder is filled")
        #expect(!html.contains(" style=\"") && !html.contains(" onclick="), "what the policy would refuse")
        // Known answer: the digest of nothing.
        #expect(MapPage.digest("") == "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
    }

    @Test
    func leafletFromTheNetworkMustHaveItsDigest() {
        let page = MapPage(leaflet: .network, own: "", root: "../")
        let html = String(buffer: page.html)
        #expect(
            html.contains("leaflet.js\" integrity=\"sha256-20nQCchB9co0qIjJZRGuk2/Z9VM+kNiyxNV1lvTlZBo=\" crossorigin"))
        #expect(page.policy.contains(" https://unpkg.com/leaflet@1.9.4/dist/leaflet.js;"))
        #expect(page.policy.contains("connect-src 'self'"))
    }

    @Test(
        arguments: [
            ("source=osm&z=3&x=0-7&y=2", true), ("z=0&y=0&x=0&source=a", true), ("source=osm&z=5&x=0-31&y=0-31", true),
            ("source=osm&z=6&x=0-32&y=0-31", false), ("source=osm&z=3&x=0-8&y=0", false),
            ("source=osm&z=29&x=0&y=0", false),
            ("source=osm&z=3&x=4-2&y=0", false), ("source=osm&z=3&x=-1&y=0", false), ("source=osm&z=3&x=0", false),
            ("source=osm&z=28&x=0-268435455&y=0-268435455", false), ("z=3", false), ("&&=", false), (nil, false),
        ] as [(String?, Bool)])
    func theStatesThatOneMayAskForAreBounded(_ query: String?, _ isFine: Bool) {
        #expect((TileStates.Query(query) != nil) == isFine)
    }

    @Test
    func theStatesTellFreshStaleNegativeAndMissing() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("states-\(UUID())").path
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let store = try TileStore(at: folder)
        let source = try ServedSource(SourceConfiguration(argument: "osm=https://h/{z}/{x}/{y}.png"), index: 0)
        let now = Timestamp(seconds: 1_700_000_000)
        func put(_ x: Int, _ body: String?, _ lifetime: Int64) throws {
            let metadata = TileMetadata(
                response: ResponseFields(status: body == nil ? 404 : 200), storedAt: now.adding(seconds: -5),
                expires: now.adding(seconds: lifetime))
            _ = try store.put(
                body.map { Data($0.utf8) }, for: try TileKey(source: "osm", z: 2, x: x, y: 1), metadata: metadata)
        }
        try put(0, "sea", 60)
        try put(1, "land", -10)
        try put(2, nil, 60)
        let query = try #require(TileStates.Query("source=osm&z=2&x=0-3&y=1"))
        let states = try TileStates(query, source, store: store, now: HTTPDate(seconds: now.seconds))
        #expect(states.tiles.map(\.state) == ["fresh", "stale", "negative", "missing"])
        #expect(states.tiles[0].ttl == 60 && states.tiles[0].age == 5 && states.tiles[0].size == 3)
        #expect(states.tiles[0].blob?.count == 12 && states.tiles[2].blob == nil)
        try store.close()
    }

    @Test
    func tilesPastTheLastZoomHaveTheStateOfTheTileThatTheyAreMadeFrom() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("states-\(UUID())").path
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let store = try TileStore(at: folder)
        var configuration = try SourceConfiguration(argument: "osm=https://h/{z}/{x}/{y}.png")
        (configuration.zooms, configuration.overzoom) = (0...2, 2)
        let source = try ServedSource(configuration, index: 0)
        let now = Timestamp(seconds: 1_700_000_000)
        func put(_ z: Int, _ x: Int, _ body: String?, _ lifetime: Int64) throws {
            let metadata = TileMetadata(
                response: ResponseFields(status: body == nil ? 404 : 200), storedAt: now,
                expires: now.adding(seconds: lifetime))
            _ = try store.put(
                body.map { Data($0.utf8) }, for: try TileKey(source: "osm", z: z, x: x, y: 0), metadata: metadata)
        }
        try put(2, 0, "sea", 60)
        try put(2, 1, "land", -10)
        // Known to be absent: the next one above has the picture, or is known to be absent too.
        try put(2, 2, nil, 60)
        try put(1, 1, "wide", 60)
        try put(2, 3, nil, -10)
        func states(_ query: String) throws -> [TileStates.Tile] {
            let query = try #require(TileStates.Query(query))
            return try TileStates(query, source, store: store, now: HTTPDate(seconds: now.seconds)).tiles
        }
        let tiles = try states("source=osm&z=3&x=0-7&y=0")
        #expect(tiles.map(\.state) == ["fresh", "fresh", "stale", "stale", "fresh", "fresh", "stale", "stale"])
        #expect(tiles.map(\.from) == [2, 2, 2, 2, 1, 1, 2, 2])
        #expect(tiles[0].size == 3 && tiles[0].blob?.count == 12 && tiles[4].size == 4)
        #expect(try states("source=osm&z=4&x=0&y=0-4").map(\.state) == ["fresh", "fresh", "fresh", "fresh", "missing"])
        #expect(try states("source=osm&z=2&x=0-2&y=0").map(\.from) == [nil, nil, nil])
        #expect(try states("source=osm&z=5&x=0&y=0").isEmpty, "past what overzoom reaches")
        try store.close()
    }

    @Test
    func tileJSONDescribesASource() throws {
        var source = try SourceConfiguration(argument: "osm=https://h/{z}/{x}/{y}.png?key=s3cret")
        source.zooms = 2...9
        source.box = ConfigValue.box("5,44,17,89")
        source.attribution = "© people"
        let text = TileJSON(source, format: Array("png".utf8), base: "https://tiles.example/maps").text
        #expect(
            text
                == "{\"attribution\":\"© people\",\"bounds\":[5,44,17,85.051129],\"maxzoom\":9,\"minzoom\":2,\"name\":\"osm\","
                + "\"scheme\":\"xyz\",\"tilejson\":\"3.0.0\",\"tiles\":[\"https://tiles.example/maps/tiles/osm/{z}/{x}/{y}.png\"]}"
        )
        source.kind = .vector
        #expect(TileJSON(source, format: nil, base: "").text.contains("\"vector_layers\":[]"))
    }
}
