import ContentCoding
import Foundation
import GRDB
import Testing
import TileArchive
import TileCache
import TileCacheArchive
import TileStore
import TileStoreTesting

/// Archives as sources of a cache.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ArchiveSourceTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    /// There is no network.
    private struct NoNetwork: TileTransport {
        func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
            throw TransportError(.connection, "there is no network")
        }
    }

    private func cache() throws -> TileCache {
        try TileCache(at: scratch("cache"), transport: NoNetwork())
    }

    /// The same tiles in a folder and in both kinds of package.
    private func archives(_ pyramid: Pyramid, _ name: String) throws -> [String] {
        try pyramid.write(to: scratch, name)
        let store = try TileStore(at: scratch("\(name)-store"))
        try store.take(scratch(name))
        for ending in ["mbtiles", "pmtiles"] { try store.give(scratch("\(name).\(ending)")) }
        try store.close()
        return [
            scratch("\(name).mbtiles"), scratch("\(name).pmtiles"), scratch(name), scratch(name) + "/{z}/{x}/{y}.png",
        ]
    }

    @Test func allKindsGiveTheSameTilesWithTheSameTags() async throws {
        let pyramid = Pyramid(seed: 5, zooms: 2...4, share: 2)
        let cache = try cache()
        var tags: [Place: Set<String>] = [:]
        for (i, path) in try archives(pyramid, "a").enumerated() {
            let source = try TileSource("s\(i)", archive: path)
            for z in 2...4 {
                for x in 0..<(1 << z) {
                    for y in 0..<(1 << z) {
                        let tile = try #require(try await cache.tile(source, z: z, x: x, y: y))
                        let place = Place(z, x, y)
                        #expect(tile.data == pyramid.tiles[place] && tile.isAbsent == (pyramid.tiles[place] == nil))
                        guard let tag = tile.etag else { continue }
                        #expect(tile.mediaType == "image/png")
                        tags[place, default: []].insert(tag)
                    }
                }
            }
            #expect(source.zooms == (i < 2 ? 2...4 : 0...28), "as far as the archive says")
        }
        #expect(tags.count == pyramid.tiles.count && tags.values.allSatisfy { $0.count == 1 })
        #expect(Set(tags.values).count == pyramid.unique)
        #expect(try cache.store.statistics().entries == 0, "nothing is copied")
        try cache.close()
    }

    @Test func aNewEditionThatIsRenamedIntoPlaceIsReadByANewSource() async throws {
        let old = try archives(Pyramid(seed: 1, zooms: 3...3), "old")
        let new = try archives(Pyramid(seed: 2, zooms: 3...3), "new")
        let cache = try cache()
        for i in 0..<2 {
            let before = try TileSource("s", archive: old[i])
            func tags(_ source: TileSource) async throws -> [String?] {
                var tags: [String?] = []
                for x in 0..<8 {
                    for y in 0..<8 { tags.append(try await cache.tile(source, z: 3, x: x, y: y)?.etag) }
                }
                return tags
            }
            let first = try await tags(before)
            #expect(rename(new[i], old[i]) == 0)
            #expect(try await tags(before) == first, "who has the old one open keeps it")
            let second = try await tags(try TileSource("s", archive: old[i]))
            #expect(zip(first, second).contains { $0 == $1 } && zip(first, second).contains { $0 != $1 })
        }
        try cache.close()
    }

    @Test func aPMTilesFileThatIsWrittenOverIsAnErrorAndNoWrongTile() async throws {
        let old = try archives(Pyramid(seed: 1, zooms: 3...3), "old")[1]
        let new = try Data(contentsOf: URL(fileURLWithPath: archives(Pyramid(seed: 2, zooms: 4...4), "new")[1]))
        let cache = try cache()
        let source = try TileSource("s", archive: old)
        #expect(try await cache.tile(source, z: 3, x: 1, y: 1)?.data != nil)
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: old))
        try file.truncate(atOffset: 0)
        try file.write(contentsOf: new)
        try file.close()
        do {
            _ = try await cache.tile(source, z: 3, x: 1, y: 1)
            Issue.record("a tile out of two files")
        } catch let error as TileCacheError {
            #expect(error.code == .noAnswer && (error.cause as? ArchiveError)?.code == .busy)
        }
        #expect(try await cache.tile(try TileSource("s", archive: old), z: 4, x: 1, y: 1)?.data != nil)
        try cache.close()
    }

    /// An MBTiles file with tiles of zoom 1: columns, rows from the south, bytes.
    private func writeTiles(_ name: String, _ tiles: [(x: Int, row: Int, data: Data)]) throws {
        let queue = try DatabaseQueue(path: scratch(name))
        try queue.writeWithoutTransaction { db in
            try db.execute(
                sql: "CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data); "
                    + "CREATE INDEX i ON tiles (zoom_level, tile_column, tile_row)")
            for tile in tiles {
                try db.execute(
                    sql: "INSERT INTO tiles VALUES (1, ?, ?, ?)", arguments: [tile.x, tile.row, tile.data])
            }
        }
        try queue.close()
    }

    /// What draws pictures does not expect them compressed; vector tiles stay as they are.
    @Test func compressedPicturesAreGivenOutPlain() async throws {
        let (picture, vector) = (try Gzip.encode(Pyramid.ocean), try Gzip.encode(Data([0x1A, 1, 2])))
        try scratch.write(picture, to: "f/1/0/0.png")
        try scratch.write(vector, to: "f/1/0/1.png")
        try scratch.write(picture.dropLast(3), to: "f/1/1/1.png")
        try writeTiles("f.mbtiles", [(0, 1, picture), (0, 0, vector), (1, 0, picture.dropLast(3))])
        let old = Date(timeIntervalSinceNow: -60)
        try FileManager.default.setAttributes([.modificationDate: old], ofItemAtPath: scratch("f.mbtiles"))
        let cache = try cache()
        let sources = [
            try TileSource("a", archive: scratch("f")), try TileSource("b", archive: scratch("f.mbtiles")),
            try TileSource("c", template: "file://" + scratch("f/{z}/{x}/{y}.png")),
        ]
        for source in sources {
            for _ in 0..<2 {
                let plain = try #require(try await cache.tile(source, z: 1, x: 0, y: 0))
                #expect(plain.data == Pyramid.ocean && plain.contentEncoding == nil, "\(source.name)")
                let kept = try #require(try await cache.tile(source, z: 1, x: 0, y: 1))
                #expect(kept.data == vector && kept.contentEncoding == "gzip", "\(source.name)")
                await #expect(throws: TileCacheError.self) { try await cache.tile(source, z: 1, x: 1, y: 1) }
            }
        }
        try cache.close()
    }

    @Test func whatIsNoArchiveIsSaidWhenTheSourceIsMade() throws {
        try scratch.write(Data("no".utf8), to: "x.pmtiles")
        #expect(message { _ = try TileSource("s", archive: scratch("x.pmtiles")) }.contains("x.pmtiles"))
        #expect(message { _ = try TileSource("s", archive: scratch("gone.mbtiles")) }.hasSuffix("[notFound]"))
        #expect(message { _ = try TileSource("s", archive: scratch("folder")) }.hasSuffix("[notFound]"))
        try FileManager.default.createDirectory(atPath: scratch("f"), withIntermediateDirectories: true)
        #expect(throws: TileCacheError.self) { try TileSource("a name", archive: scratch("f")) }
    }

    @Test func layersAreReadFromEitherKindOfMetadata() throws {
        let layers = """
            {"vector_layers":[{"id":"water","fields":{"name":"String","rank":1},"minzoom":0,"maxzoom":14,\
            "description":"seas"},{"fields":{}},{"id":"roads"}]}
            """
        var raw = RawPMTiles([PMTilesEntry(tile: 0, offset: 0, length: 3, run: 1)], data: Data([0x1A, 1, 0]))
        raw.header.tileType = 1
        raw.metadata = Data(layers.utf8)
        try scratch.write(raw.bytes, to: "v.pmtiles")
        let reader = try ArchiveFormat.pmtiles.open(scratch("v.pmtiles"))
        #expect(reader.metadata.vectorLayers.map(\.id) == ["water", "roads"])
        let water = try #require(reader.metadata.vectorLayers.first)
        #expect(water.fields == ["name": "String", "rank": ""] && water.maxzoom == 14 && water.description == "seas")
        #expect(try TileSource("v", archive: reader).kind == .vector)
    }
}
