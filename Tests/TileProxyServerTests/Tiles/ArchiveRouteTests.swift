import ContentCoding
import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileArchive
import TileCache
import TileStore

@testable import TileProxyServer

/// MBTiles, PMTiles and folders as sources of the proxy, asked over a socket.
@Suite(.timeLimit(.minutes(60)))
struct ArchiveRouteTests {
    /// A folder for one test, removed when the value goes.
    private final class Scratch {
        let path = FileManager.default.temporaryDirectory.appendingPathComponent("archives-\(UUID())").path

        init() throws { try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true) }

        deinit {
            do { try FileManager.default.removeItem(atPath: path) } catch { print("left behind: \(path): \(error)") }
        }

        func callAsFunction(_ name: String) -> String { "\(path)/\(name)" }
    }

    private final class Silence: TransferObserver {
        func skipped(_ what: String, _ why: String, count: Int) {}
        func failed(_ what: String, _ why: String) {}
        func advanced(_ progress: @autoclosure () -> TransferProgress) {}
        var wantsStop: Bool { false }
    }

    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    /// Writes a package or a folder with tiles of zoom 2, row 1.
    @discardableResult
    private func archive(
        _ name: String, _ tiles: [Int: Data], coding: String? = nil, _ metadata: ArchiveMetadata = ArchiveMetadata()
    ) throws -> String {
        let store = try TileStore(at: scratch("store-\(UUID())"))
        for (x, data) in tiles {
            let response = ResponseFields(
                mediaType: coding == nil ? "image/png" : "application/vnd.mapbox-vector-tile", contentEncoding: coding)
            let now = Timestamp(seconds: 1_700_000_000)
            try store.put(
                data, for: try TileKey(source: "s", z: 2, x: x, y: 1),
                metadata: TileMetadata(response: response, storedAt: now, expires: now))
        }
        var export = ArchiveExport(store: store, source: try SourceName("s"))
        export.metadata = metadata
        _ = try export.run(
            to: scratch("new-" + name), format: ArchiveFormat(path: name), observer: Silence())
        try store.close()
        #expect(rename(scratch("new-" + name), scratch(name)) == 0)
        return scratch(name)
    }

    private func sea() -> [Int: Data] { [0: TileLab.png("sea"), 1: TileLab.png("sea"), 2: TileLab.png("land")] }

    @Test(arguments: ["w.pmtiles", "w.mbtiles", "w"])
    func tilesComeFromTheArchiveAndClientsRevalidate(name: String) async throws {
        let path = try archive(name, sea())
        let isFolder = name == "w"
        try await TileLab.with("w=" + path + (isFolder ? "/{z}/{x}/{y}.png" : "")) { lab in
            let first = try await lab.get("/tiles/w/2/0/1.png")
            #expect(first.status == 200 && first.body == TileLab.png("sea") && first[.contentType] == "image/png")
            #expect(first[.cacheStatus]?.hasPrefix("tileproxy; fwd=bypass") == true)
            #expect(first[.cacheControl] == "public, max-age=60" && first[.age] == "0" && first[.vary] == nil)
            let tag = try #require(first[.eTag])
            #expect(try await lab.get("/tiles/w/2/1/1.png")[.eTag] == tag)
            #expect(try await lab.get("/tiles/w/2/2/1.png")[.eTag] != tag)
            let same = try await lab.get("/tiles/w/2/0/1.png", [.ifNoneMatch: tag])
            #expect(same.status == 304 && same.body.isEmpty && same[.eTag] == tag)
            #expect(try await lab.get("/tiles/w/2/2/1.png", [.ifNoneMatch: tag]).status == 200)
            let part = try await lab.get("/tiles/w/2/0/1.png", [.range: "bytes=1-3", .ifRange: tag])
            #expect(part.status == 206 && part.text == "PNG")
            let head = try await lab.get("/tiles/w/2/0/1.png", method: .head)
            #expect(head.status == 200 && head[.contentLength] == "11" && head.body.isEmpty)
            let absent = try await lab.get("/tiles/w/2/3/1.png")
            #expect(absent.status == 404 && absent[.cacheControl] == "public, max-age=60" && absent.body.isEmpty)
            #expect(try await lab.get("/tiles/w/2/0/1.jpg").status == 404)
            #expect(try await lab.get("/tiles/w/2/4/1.png").status == 404)
            #expect(try lab.store.statistics().entries == 0 && lab.origin.count == 0, "nothing is copied or fetched")
        }
    }

    @Test(arguments: ["v.pmtiles", "v.mbtiles"])
    func compressedVectorTilesGoOutAsTheClientTakesThem(name: String) async throws {
        let plain = Data([0x1A, 4]) + Data("some layer of a vector tile, some layer of a vector tile".utf8)
        let packed = try Gzip.encode(plain)
        try await TileLab.with("v=" + archive(name, [1: packed], coding: "gzip")) { lab in
            let first = try await lab.get("/tiles/v/2/1/1.pbf", [.acceptEncoding: "gzip"])
            #expect(first.status == 200 && first.body == packed && first[.contentEncoding] == "gzip")
            #expect(first[.contentType] == "application/vnd.mapbox-vector-tile" && first[.vary] == "Accept-Encoding")
            let decoded = try await lab.get("/tiles/v/2/1/1.mvt", [.acceptEncoding: "identity"])
            #expect(decoded.body == plain && decoded[.contentEncoding] == nil && decoded[.eTag] != first[.eTag])
            let again = try await lab.get(
                "/tiles/v/2/1/1.pbf", [.acceptEncoding: "gzip", .ifNoneMatch: first[.eTag] ?? ""])
            #expect(again.status == 304)
        }
    }

    @Test(arguments: ["d.pmtiles", "d.mbtiles"])
    func tileJSONSaysWhatTheArchiveSays(name: String) async throws {
        var metadata = ArchiveMetadata()
        metadata.name = "Our roads"
        metadata.attribution = "© people"
        metadata.description = "Roads and rivers"
        let layer = JSON.object([
            .init("id", .string("roads")), .init("fields", .object([.init("name", .string("String"))])),
            .init("maxzoom", .number("14")),
        ])
        metadata.others = [.init("vector_layers", .array([layer]))]
        let path = try archive(name, [1: Gzip.encode(Data([0x1A, 0]))], coding: "gzip", metadata)
        try await TileLab.with("d=" + path) { lab in
            let answer = try await lab.get("/tiles/d.json")
            let json = try #require(try JSONSerialization.jsonObject(with: answer.body) as? [String: Any])
            #expect(json["name"] as? String == "Our roads" && json["attribution"] as? String == "© people")
            #expect(json["description"] as? String == "Roads and rivers" && json["format"] as? String == "pbf")
            #expect(json["minzoom"] as? Int == 2 && json["maxzoom"] as? Int == 2)
            #expect(json["bounds"] as? [Double] == [-90, 0, 0, 66.5132604])
            #expect((json["center"] as? [Double])?.last == 2)
            #expect((json["tiles"] as? [String])?.first?.hasSuffix("/tiles/d/{z}/{x}/{y}.pbf") == true)
            let said = try #require((json["vector_layers"] as? [[String: Any]])?.first)
            #expect(said["id"] as? String == "roads" && said["maxzoom"] as? Int == 14)
            #expect(said["fields"] as? [String: String] == ["name": "String"])
        }
    }

    @Test func whatTheOperatorSaysCounts() async throws {
        let path = try archive("w.pmtiles", sea())
        try await TileLab.with(
            "w=" + path,
            {
                $0.title = "Mine"; $0.zooms = 0...1; $0.lifetimes.minimum = .seconds(3600)
            }
        ) { lab in
            let json = try await lab.get("/tiles/w.json").text
            #expect(json.contains("\"Mine\"") && json.contains("\"maxzoom\":1"))
            #expect(try await lab.get("/tiles/w/2/0/1.png").status == 404)
            #expect(try await lab.get("/tiles/w/1/0/1.png")[.cacheControl] == "public, max-age=3600")
        }
    }

    @Test(arguments: ["w.pmtiles", "w.mbtiles"])
    func aFileThatIsReplacedIsTakenUpWhenTheConfigurationIsReadAgain(name: String) async throws {
        let path = try archive(name, sea())
        let configuration = try SourceConfiguration(argument: "w=" + path)
        try await TileLab.with("w=" + path) { lab in
            let first = try await lab.get("/tiles/w/2/0/1.png")
            let land = try await lab.get("/tiles/w/2/2/1.png")
            try archive(name, [0: TileLab.png("ice"), 2: TileLab.png("land")])
            #expect(try await lab.get("/tiles/w/2/0/1.png").body == TileLab.png("sea"), "still the old one")
            try await lab.adopt([configuration])
            let tags: [HTTPFields] = [[.ifNoneMatch: first[.eTag] ?? ""], [.ifNoneMatch: land[.eTag] ?? ""]]
            #expect(try await lab.get("/tiles/w/2/0/1.png", tags[0]).body == TileLab.png("ice"))
            #expect(try await lab.get("/tiles/w/2/2/1.png", tags[1]).status == 304, "what is the same costs nothing")
            #expect(try await lab.get("/tiles/w/2/1/1.png").status == 404)
        }
    }

    @Test func aBrokenFileStopsTheStartButNotAReload() async throws {
        let path = try archive("w.pmtiles", sea())
        try await TileLab.with("w=" + path) { lab in
            let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
            try file.truncate(atOffset: 130)
            try file.close()
            // Its directory is in memory, but the file is not the one that was opened.
            let answer = try await lab.get("/tiles/w/2/0/1.png")
            #expect(answer.status == 500 && answer[.cacheControl] == "no-store" && !answer.text.contains(path))
            do throws(ConfigError) {
                var configuration = ProxyConfiguration()
                configuration.sources = [try SourceConfiguration(argument: "w=" + path)]
                _ = try SourceTable(configuration)
                Issue.record("a file that is cut short")
            } catch {
                #expect(error.description.contains("sources.w: \(path): ") && error.description.contains("cut short"))
            }
        }
        #expect(throws: ConfigError.self) { try SourceConfiguration(argument: "w=https://h/w.mbtiles") }
    }
}
