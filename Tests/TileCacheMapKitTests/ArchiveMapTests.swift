import Foundation
import HTTPTypes
import Testing
import TileArchive
import TileArchiveTesting
import TileStore

@testable import TileCache
@testable import TileCacheMapKit

/// Maps whose tiles are in an archive or a folder of this device.
@Suite(.timeLimit(.minutes(60)))
struct ArchiveMapTests {
    private static let places = [(0, 0, 0), (1, 0, 0), (1, 1, 1), (3, 2, 5), (4, 4, 10)]

    /// The same tiles as a folder, a PMTiles file and an MBTiles file.
    private func withArchives(_ body: (URL, [URL]) async throws -> Void) async throws {
        let scratch = FileManager.default.temporaryDirectory.appendingPathComponent("maps-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: scratch) }
        let folder = scratch.appendingPathComponent("world")
        let store = try TileStore(at: scratch.appendingPathComponent("store").path)
        let now = Timestamp(Date())
        for (z, x, y) in Self.places {
            let column = folder.appendingPathComponent("\(z)/\(x)")
            try FileManager.default.createDirectory(at: column, withIntermediateDirectories: true)
            try picture("\(z)/\(x)/\(y)").write(to: column.appendingPathComponent("\(y).png"))
            try store.put(
                picture("\(z)/\(x)/\(y)"), for: TileKey(source: "world", z: z, x: x, y: y),
                metadata: TileMetadata(
                    response: ResponseFields(status: 200, mediaType: "image/png"), storedAt: now, expires: now))
        }
        let files = [ArchiveFormat.pmtiles, .mbtiles].map { scratch.appendingPathComponent("world.\($0)") }
        for file in files {
            _ = try ArchiveExport(store: store, source: SourceName("world"))
                .run(to: file.path, format: ArchiveFormat(path: file.path), observer: Nobody())
        }
        try store.close()
        try await body(scratch, [folder] + files)
    }

    private final class Nobody: TransferObserver {
        func skipped(_ what: String, _ why: String, count: Int) {}
        func failed(_ what: String, _ why: String) {}
        func advanced(_ progress: @autoclosure () -> TransferProgress) {}
        var wantsStop: Bool { false }
    }

    @Test func anArchiveIsAMapWithoutACopy() async throws {
        try await withArchives { _, archives in
            for archive in archives {
                let lab = try MapLab()
                let map = try MapCache(MapCacheConfiguration(archive: archive), cache: lab.cache)
                for (z, x, y) in Self.places {
                    let place = try tile(z, x, y)
                    #expect(map.state(of: place) == CachedTileState(.picture), "\(archive.lastPathComponent)")
                    #expect(map.cachedData(for: place) == picture("\(z)/\(x)/\(y)"))
                    #expect(try await map.loadTile(place, refreshing: true) == picture("\(z)/\(x)/\(y)"))
                }
                let none = try tile(3, 0, 0)
                #expect(map.state(of: none).content == .absent && map.cachedData(for: none) == nil)
                #expect(try await map.loadTile(none, refreshing: false) == nil)
                // A screen of two pixels a point has the same tiles.
                #expect(map.layout.scales == 1...1)
                #expect(map.cachedData(for: try tile(1, 0, 0, scale: 2)) == picture("1/0/0"))
                #expect(map.url(for: none) == nil)
                #expect(try lab.server.requests.isEmpty && lab.cache.store.statistics().entries == 0)
            }
        }
    }

    /// Every mode is the same for tiles that are here, `serverOnly` too.
    @Test(arguments: LoadMode.allCases) func everyModeShowsAnArchive(mode: LoadMode) async throws {
        try await withArchives { _, archives in
            let lab = try MapLab()
            var configuration = MapCacheConfiguration(archive: archives[1])
            configuration.loadMode = mode
            configuration.transform = { data, tile in data + Data("-\(tile.z)".utf8) }
            let map = try MapCache(configuration, cache: lab.cache)
            let one = try tile(1, 1, 1)
            #expect(map.cachedData(for: one) == picture("1/1/1-1"))
            #expect(try await map.loadTile(one, refreshing: false) == picture("1/1/1-1"))
        }
    }

    /// A part of the nearest tile stands in for what an archive does not have, and past its last zoom.
    @Test func whatAnArchiveDoesNotHaveIsStoodInFor() async throws {
        try await withArchives { _, archives in
            for archive in archives {
                let lab = try MapLab()
                let map = try MapCache(MapCacheConfiguration(archive: archive), cache: lab.cache)
                #expect(map.layout.zooms == (archive == archives[0] ? 0...19 : 0...4))
                let painter = TilePainter<String>(
                    map, clock: lab.clock.cacheClock,
                    decode: { (String(decoding: $0.dropFirst(16), as: UTF8.self), 100) }, onChange: { _ in })
                func drawn(_ tile: TileAddress) -> [String] {
                    var drawn: [String] = []
                    let zoomScale = 256 * Double(1 << tile.z) / PlaneRect.world
                    painter.paint(PlaneRect(tile), zoomScale: zoomScale, contentScale: 2) { drawn.append($0.picture) }
                    return drawn
                }
                #expect(drawn(try tile(4, 4, 10)) == ["4/4/10"])
                #expect(drawn(try tile(4, 15, 15)) == ["1/1/1"])
                #expect(drawn(try tile(7, 4 << 3, 10 << 3)) == ["4/4/10"])
                // Nothing is loaded behind the drawing: it was all there.
                #expect(painter.isIdle && lab.server.requests.isEmpty)
            }
        }
    }

    @Test func aFoldersZoomsAreThoseOfTheConfiguration() async throws {
        try await withArchives { _, archives in
            let lab = try MapLab()
            var configuration = MapCacheConfiguration(archive: archives[0])
            (configuration.minimumZ, configuration.maximumZ, configuration.tileSize) = (1, 3, 512)
            let map = try MapCache(configuration, cache: lab.cache)
            #expect(map.layout.zooms == 1...3 && map.layout.tileSize == 512)
            #expect(map.state(of: try tile(4, 4, 10)) == .missing)
            // Numbers that make no sense do not trap.
            (configuration.minimumZ, configuration.maximumZ) = (40, 99)
            #expect(try MapCache(configuration, cache: lab.cache).layout.zooms == 28...28)
        }
    }

    @Test func whatIsNoArchiveForAMapIsSaid() async throws {
        try await withArchives { scratch, archives in
            let lab = try MapLab()
            func map(_ archive: URL) throws -> MapCache {
                try MapCache(MapCacheConfiguration(archive: archive), cache: lab.cache)
            }
            #expect(throws: ArchiveError.self) { try map(scratch.appendingPathComponent("gone.pmtiles")) }
            #expect(throws: TileCacheError.self) { try map(#require(URL(string: "https://t.example/w.mbtiles"))) }
            // A damaged one is a map with a reason.
            let cut = scratch.appendingPathComponent("cut.pmtiles")
            try Data(contentsOf: archives[1]).prefix(40).write(to: cut)
            #expect(throws: ArchiveError.self) { try map(cut) }
            #expect(MapCache(withConfig: MapCacheConfiguration(archive: cut)).openingError is ArchiveError)
            // Regions of it are there already.
            let world = RegionShape.box(try GeoBox(west: -180, south: -85, east: 180, north: 85))
            let downloader = try await RegionDownloader(world, zooms: 0...1, named: nil, of: map(archives[1]))
            await #expect(throws: TileCacheError.self) { try await downloader.start() }
        }
    }

    // MARK: At a server

    @Test func aSetAtAServerIsAMapThatIsRenewedByItself() async throws {
        let salt = " \(UUID())"
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea"])
        let site = FolderSite(publisher.folder)
        let lab = try MapLab()
        lab.server.script { try TransportResponse(site.answer($0)) }
        let url = try #require(URL(string: "https://files.example/set/set.json?token=hush"))
        let map = try MapCache(MapCacheConfiguration(archive: url), cache: lab.cache)
        let (place, equal, gap) = (try tile(2, 0, 1), try tile(2, 1, 1), try tile(2, 3, 1))
        #expect(map.state(of: place) == .missing && map.cachedData(for: place) == nil && map.url(for: place) == nil)
        let sea = TestPicture.png("sea" + salt)
        #expect(try await map.loadTile(place, refreshing: false) == sea)
        #expect(map.state(of: place).content == .picture && !map.state(of: place).isStale)
        #expect(map.cachedData(for: place) == sea)
        // What its list says is known of all tiles; equal ones are there without having been looked at.
        #expect(map.state(of: gap).content == .absent && map.cachedData(for: equal) == sea)
        let version = map.state(of: place).version
        try publisher.publish([0: "ice", 1: "sea"])
        lab.clock.advance(seconds: 9)
        #expect(map.state(of: place).isStale && map.cachedData(for: place) == sea, "drawn until it is renewed")
        #expect(try await map.loadTile(place, refreshing: true) == TestPicture.png("ice" + salt))
        #expect(!map.state(of: place).isStale && map.state(of: place).version != version)
        let asked = lab.server.requests.count
        #expect(try await map.loadTile(equal, refreshing: true) == sea)
        #expect(lab.server.requests.count == asked, "it was looked for a new version just now")
        #expect(!"\(map.source.name)".contains("hush"))
    }

    @Test @MainActor func anArchiveAtAServerIsAMapWhoseRegionsAreKept() async throws {
        let site = ArchiveSite(try TestArchive.bytes(TestArchive.pictures(0...3, "one"), leafOf: 8))
        let lab = try MapLab()
        lab.server.script { try TransportResponse(site.answer($0)) }
        let url = try #require(URL(string: "https://files.example/w.pmtiles"))
        let map = try MapCache(MapCacheConfiguration(archive: url), cache: lab.cache)
        let place = try tile(2, 0, 1)
        #expect(map.state(of: place) == .missing)
        let one = TestPicture.png("one 2/0/1")
        #expect(try await map.loadTile(place, refreshing: false) == one)
        #expect(map.state(of: place).content == .picture && map.cachedData(for: place) == one)
        let world = RegionShape.box(try GeoBox(west: -180, south: -85, east: 180, north: 85))
        let downloader = try RegionDownloader(world, zooms: 0...2, named: "all", of: map)
        let report = await (try await downloader.start()).report()
        #expect(report.progress.failed == 0 && report.stoppedBy == nil, "\(report)")
        #expect(map.state(of: try tile(2, 3, 3)).isPinned)
        site.become(try TestArchive.bytes(TestArchive.pictures(0...3, "two"), leafOf: 8), tag: "\"2\"")
        lab.clock.advance(seconds: 61)
        #expect(map.state(of: place).isStale)
        #expect(try await map.loadTile(place, refreshing: true) == TestPicture.png("two 2/0/1"))
    }

    /// MapKit would show nothing, and say nothing.
    @Test func vectorTilesAreRefused() async throws {
        try await withArchives { scratch, _ in
            let store = try TileStore(at: scratch.appendingPathComponent("vector").path)
            let now = Timestamp(Date())
            try store.put(
                Data([0x1A, 1, 2]), for: TileKey(source: "roads", z: 0, x: 0, y: 0),
                metadata: TileMetadata(
                    response: ResponseFields(status: 200, mediaType: "application/x-protobuf"), storedAt: now,
                    expires: now)
            )
            let file = scratch.appendingPathComponent("roads.pmtiles")
            _ = try ArchiveExport(store: store, source: SourceName("roads"))
                .run(to: file.path, format: .pmtiles, observer: Nobody())
            try store.close()
            let lab = try MapLab()
            do {
                _ = try MapCache(MapCacheConfiguration(archive: file), cache: lab.cache)
                Issue.record("vector tiles as pictures")
            } catch let error as TileCacheError {
                #expect(error.code == .invalidSource && error.message.contains("roads.pmtiles has vector tiles"))
            }
        }
    }
}

extension TransportResponse {
    fileprivate init(_ answer: SiteAnswer) {
        self.init(
            head: HTTPResponse(status: .init(code: answer.status), headerFields: answer.fields), body: answer.body)
    }
}
