import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache
@testable import TileCacheMapKit

@Suite(.timeLimit(.minutes(60)))
struct MapCacheTests {
    private let one: TileAddress

    init() throws { one = try tile(5, 3, 4) }

    @Test func everyModeSaysWhatIsThereAndWhetherToAsk() throws {
        let lab = try MapLab()
        try lab.put(one, fresh: -5)
        let fresh = try tile(5, 4, 4)
        try lab.put(fresh)
        // Mode, and whether a stale and a fresh tile are to be asked for; nil for nothing there.
        let table: [(LoadMode, Bool?, Bool?)] = [
            (.standard, true, false), (.cacheThenServer, false, false), (.cacheOnly, false, false),
            (.serverThenCache, true, true), (.serverOnly, nil, nil),
        ]
        for (mode, stale, unstale) in table {
            let map = try lab.other { $0.loadMode = mode }
            #expect((map.state(of: one).content == .picture ? map.state(of: one).isStale : nil) == stale)
            #expect((map.state(of: fresh).content == .picture ? map.state(of: fresh).isStale : nil) == unstale)
            #expect((map.cachedData(for: one) != nil) == (stale != nil))
        }
    }

    /// RFC 9111, sections 5.2.2.2 and 5.2.2.4: not to be used before its server has said that it still holds.
    @Test(arguments: ["max-age=60, must-revalidate", "no-cache"])
    func whatMustBeRevalidatedIsNotDrawnBefore(cacheControl: String) async throws {
        let lab = try MapLab()
        lab.server.script { _ in .tile(picture("a"), [.cacheControl: cacheControl, .eTag: "\"a\""]) }
        _ = try await lab.map.loadTile(one, refreshing: false)
        lab.clock.advance(seconds: 120)
        #expect(lab.map.state(of: one) == .missing && lab.map.cachedData(for: one) == nil)
        let offline = try lab.other { $0.loadMode = .cacheOnly }
        #expect(offline.cachedData(for: one) == picture("a"))
        let region = try PinnedRegion(
            name: "r", source: lab.map.source.name, spans: [TileSpan(zoom: 5, columns: 3...3, rows: 4...4)])
        try lab.cache.store.pin(region)
        #expect(lab.map.state(of: one).isStale && lab.map.cachedData(for: one) == picture("a"))
    }

    @Test func theStateTellsPinnedAndAbsentAndVersions() async throws {
        let lab = try MapLab()
        #expect(lab.map.state(of: one) == .missing)
        try lab.put(one, "a")
        let before = lab.map.state(of: one)
        #expect(before.content == .picture && before.version != 0 && !before.isPinned)
        lab.clock.advance(seconds: 1)
        try lab.put(one, "b")
        #expect(lab.map.state(of: one).version != before.version)
        let region = try PinnedRegion(
            name: "r", source: lab.map.source.name, spans: [TileSpan(zoom: 5, columns: 3...3, rows: 4...4)])
        try lab.cache.store.pin(region)
        #expect(lab.map.state(of: one).isPinned)
        lab.server.script { _ in .status(404) }
        let none = try tile(5, 9, 9)
        #expect(try await lab.map.loadTile(none, refreshing: false) == nil)
        #expect(lab.map.state(of: none).content == .absent)
        // A place outside of the source's zooms is no tile, and no crash.
        #expect(lab.map.state(of: try tile(25, 1, 1)) == .missing)
        #expect(lab.map.cachedData(for: try tile(25, 1, 1)) == nil)
    }

    @Test func aRefreshAsksAndTellsWhenItCouldNot() async throws {
        let lab = try MapLab()
        try lab.put(one, "old", fresh: -5)
        lab.server.script { _ in throw TransportError(.connection, "no network") }
        let offline = try await lab.map.load(one, refreshing: true)
        #expect(offline.isOld && offline.data == picture("old"))
        lab.cache.forgetFailures()
        lab.server.script { _ in .tile(picture("new")) }
        let online = try await lab.map.load(one, refreshing: true)
        #expect(!online.isOld && online.data == picture("new"))
    }

    @Test func templatesWithScaleFilesAndFlippedRows() throws {
        let lab = try MapLab()
        func url(_ template: String, _ tile: TileAddress, flipped: Bool = false) throws -> String? {
            try lab.other {
                $0.urlTemplate = template
                $0.subdomains = template.contains("{s}") ? ["a", "b"] : []
                $0.isGeometryFlipped = flipped
            }.url(for: tile)?.absoluteString
        }
        let double = try tile(5, 3, 4, scale: 2)
        #expect(try url("https://t.example/{z}/{x}/{y}?s={scale}", double) == "https://t.example/5/3/4?s=2")
        #expect(try url("https://t.example/{z}/{x}/{y}{r}.png", double) == "https://t.example/5/3/4@2x.png")
        #expect(try url("https://{s}.t.example/{z}/{x}/{y}", one) == "https://b.t.example/5/3/4")
        #expect(try url("file:///maps/{z}/{x}/{y}.png", one) == "file:///maps/5/3/4.png")
        #expect(try url("https://t.example/{z}/{x}/{y}", one, flipped: true) == "https://t.example/5/3/27")
        #expect(try url("https://t.example/{z}/{x}/{-y}", one, flipped: true) == "https://t.example/5/3/27")
    }

    /// As MapCache and Leaflet have it: a template with `{s}` needs no list.
    @Test func withoutAListSubdomainsAreABAndC() throws {
        let lab = try MapLab()
        func hosts(_ template: String, _ subdomains: [String]) throws -> Set<String> {
            let map = try lab.other {
                $0.urlTemplate = template
                $0.subdomains = subdomains
            }
            return Set(try (0..<6).compactMap { map.url(for: try tile(5, $0, 4))?.host })
        }
        let usual: Set = ["a.t.example", "b.t.example", "c.t.example"]
        #expect(try hosts("https://{s}.t.example/{z}/{x}/{y}", []) == usual)
        #expect(try hosts("https://{s}.t.example/{z}/{x}/{y}", ["1", "2"]) == ["1.t.example", "2.t.example"])
        #expect(try hosts("https://t.example/{z}/{x}/{y}", []) == ["t.example"])
        #expect(throws: TileCacheError.self) { try hosts("https://t.example/{z}/{x}/{y}", ["a"]) }
    }

    @Test func tilesOfLocalFilesAreRead() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("map-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let column = folder.appendingPathComponent("5/3")
        try FileManager.default.createDirectory(at: column, withIntermediateDirectories: true)
        try picture("file").write(to: column.appendingPathComponent("4.png"))
        let lab = try MapLab { $0.urlTemplate = "file://\(folder.path)/{z}/{x}/{y}.png" }
        #expect(try await lab.map.loadTile(one, refreshing: false) == picture("file"))
    }

    @Test func whatIsWrongWithAConfigurationIsSaid() throws {
        let lab = try MapLab()
        #expect(throws: TileCacheError.self) { try lab.other { $0.urlTemplate = "https://t.example/{z}/{x}" } }
        #expect(throws: TileCacheError.self) { try lab.other { $0.minimumZ = 20 } }
        #expect(throws: TileCacheError.self) { try lab.other { $0.tileSize = 0 } }
        #expect(throws: TileCacheError.self) { try lab.other { $0.sourceName = "a/b" } }
        // Numbers that make no sense do not trap before they are refused.
        var odd = MapCacheConfiguration(urlTemplate: "")
        (odd.minimumZ, odd.maximumZ, odd.scales) = (-5, 99, -3...900)
        #expect(odd.layout.zooms == 0...28 && odd.layout.scales == 1...8)
    }

    @Test func twoTemplatesNeverShareTilesUnlessTheirSourceIsNamed() throws {
        let lab = try MapLab()
        func name(_ template: String, _ source: String?) throws -> SourceName {
            try lab.other {
                $0.urlTemplate = template
                $0.sourceName = source
            }.source.name
        }
        let (a, b) = ("https://a.example/{z}/{x}/{y}", "https://b.example/{z}/{x}/{y}")
        #expect(try name(a, nil) != name(b, nil))
        #expect(try name(a, nil) == name(a, nil))
        #expect(try name(a, "map") == name(b, "map"))
    }

    /// Tokens and device names change; tiles do not.
    @Test func theRequestHookChangesRequestsAndNoKeys() async throws {
        let lab = try MapLab { configuration in
            configuration.prepare = { request, _ in
                request.authority = "near.example"
                request.headerFields[.authorization] = "Bearer secret"
            }
        }
        #expect(try await lab.map.loadTile(one, refreshing: false) != nil)
        let request = try #require(lab.server.requests.first)
        #expect(request.authority == "near.example" && request.headerFields[.authorization] == "Bearer secret")
        #expect(lab.map.state(of: one).content == .picture)
        #expect(lab.map.url(for: one)?.host == "tiles.example")
    }

    @Test func theWatermarkHookChangesWhatIsDrawnAndNotWhatIsStored() async throws {
        let lab = try MapLab { $0.transform = { data, tile in data + Data("-\(tile.z)".utf8) } }
        #expect(try await lab.map.loadTile(one, refreshing: false) == picture("/5/3/4.png") + Data("-5".utf8))
        #expect(lab.map.cachedData(for: one) == picture("/5/3/4.png") + Data("-5".utf8))
        let key = try lab.map.source.key(z: 5, x: 3, y: 4)
        #expect(try lab.cache.store.read(key)?.data == picture("/5/3/4.png"))
    }

    @Test func sizeAndClearAreThisMapsAlone() async throws {
        let lab = try MapLab()
        let other = try lab.other { $0.sourceName = "other" }
        for x in 0..<4 { try lab.put(try tile(5, x, 4)) }
        _ = try await other.loadTile(one, refreshing: false)
        let size = try await lab.map.size()
        #expect(size.tiles == 4 && size.tileBytes == 4 * 21 && size.diskBytes >= 5 * 21)
        let region = try PinnedRegion(
            name: "r", source: lab.map.source.name, spans: [TileSpan(zoom: 5, columns: 3...3, rows: 4...4)])
        try lab.cache.store.pin(region)
        #expect(try await lab.map.clear().removedEntries == 3)
        #expect(try await lab.map.clear(includingRegions: true).removedEntries == 1)
        #expect(try await lab.map.size().tiles == 0)
        #expect(try await other.size().tiles == 1)
        #expect(try lab.cache.store.regions().isEmpty)
    }

    @Test func aCacheIsMadeWhereTheConfigurationSays() async throws {
        let base = FileManager.default.temporaryDirectory.appendingPathComponent("map-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: base) }
        var configuration = MapCacheConfiguration(urlTemplate: "https://tiles.example/{z}/{x}/{y}.png")
        configuration.baseURL = base
        configuration.name = "Alps"
        configuration.capacity = 50_000_000
        let map = try MapCache(configuration, transport: ScriptedServer())
        #expect(try await map.loadTile(one, refreshing: false) == picture("/5/3/4.png"))
        #expect(FileManager.default.fileExists(atPath: base.appendingPathComponent("Alps/tilecache.json").path))
        #expect(try map.cache.store.statistics().limits.capacity == 50_000_000)
        try map.cache.close()
        configuration.name = "../Alps"
        #expect(throws: (any Error).self) { try MapCache(configuration, transport: ScriptedServer()) }
    }

    /// A package that is installed with the app: read, never written, never asked for.
    @Test func anImportedPackageIsShownOffline() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("map-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let store = try TileStore(at: folder.path)
        let now = Timestamp(Date())
        for z in 2...4 {
            try store.put(
                picture("city\(z)"), for: TileKey(source: "city", z: z, x: 1, y: 1),
                metadata: TileMetadata(storedAt: now, expires: now))
        }
        try store.close()
        let map = try MapCache(offline: folder)
        #expect(map.layout.zooms == 2...4)
        #expect(map.cachedData(for: try tile(3, 1, 1)) == picture("city3"))
        #expect(map.state(of: try tile(3, 1, 1)).isStale == false)
        await #expect(throws: TileCacheError.self) { try await map.loadTile(try tile(4, 2, 2), refreshing: false) }
        #expect(throws: TileCacheError.self) { try MapCache(offline: folder, sourceName: "village") }
        #expect(throws: StoreError.self) { try MapCache(offline: folder.appendingPathComponent("none")) }
    }

    /// Its path alone was taken, and a cache made at the root of the file system.
    @Test func aBaseURLThatIsNoFileURLIsRefused() throws {
        var configuration = MapCacheConfiguration(urlTemplate: "https://tiles.example/{z}/{x}/{y}.png")
        configuration.baseURL = URL(string: "https://tiles.example/nowhere")
        let error = #expect(throws: StoreError.self) { try MapCache(configuration, transport: ScriptedServer()) }
        #expect(error?.code == .invalidValue && error?.message.contains("file") == true)
    }

    /// The header fields and the values were shown, with the tokens in them.
    @Test func dumpingAConfigurationShowsNoSecret() throws {
        var configuration = MapCacheConfiguration(urlTemplate: "https://tiles.example/{z}/{x}/{y}.png?key=s3cr3t")
        configuration.values = ["token": "s3cr3t"]
        configuration.headers[.authorization] = "Bearer s3cr3t"
        var text = "\(configuration) \(String(reflecting: configuration))"
        dump(configuration, to: &text)
        #expect(!text.contains("s3cr3t") && text.contains("MapCache"))
    }
}
