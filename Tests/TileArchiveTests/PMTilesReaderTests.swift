import ContentCoding
import Foundation
import Testing
import TileArchive
import TileStore
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct PMTilesReaderTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private func open(_ bytes: Data) throws -> any ArchiveReader {
        try scratch.write(bytes, to: "a.pmtiles")
        return try ArchiveFormat.pmtiles.open(scratch("a.pmtiles"))
    }

    private func entry(_ tile: UInt64, _ offset: UInt64, _ length: UInt32, run: UInt32 = 1) -> PMTilesEntry {
        PMTilesEntry(tile: tile, offset: offset, length: length, run: run)
    }

    @Test func headersComeBackAsTheyWere() throws {
        var header = PMTilesHeader()
        header.root = .init(offset: 127, length: 300)
        header.data = .init(offset: 1 << 40, length: 77)
        header.bounds = (-1_800_000_000, -850_511_287, 1_799_999_999, 850_511_287)
        header.center = (-5, 6)
        header.maxZoom = 14
        header.tileCompression = 2
        header.isClustered = true
        #expect(header.bytes.count == 127)
        #expect(try PMTilesHeader(header.bytes, path: "p") == header)
    }

    struct Start: Sendable, CustomTestStringConvertible {
        var bytes: [UInt8]
        var says: String
        var code: String
        var testDescription: String { says }
    }

    @Test(arguments: [
        Start(bytes: [], says: "does not begin with", code: "notAnArchive"),
        Start(bytes: Array("<html>".utf8), says: "does not begin with", code: "notAnArchive"),
        Start(bytes: Array("SQLite format 3\0".utf8), says: "is an SQLite file", code: "notAnArchive"),
        Start(bytes: Array("PM".utf8) + [2, 0, 0], says: "version 2", code: "unsupported"),
        Start(bytes: Array("PM".utf8) + [9, 9], says: "does not begin with", code: "notAnArchive"),
        Start(bytes: Array("PM".utf8), says: "cut short", code: "damaged"),
        Start(bytes: Array("PMTiles".utf8) + [3], says: "the header alone has 127", code: "damaged"),
        Start(
            bytes: Array("PMTiles".utf8) + [4] + Array(repeating: 0, count: 119), says: "version 4", code: "unsupported"
        ),
        Start(
            bytes: Array("PMTiles".utf8) + [0] + Array(repeating: 0, count: 119), says: "version 0", code: "unsupported"
        ),
    ])
    func otherFilesAreToldApart(_ start: Start) {
        let said = message { _ = try open(Data(start.bytes)) }
        #expect(said.contains(start.says) && said.hasSuffix("[\(start.code)]"), "\(said)")
    }

    @Test(arguments: [(PMTilesCompression.brotli, "brotli"), (.zstd, "zstd")])
    func compressionThatIsNotReadIsNamed(_ row: (PMTilesCompression, String)) {
        var raw = RawPMTiles([entry(0, 0, 4)], data: Data("tile".utf8))
        raw.header.internalCompression = row.0
        let said = message { _ = try open(raw.bytes) }
        #expect(said.contains(row.1) && said.hasSuffix("[unsupported]"), "\(said)")
    }

    @Test func aVersionWrittenAsTextIsReadWithAWarning() throws {
        var bytes = RawPMTiles([entry(0, 0, 4)], data: Data("tile".utf8)).bytes
        bytes[7] = UInt8(ascii: "3")
        let reader = try open(bytes)
        #expect(try reader.tile(z: 0, x: 0, y: 0)?.data == Data("tile".utf8))
        #expect(reader.warnings.contains { $0.contains("character \"3\"") })
    }

    @Test func runsUnclusteredContentsAndLeavesAreRead() throws {
        var raw = RawPMTiles()
        raw.data = Pyramid.magic + Pyramid.ocean
        let (magic, ocean) = (UInt32(Pyramid.magic.count), UInt32(Pyramid.ocean.count))
        // The later tiles lie before the earlier ones.
        raw.leaves = PMTilesDirectory.encode([entry(5, 0, magic, run: 2), entry(8, UInt64(magic), ocean)])
        raw.root = PMTilesDirectory.encode([
            entry(0, UInt64(magic), ocean, run: 3), entry(5, 0, UInt32(raw.leaves.count), run: 0),
        ])
        let reader = try open(raw.bytes)
        let (tiles, skipped) = try reader.everything()
        #expect(skipped.isEmpty)
        var expected: [Place: Data] = [:]
        for (number, data) in [
            (0, Pyramid.ocean), (1, Pyramid.ocean), (2, Pyramid.ocean), (5, Pyramid.magic), (6, Pyramid.magic),
            (8, Pyramid.ocean),
        ] {
            let tile = try #require(TileID.tile(UInt64(number)))
            expected[Place(tile.z, tile.x, tile.y)] = data
        }
        #expect(tiles.mapValues(\.data) == expected)
        for z in 0...2 {
            for x in 0..<(1 << z) {
                for y in 0..<(1 << z) {
                    #expect(try reader.tile(z: z, x: x, y: y)?.data == expected[Place(z, x, y)])
                }
            }
        }
        #expect(tiles[Place(0, 0, 0)]?.mediaType == "image/png")
        #expect(try reader.tile(z: 29, x: 0, y: 0) == nil)
        #expect(try reader.tile(z: 1, x: 2, y: 0) == nil)
        #expect(try reader.tile(z: 1, x: -1, y: 0) == nil)
    }

    @Test func aLeafThatLeadsBackIsDamage() throws {
        // A leaf that names itself: its entry is for the same tile, so only the depth can tell.
        var raw = RawPMTiles()
        raw.data = Data("x".utf8)
        var leaf = PMTilesDirectory.encode([entry(0, 0, 6, run: 0)])
        leaf = PMTilesDirectory.encode([entry(0, 0, UInt32(leaf.count), run: 0)])
        raw.leaves = leaf
        raw.root = leaf
        let reader = try open(raw.bytes)
        #expect(message { _ = try reader.tile(z: 0, x: 0, y: 0) }.contains("nested more than 4 deep"))
        #expect(message { _ = try reader.everything() }.contains("nested more than 4 deep"))

        // A leaf in which tiles come that were before it.
        raw.leaves = PMTilesDirectory.encode([entry(0, 0, 1)])
        raw.root = PMTilesDirectory.encode([entry(3, 0, UInt32(raw.leaves.count), run: 0)])
        let other = try open(raw.bytes)
        #expect(message { _ = try other.everything() }.contains("outside of 3..<"))
    }

    @Test func manyEntriesForOneLeafCostOneEach() throws {
        var raw = RawPMTiles()
        raw.data = Data("x".utf8)
        raw.leaves = PMTilesDirectory.encode([entry(7, 0, 1)])
        let length = UInt32(raw.leaves.count)
        raw.root = PMTilesDirectory.encode((0..<100).map { entry(UInt64($0), 0, length, run: 0) })
        let reader = try open(raw.bytes)
        #expect(message { _ = try reader.everything() }.hasSuffix("[damaged]"))
        #expect(try reader.tile(z: 2, x: 1, y: 1)?.data == Data("x".utf8))
    }

    @Test func aDirectoryThatExpandsToNoEndIsRefused() throws {
        var raw = RawPMTiles([entry(0, 0, 1)], data: Data("x".utf8))
        raw.header.internalCompression = .gzip
        raw.metadata = try Gzip.encode(Data("{}".utf8))
        raw.root = try Gzip.encode(Data(count: 64 << 20))
        #expect(message { _ = try open(raw.bytes) }.contains("larger than 8 MiB"))
        raw.root = try Gzip.encode(PMTilesDirectory.encode([entry(0, 0, 1)]))
        raw.metadata = try Gzip.encode(Data(count: 64 << 20))
        let reader = try open(raw.bytes)
        #expect(reader.warnings.contains { $0.contains("metadata") })
        #expect(try reader.tile(z: 0, x: 0, y: 0)?.data == Data("x".utf8))
    }

    @Test func aFileThatIsCutShortSaysWhere() throws {
        let bytes = RawPMTiles([entry(0, 0, 40)], data: Data(count: 40)).bytes
        for length in [127, 130, bytes.count - 1] {
            let said = message { _ = try open(bytes.prefix(length)) }
            #expect(said.contains("but the file ends at \(length)") && said.hasSuffix("[damaged]"), "\(said)")
        }
    }

    @Test func tilesBeyondZoom28ArePassedOver() throws {
        let reader = try open(
            RawPMTiles([entry(TileID.end - 1, 0, 1, run: 3), entry(TileID.end + 9, 0, 1)], data: Data("x".utf8)).bytes)
        let (tiles, skipped) = try reader.everything()
        #expect(tiles.keys.map(\.z) == [28])
        #expect(skipped.count == 2 && skipped[0].hasSuffix("(2)"))
    }

    @Test func aRunOfABillionTilesIsOneReadingAndCanBeStopped() throws {
        let reader = try open(RawPMTiles([entry(1 << 40, 0, 1, run: .max)], data: Data("x".utf8)).bytes)
        var seen = 0
        try reader.forEachTile { _ in
            seen += 1
            return seen < 1000
        }
        #expect(seen == 1000)
    }

    @Test func metadataAndHeaderAreJoined() throws {
        var raw = RawPMTiles([entry(0, 0, 1)], data: Data("x".utf8))
        raw.header.bounds = (-10_000_000, -20_000_000, 30_000_000, 40_000_000)
        raw.metadata = Data(
            #"{"name":"n","attribution":"© me","vector_layers":[{"id":"a"}],"tilecache:regions":[{"name":"r","spans":[[3,0,1,2,3]]}]}"#
                .utf8)
        let metadata = try open(raw.bytes).metadata
        #expect(metadata.name == "n" && metadata.attribution == "© me")
        #expect(metadata.zooms == 0...3 && metadata.tileFormat == "png")
        #expect(metadata.bounds?.description == "-1.0,-2.0,3.0,4.0")
        #expect(metadata.regions.map(\.name) == ["r"])
        #expect(metadata.regions.first?.spans.first?.rows == 2...3)
    }
}
