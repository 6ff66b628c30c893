import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileCache
import TileImaging
import TileStore
import TileStoreTesting

@testable import TileProxyServer

@Suite(.timeLimit(.minutes(60)))
struct OverzoomRouteTests {
    /// A tile of the map that comes with the package, 256 by 256 pixels with a palette.
    private static func world() throws -> Data {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        return try Data(contentsOf: root.appendingPathComponent("Sample/world/0/0/0.png"))
    }

    private static let fields: HTTPFields = [
        .cacheControl: "max-age=60", .eTag: "\"v1\"", .contentType: "image/png",
    ]

    private func with(
        overzoom: Int = 2, _ body: Data? = nil, _ test: (TileLab, Data) async throws -> Void
    ) async throws {
        let picture = try body ?? Self.world()
        try await TileLab.with { source in
            source.zooms = 0...3
            source.overzoom = overzoom
        } origin: { _ in
            TileLab.Answer(fields: Self.fields, body: picture)
        } _: { lab in
            try await test(lab, picture)
        }
    }

    @Test
    func pastTheLastZoomTilesAreMadeFromItsTiles() async throws {
        try await with { lab, picture in
            let first = try await lab.get("/tiles/osm/5/18/9.png")
            let tile = try TileAddress(z: 5, x: 18, y: 9)
            let overzoom = try #require(Overzoom(of: tile, from: 3))
            #expect(first.status == 200 && first[.contentType] == "image/png")
            #expect(try first.body == TileImage.overzoomed(picture, overzoom))
            #expect(try TileImage.header(of: first.body).hasPalette)
            #expect(lab.origin.asked.withLock { $0.map(\.path) } == ["/3/4/2.png"])
            #expect(
                first[.cacheStatus]
                    == "tileproxy; fwd=uri-miss; ttl=60; stored; detail=\"made from zoom 3\"")
            let tag = try #require(first[.eTag])
            #expect(tag.hasPrefix("W/\"overzoom-3-"))
            lab.clock.advance(seconds: 7)
            let hit = try await lab.get("/tiles/osm/5/18/9.png")
            #expect(hit.body == first.body && hit[.age] == "7" && hit[.cacheControl] == "public, max-age=60")
            #expect(hit[.cacheStatus] == "tileproxy; hit; ttl=53; detail=\"made from zoom 3\"")
            #expect(hit[.eTag] == tag && lab.origin.count == 1)
            #expect(try await lab.get("/tiles/osm/5/18/9.png", [.ifNoneMatch: tag]).status == 304)
            #expect(try await lab.get("/tiles/osm/5/18/9.png", [.cacheControl: "only-if-cached"]).status == 200)
            #expect(try await lab.get("/tiles/osm/5/30/30.png", [.cacheControl: "only-if-cached"]).status == 504)
            #expect(lab.origin.count == 1)
            // Too far, and outside.
            #expect(try await lab.get("/tiles/osm/6/0/0.png").status == 404)
            #expect(try await lab.get("/tiles/osm/5/32/0.png").status == 404)
            let description = try await lab.get("/tiles/osm.json")
            #expect(description.text.contains("\"maxzoom\":5") && description.text.contains("\"minzoom\":0"))
        }
    }

    /// A coarser tile must not stand in for one that is there and only needs to be asked about.
    @Test
    func onlyIfCachedAStaleAncestorIsNotPassedOverForACoarserOne() async throws {
        try await with { lab, _ in
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            lab.clock.advance(seconds: 100)
            _ = try await lab.get("/tiles/osm/2/2/1.png")
            #expect(try await lab.get("/tiles/osm/4/8/4.png", [.cacheControl: "only-if-cached"]).status == 504)
            #expect(lab.origin.count == 2)
        }
    }

    @Test
    func aChangedAncestorIsSeenWhenItIsRefreshed() async throws {
        try await with { lab, picture in
            let first = try await lab.get("/tiles/osm/4/0/0.png")
            let other = try TileImage.overzoomed(
                picture, crop: PixelRect(x: 128, y: 0, width: 128, height: 128), width: 256, height: 256)
            lab.origin.become { _ in TileLab.Answer(fields: Self.fields, body: other) }
            #expect(try await lab.get("/tiles/osm/4/0/0.png").body == first.body)
            lab.clock.advance(seconds: 61)
            let second = try await lab.get("/tiles/osm/4/0/0.png")
            #expect(second.status == 200 && second.body != first.body && second[.eTag] != first[.eTag])
        }
    }

    @Test
    func withoutTheWishThereIsNothingPastTheLastZoom() async throws {
        try await with(overzoom: 0) { (lab: TileLab, _: Data) async throws in
            #expect(try await lab.get("/tiles/osm/4/0/0.png").status == 404)
            #expect(try await lab.get("/tiles/osm.json").text.contains("\"maxzoom\":3"))
            #expect(lab.origin.count == 0)
        }
    }

    @Test
    func picturesOfWhichNothingCanBeMade() async throws {
        try await with(Data("GIF89a and more".utf8)) { (lab: TileLab, _: Data) async throws in
            #expect(try await lab.get("/tiles/osm/4/0/0.png").status == 404)
            #expect(try await lab.get("/tiles/osm/3/0/0.png").status == 200)
        }
        try await with(TileLab.png("sea")) { (lab: TileLab, _: Data) async throws in
            #expect(try await lab.get("/tiles/osm/4/0/0.png").status == 502)
        }
        // A bomb: its header alone says that it is one.
        var bomb = try Self.world()
        bomb.replaceSubrange(16..<24, with: [0, 0, 0x80, 0, 0, 0, 0x80, 0])
        try await with(bomb) { (lab: TileLab, _: Data) async throws in
            let answer = try await lab.get("/tiles/osm/4/0/0.png")
            #expect(answer.status == 502 && answer.text.contains("too large"))
        }
    }

    @Test
    func absentAncestorsHaveAbsentChildren() async throws {
        try await with { (lab: TileLab, _: Data) async throws in
            lab.origin.become { _ in TileLab.Answer(status: 404, fields: [.cacheControl: "max-age=60"]) }
            #expect(try await lab.get("/tiles/osm/4/0/0.png").status == 404)
            let count = lab.origin.count
            #expect(try await lab.get("/tiles/osm/4/0/0.png").status == 404)
            #expect(lab.origin.count == count)
        }
    }

    @Test
    func filesOfThisMachineAreEnlargedToo() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("overzoom-\(UUID())")
        defer { try? FileManager.default.removeItem(at: folder) }
        let place = folder.appendingPathComponent("0/0")
        try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
        try Self.world().write(to: place.appendingPathComponent("0.png"))
        try await TileLab.with("files=\(folder.path)/{z}/{x}/{y}.png") { source in
            source.zooms = 0...0
            source.overzoom = 1
        } _: { lab in
            let answer = try await lab.get("/tiles/files/1/1/0.png")
            #expect(answer.status == 200 && answer[.cacheStatus] == "tileproxy; fwd=bypass; detail=\"a file\"")
            let overzoom = try #require(Overzoom(of: TileAddress(z: 1, x: 1, y: 0), from: 0))
            #expect(try answer.body == TileImage.overzoomed(Self.world(), overzoom))
            #expect(lab.origin.count == 0)
        }
    }

    @Test
    func theFileSaysHowFar() throws {
        func read(_ lines: String) throws -> ProxyConfiguration {
            var configuration = ProxyConfiguration()
            try configuration.read(
                yaml: "sources:\n  a:\n    template: https://a.example/{z}/{x}/{y}\n" + lines, file: "file")
            return configuration
        }
        #expect(try read("    overzoom: 3\n    zooms: 0-14\n").sources.first?.servedZooms == 0...17)
        #expect(try read("    overzoom: 8\n    zooms: 0-28\n").sources.first?.servedZooms == 0...28)
        #expect(try read("").sources.first?.overzoom == 0)
        for lines in ["    overzoom: 9\n", "    overzoom: -1\n", "    overzoom: 2\n    kind: vector\n"] {
            #expect(throws: ConfigError.self) { try read(lines) }
        }
    }
}
