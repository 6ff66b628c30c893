import ContentCoding
import Foundation
import GRDB
import Testing
import TileArchive
import TileStore
import TileStoreTesting

/// What packages say of their tiles.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct PackagedMetadataTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private static let vector = "application/vnd.mapbox-vector-tile"

    private func put(_ store: TileStore, _ x: Int, _ data: Data, type: String? = vector, encoding: String?) throws {
        try store.put(
            data, for: TileKey(source: "s", z: 3, x: x, y: 0),
            metadata: TileMetadata(
                response: ResponseFields(mediaType: type, contentEncoding: encoding),
                storedAt: Timestamp(seconds: 1_600_000_000), expires: Timestamp(seconds: 4_000_000_000)))
    }

    private func header(_ name: String) throws -> PMTilesHeader {
        try PMTilesHeader(Data(contentsOf: URL(fileURLWithPath: scratch(name))), path: name)
    }

    private func export(_ store: TileStore, _ name: String, _ metadata: ArchiveMetadata) throws -> any ArchiveReader {
        var export = ArchiveExport(store: store, source: try SourceName("s"))
        export.metadata = metadata
        _ = try export.run(to: scratch(name), format: ArchiveFormat(path: name), observer: Notes())
        return try ArchiveFormat(path: name).open(scratch(name))
    }

    /// `scheme` and the like are about the file that said them; written beside other rows they turn the map upside down.
    @Test(arguments: ["a.pmtiles", "a.mbtiles"])
    func whatAFileSaysOfItselfIsNotSaidOfAnother(_ name: String) throws {
        let said = #"{"scheme":"xyz","filesize":"77","agg_tiles_hash":"AB","type":"overlay","x":[1]}"#
        if name == "a.pmtiles" {
            var raw = RawPMTiles([PMTilesEntry(tile: 1, offset: 0, length: 9, run: 1)], data: Pyramid.magic + Data([1]))
            raw.metadata = Data(said.utf8)
            try scratch.write(raw.bytes, to: name)
        } else {
            let queue = try DatabaseQueue(path: scratch(name))
            try queue.writeWithoutTransaction { db in
                try db.execute(
                    sql: """
                        CREATE TABLE metadata (name text, value text);
                        CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data);
                        INSERT INTO tiles VALUES (1, 0, 1, x'89504e470d0a1a0a01');
                        INSERT INTO metadata VALUES ('agg_tiles_hash', 'AB'), ('filesize', '77');
                        """)
                try db.execute(sql: "INSERT INTO metadata VALUES ('json', ?)", arguments: [said])
            }
            try queue.close()
        }
        let store = try TileStore(at: scratch("store"))
        try store.take(scratch(name))
        let description = SourceDescription(cache: scratch("store"), source: try SourceName("s"))
        try description.merge(ArchiveFormat(path: name).open(scratch(name)).metadata)
        let metadata = try description.read()
        #expect(Set(metadata.others.map(\.name)) == ["type", "x"])
        for other in ["b.mbtiles", "b.pmtiles"] {
            let reader = try export(store, other, metadata)
            #expect(try reader.everything().tiles.keys.sorted { $0.x < $1.x } == [Place(1, 0, 0)])
            #expect(Set(reader.metadata.others.map(\.name)) == ["type", "x"])
        }
    }

    @Test func everyNameOfTheMetadataGetsOneRow() throws {
        let store = try TileStore(at: scratch("store"))
        try put(store, 0, Pyramid.ocean, type: "image/png", encoding: nil)
        var metadata = ArchiveMetadata()
        metadata.others = [
            JSON.Member("json", .string("a text")), JSON.Member("vector_layers", .array([])),
            JSON.Member("a\u{0}b", .string("1")), JSON.Member("a\u{0}c", .string("2")),
            JSON.Member("name", .number("5")),
        ]
        for name in ["o.mbtiles", "o.pmtiles"] {
            let found = try export(store, name, metadata).metadata
            #expect(Set(found.others) == Set(metadata.others.filter { $0.name != "name" || name == "o.mbtiles" }))
            #expect(found.name == "s")
        }
    }

    @Test(arguments: [(PMTilesCompression.brotli, "br"), (.zstd, "zstd")])
    func encodingsThatOnlyTheHeaderTellsAreSaidThere(_ row: (PMTilesCompression, String)) throws {
        var raw = RawPMTiles([PMTilesEntry(tile: 21, offset: 0, length: 5, run: 2)], data: Data([0xFE, 1, 2, 3, 4]))
        raw.header.tileType = 1
        raw.header.tileCompression = row.0.rawValue
        try scratch.write(raw.bytes, to: "a.pmtiles")
        let store = try TileStore(at: scratch("store"))
        try store.take(scratch("a.pmtiles"))
        let report = try store.give(scratch("b.pmtiles"))
        #expect(report.tiles == 2 && report.skipped == 0)
        #expect(try header("b.pmtiles").tileCompression == row.0.rawValue)
        let tiles = try ArchiveFormat.pmtiles.open(scratch("b.pmtiles")).everything().tiles
        #expect(tiles.values.allSatisfy { $0.data == Data([0xFE, 1, 2, 3, 4]) && $0.contentEncoding == row.1 })
        // In MBTiles and in files nothing can say it: readers would get bytes that they cannot know.
        for name in ["c.mbtiles", "c"] {
            let notes = Notes()
            let report = try store.give(scratch(name), notes)
            #expect(report.tiles == 0 && report.skipped == 2 && notes.skips.allSatisfy { $0.contains(row.1) })
        }
    }

    @Test func tilesOfOnePackageAreCompressedAlike() throws {
        let packed = try Gzip.encode(Data([0x1A, 1, 2]))
        let store = try TileStore(at: scratch("store"))
        try put(store, 0, packed, encoding: "gzip")
        try put(store, 1, Pyramid.ocean, type: "image/png", encoding: nil)
        try put(store, 2, try Gzip.encode(Pyramid.magic), type: "image/png", encoding: "gzip")
        try put(store, 3, Data([7, 7, 7]), encoding: "br")
        let notes = Notes()
        let report = try store.give(scratch("a.pmtiles"), notes)
        #expect(report.tiles == 3 && report.skipped == 1)
        #expect(notes.skips.count == 1 && notes.skips[0].contains("br"))
        #expect(try header("a.pmtiles").tileCompression == PMTilesCompression.gzip.rawValue)
        let tiles = try ArchiveFormat.pmtiles.open(scratch("a.pmtiles")).everything().tiles
        #expect(tiles[Place(3, 0, 0)]?.data == packed)
        #expect(tiles.values.allSatisfy { Gzip.decode($0.data, limit: 1000) != nil })
        #expect(tiles[Place(3, 1, 0)].flatMap { Gzip.decode($0.data, limit: 1000) } == Pyramid.ocean)
        // Readers of MBTiles look at each tile.
        #expect(try store.give(scratch("a.mbtiles")).tiles == 3)
        let each = try ArchiveFormat.mbtiles.open(scratch("a.mbtiles")).everything().tiles
        #expect(
            each.mapValues(\.data) == [
                Place(3, 0, 0): packed, Place(3, 1, 0): Pyramid.ocean, Place(3, 2, 0): Pyramid.magic,
            ])
    }

    /// As a file server sends them, which knows nothing of encodings.
    @Test func compressedTilesThatAreNotSaidToBeAreKnownByTheirBytes() throws {
        let packed = try (0..<2).map { try Gzip.encode(Data([0x1A, 1, UInt8($0)])) }
        let store = try TileStore(at: scratch("store"))
        for x in 0..<2 { try put(store, x, packed[x], encoding: nil) }
        try put(store, 2, Data([0x1A, 5]), encoding: nil)
        try store.give(scratch("a.pmtiles"))
        #expect(try header("a.pmtiles").tileCompression == PMTilesCompression.gzip.rawValue)
        let tiles = try ArchiveFormat.pmtiles.open(scratch("a.pmtiles")).everything().tiles
        for x in 0..<2 { #expect(tiles[Place(3, x, 0)]?.data == packed[x]) }
        #expect(tiles[Place(3, 2, 0)].flatMap { Gzip.decode($0.data, limit: 10) } == Data([0x1A, 5]))
    }

    @Test func whatIsTooLongOfTheMetadataIsSaid() throws {
        let path = scratch("a.mbtiles")
        let queue = try DatabaseQueue(path: path)
        try queue.writeWithoutTransaction { db in
            try db.execute(
                sql: """
                    CREATE TABLE metadata (name text, value text);
                    CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data);
                    INSERT INTO metadata VALUES ('json', printf('%.*c', 5000000, 'x')), ('name', 'n');
                    """)
        }
        try queue.close()
        let reader = try ArchiveFormat.mbtiles.open(path)
        #expect(reader.metadata.name == "n")
        #expect(reader.warnings.contains { $0.contains("'json'") && $0.contains("5000000 characters") })
    }
}
