import Foundation
import Testing
import TileArchive
import TileStore
import TileStoreTesting

/// Real files, where the folder with them is named by `TILE_TEST_DATA`.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownCores)
struct RealArchiveTests {
    static let folder = ProcessInfo.processInfo.environment["TILE_TEST_DATA"]

    struct File: Sendable, CustomTestStringConvertible {
        var name: String
        var tiles = 0
        var unique = 0
        var bytes = 0
        var type: String?
        var encoding: String?
        /// What the error says, for a file that cannot be read.
        var says: String?
        var skipped = 0
        var testDescription: String { name }
    }

    private static let vector = "application/vnd.mapbox-vector-tile"

    static let files = [
        File(name: "ne-world-osmlike_z0-6_png.mbtiles", tiles: 5461, unique: 2292, bytes: 8_586_566, type: "image/png"),
        File(
            name: "ne-world_z0-5_mvt-gzip.mbtiles", tiles: 1365, unique: 895, bytes: 4_130_396, type: vector,
            encoding: "gzip"),
        File(name: "fixtures/node-mbtiles_plain_1.mbtiles", tiles: 285, unique: 207, bytes: 477_705, type: "image/png"),
        File(
            name: "fixtures/node-mbtiles_plain_3.mbtiles", tiles: 2621, unique: 1276, bytes: 1_700_325,
            type: "image/png"),
        File(
            name: "fixtures/node-mbtiles_some-empty-tiles.mbtiles", tiles: 11, unique: 11, bytes: 42_144,
            type: "image/png"),
        File(
            name: "fixtures/node-mbtiles_unindexed.mbtiles", tiles: 285, unique: 207, bytes: 477_705, type: "image/png"),
        File(
            name: "fixtures/node-mbtiles_corrupt_null_tile.mbtiles", tiles: 284, unique: 206, bytes: 476_079,
            type: "image/png", skipped: 1),
        File(
            name: "fixtures/consbio_geography-class-png.mbtiles", tiles: 5, unique: 5, bytes: 88_472, type: "image/png"),
        File(
            name: "fixtures/consbio_geography-class-jpg.mbtiles", tiles: 5, unique: 5, bytes: 89_221, type: "image/jpeg"
        ),
        File(
            name: "fixtures/consbio_geography-class-webp.mbtiles", tiles: 5, unique: 5, bytes: 38_440,
            type: "image/webp"),
        File(
            name: "fixtures/consbio_world_cities.mbtiles", tiles: 196, unique: 196, bytes: 18_861, type: vector,
            encoding: "gzip"),
        File(
            name: "fixtures/pmtiles_stamen_toner_z3.pmtiles", tiles: 85, unique: 80, bytes: 720_035, type: "image/png"),
        File(
            name: "fixtures/pmtiles_test_fixture_1.pmtiles", tiles: 1, unique: 1, bytes: 69, type: vector,
            encoding: "gzip"),
        File(name: "fixtures/stadiamaps_leaf.pmtiles", tiles: 5, unique: 5, bytes: 5),
        File(name: "fixtures/node-mbtiles_corrupt.mbtiles", says: "damaged or cut short"),
        File(name: "fixtures/consbio_invalid.mbtiles", says: "no table or view 'tiles'"),
        File(name: "fixtures/pmtiles_invalid.pmtiles", says: "does not begin with"),
        File(name: "fixtures/pmtiles_invalid_v4.pmtiles", says: "version 4"),
    ]

    @Test(
        .enabled("skipped: set TILE_TEST_DATA to the folder with the archives", { folder != nil }), arguments: files)
    func realFilesGoThroughAllFormatsByteForByte(_ file: File) throws {
        guard let folder = Self.folder else { return }
        let path = "\(folder)/\(file.name)"
        guard FileManager.default.fileExists(atPath: path) else {
            print("skipped: there is no \(file.name) in TILE_TEST_DATA")
            return
        }
        if let says = file.says {
            let said = message { _ = try ArchiveFormat(path: path).open(path).everything() }
            #expect(said.contains(says), "\(said)")
            return
        }
        let scratch = try Scratch()
        let original = try ArchiveFormat(path: path).open(path).everything().tiles
        #expect(original.count == file.tiles)
        #expect(original.values.allSatisfy { $0.mediaType == file.type && $0.contentEncoding == file.encoding })
        var from = path
        for (i, target) in ["1.pmtiles", "2.mbtiles", "out", "3.pmtiles"].enumerated() {
            let store = try TileStore(at: scratch("cache-\(i)"))
            let report = try store.take(from)
            #expect(report.tiles == file.tiles && report.newBlobs == file.unique && report.bytes == file.bytes)
            #expect(report.skipped == (i == 0 ? file.skipped : 0))
            let verified = try store.verify()
            #expect(verified.ok && verified.orphans.isEmpty)
            #expect(try store.give(scratch(target)).tiles == file.tiles)
            let reader = try ArchiveFormat(path: target).open(scratch(target))
            #expect(try reader.everything().tiles.mapValues(\.data) == original.mapValues(\.data))
            for (place, tile) in original.prefix(100) {
                #expect(try reader.tile(z: place.z, x: place.x, y: place.y)?.data == tile.data)
            }
            from = scratch(target)
        }
        let (first, last) = (scratch("1.pmtiles"), scratch("3.pmtiles"))
        // What the folder in between could not carry is the metadata; the tiles lie as they did.
        #expect(try tileData(first) == tileData(last))
    }

    private func tileData(_ path: String) throws -> Data {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        let header = try PMTilesHeader(bytes, path: path)
        return bytes.suffix(from: Int(header.data.offset)).prefix(Int(header.data.length))
    }
}
