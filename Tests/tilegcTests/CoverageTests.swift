import Foundation
import Testing
import TileStore
import TileStoreTesting

@testable import tilegc

#if !canImport(ImageIO)
import CTileImaging
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct CoverageTests {
    private typealias Mark = CoverageMap.Mark

    private static let fresh = Mark(isStale: false, isNegative: false, isPinned: false)
    private static let stale = Mark(isStale: true, isNegative: false, isPinned: false)
    private static let pinned = Mark(isStale: false, isNegative: false, isPinned: true)
    private static let oldPinned = Mark(isStale: true, isNegative: false, isPinned: true)
    private static let absent = Mark(isStale: true, isNegative: true, isPinned: false)

    private func span(_ zoom: Int, _ columns: ClosedRange<Int>, _ rows: ClosedRange<Int>) throws -> TileSpan {
        try TileSpan(zoom: zoom, columns: columns, rows: rows)
    }

    @Test func aCellOfOneTileShowsWhatItIs() throws {
        var map = CoverageMap(try span(3, 2...7, 1...1), cells: 39)
        let marks = [Self.fresh, Self.stale, Self.pinned, Self.oldPinned, Self.absent]
        for (x, mark) in marks.enumerated() { map.add(try TileAddress(z: 3, x: x + 2, y: 1), mark) }
        #expect(CoverageText.lines(map) == ["##++@@%%--.."])
        #expect((map.fresh, map.stale, map.negative, map.pinned) == (2, 3, 1, 2))
        #expect(map.missing == 1 && map.tilesPerCell == 1)
        // What is not in the area does not count.
        map.add(try TileAddress(z: 3, x: 0, y: 1), Self.fresh)
        map.add(try TileAddress(z: 4, x: 2, y: 1), Self.fresh)
        #expect(map.missing == 1)
    }

    @Test func variantsOfATileAreOneTile() throws {
        var map = CoverageMap(try span(1, 0...1, 0...0), cells: 39)
        for (scale, mark) in [(1, Self.stale), (2, Self.pinned), (3, Self.absent)] {
            map.add(try TileAddress(z: 1, x: 0, y: 0, scale: scale), mark)
        }
        #expect(CoverageText.lines(map) == ["@@.."])
        #expect((map.fresh, map.stale, map.negative, map.pinned, map.missing) == (1, 0, 0, 1, 1))
    }

    @Test func largeAreasFitIntoFewCells() throws {
        // The whole world at zoom 28 has 72 million billion tiles.
        let side = 1 << 28
        var map = CoverageMap(try span(28, 0...side - 1, 0...side - 1), cells: CoveragePicture.longest)
        #expect(map.columns == 1024 && map.rows == 1024 && map.tilesPerCell == 1 << 18)
        map.add(try TileAddress(z: 28, x: side - 1, y: side - 1), Self.fresh)
        #expect(map.missing == side * side - 1 && map.count(.fresh, column: 1023, row: 1023) == 1)
        // An edge of a square that does not divide.
        let odd = CoverageMap(try span(10, 0...1000, 5...5), cells: 39)
        #expect(odd.tilesPerCell == 32 && odd.columns == 32 && odd.rows == 1)
        #expect(odd.tiles(column: 0, row: 0) == 32 && odd.tiles(column: 31, row: 0) == 9)
        #expect((0..<odd.columns).reduce(0) { $0 + odd.tiles(column: $1, row: 0) } == 1001)
    }

    @Test func aCellOfManyTilesHasTheirMeanColour() throws {
        var map = CoverageMap(try span(1, 0...1, 0...1), cells: 1)
        #expect(CoveragePicture.colour(map, 0, 0) == CoveragePicture.missing)
        map.add(try TileAddress(z: 1, x: 0, y: 0), Self.fresh)
        map.add(try TileAddress(z: 1, x: 0, y: 1), Self.fresh)
        let (fresh, missing) = (CoveragePicture.colour(of: .fresh), CoveragePicture.missing)
        let half = CoveragePicture.colour(map, 0, 0)
        #expect(half == ((fresh.0 + missing.0) / 2, (fresh.1 + missing.1) / 2, (fresh.2 + missing.2) / 2))
        #expect(CoverageText.lines(map) == ["#."])
        map.add(try TileAddress(z: 1, x: 1, y: 0), Self.fresh)
        map.add(try TileAddress(z: 1, x: 1, y: 1), Self.fresh)
        #expect(CoveragePicture.colour(map, 0, 0) == fresh && CoverageText.lines(map) == ["##"])
    }

    @Test func thePictureIsOfBoundedSize() throws {
        for (columns, rows, width, height) in [(1, 1, 32, 32), (16, 8, 512, 256), (600, 2, 600, 2), (4096, 1, 1024, 1)]
        {
            let map = CoverageMap(try span(12, 0...columns - 1, 0...rows - 1), cells: CoveragePicture.longest)
            let picture = CoveragePicture(map)
            #expect((picture.width, picture.height) == (width, height))
            #expect(picture.pixels.count == width * height * 3)
        }
    }

    // MARK: The command

    @Test func theCommandCountsAndDraws() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        let text = try succeed("coverage", scratch("cache"), "--source", "osm", "--zoom", "2")
        #expect(
            text.lines == [
                "++######", "++######", "++######", "++####@@",
                "@ pinned  # fresh  % pinned and stale  + stale  - known to be absent  . missing",
                "osm at zoom 2, columns 0 to 3, rows 0 to 3: 16 tiles",
                "12 fresh, 4 stale; 0 negative and 1 pinned among them; 0 missing (100.0 % there)",
            ])
        let json = try succeed("coverage", scratch("cache"), "--source", "osm", "--zoom", "2", "--json").json()
        for (name, value) in ["tiles": 16, "fresh": 12, "stale": 4, "negative": 0, "missing": 0, "pinned": 1] {
            #expect(json[name] as? Int == value, "\(name)")
        }
        // A box in the west half, one zoom on: an absent tile, and missing ones.
        let west = try succeed(
            "coverage", scratch("cache"), "--source", "osm", "--zoom", "3", "--bbox", "-179,1,-91,85")
        #expect(west.lines.first == "--..")
        // Nothing at this zoom: the whole world is missing, however large.
        let none = try succeed("coverage", scratch("cache"), "--source", "osm", "--zoom", "28", "--json").json()
        #expect(none["missing"] as? Int == 1 << 56 && none["tilesPerCell"] as? Int == 1 << 23)
        #expect(try tilegc("coverage", scratch("cache"), "--source", "nobody", "--zoom", "2").status == 66)
        #expect(try tilegc("coverage", scratch("cache"), "--source", "osm", "--zoom", "1-2").status == 64)
        #expect(try tilegc("coverage", scratch("cache"), "--source", "osm").status == 64)
    }

    @Test func theCommandWritesAPNG() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        let file = scratch("map.png")
        let outcome = try succeed("coverage", scratch("cache"), "--source", "osm", "--zoom", "2", "--png", file)
        #expect(outcome.text.contains("Drawn into"))
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        #expect(bytes.prefix(8) == Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]))
        #expect(Array(bytes[16..<26]) == [0, 0, 0, 128, 0, 0, 0, 128, 8, 2])
        #if !canImport(ImageIO)
        let seen = try PNGPixels(bytes)
        let (fresh, pinned) = (CoveragePicture.colour(of: .fresh), CoveragePicture.colour(of: .pinnedFresh))
        #expect(seen[64, 10] == fresh && seen[100, 100] == pinned)
        #endif
        #expect(
            try tilegc("coverage", scratch("cache"), "--source", "osm", "--zoom", "2", "--png", "/no/x").status == 74)
    }

    @Test func aPipeIsNotReplacedByThePicture() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        #expect(mkfifo(scratch("pipe"), 0o600) == 0)
        let outcome = try tilegc(
            "coverage", scratch("cache"), "--source", "osm", "--zoom", "2", "--png", scratch("pipe"))
        #expect(outcome.status == 64 && outcome.messages.contains("is not a file"), "\(outcome.messages)")
        let type = try FileManager.default.attributesOfItem(atPath: scratch("pipe"))[.type] as? FileAttributeType
        #expect(type != .typeRegular)
    }

    @Test func thePictureIsNotWrittenIntoTheCache() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        let before = try files(in: scratch("cache"))
        let target = scratch("cache/manifest/checkpoint-0.json")
        let outcome = try tilegc("coverage", scratch("cache"), "--source", "osm", "--zoom", "2", "--png", target)
        #expect(outcome.status == 64 && outcome.messages.contains("lies in the tile cache"), "\(outcome.messages)")
        #expect(try files(in: scratch("cache")) == before)
    }

    #if os(Linux)
    @Test func thePictureThatCannotBeWrittenIsExplainedInTheSystemsWords() throws {
        let scratch = try Scratch()
        try Sample.make(at: scratch("cache"))
        // /proc takes no new files, whoever asks.
        let outcome = try tilegc(
            "coverage", scratch("cache"), "--source", "osm", "--zoom", "2", "--png", "/proc/picture.png")
        #expect(outcome.status == 74)
        #expect(outcome.messages.contains(String(cString: strerror(ENOENT))), "\(outcome.messages)")
    }
    #endif
}

#if !canImport(ImageIO)
/// The pixels of a PNG of true colour, through another decoder than the one that the tool's writer mirrors.
private struct PNGPixels {
    private let width: Int
    private let bytes: [UInt8]

    init(_ data: Data) throws {
        var picture = cti_picture()
        defer { cti_free(picture.pixels) }
        func number(_ at: Int) -> UInt32 { data[at..<at + 4].reduce(0) { $0 << 8 | UInt32($1) } }
        let (width, height) = (number(16), number(20))
        let window = cti_window(
            picture_width: width, picture_height: height, x: 0, y: 0, width: width, height: height)
        var message = [CChar](repeating: 0, count: Int(CTI_MESSAGE_SIZE))
        let code = data.withUnsafeBytes {
            cti_png_decode($0.bindMemory(to: UInt8.self).baseAddress, data.count, window, &picture, &message)
        }
        try #require(code == 0 && picture.channels == 3)
        self.width = Int(width)
        bytes = Array(UnsafeBufferPointer(start: picture.pixels, count: Int(width * height) * 3))
    }

    subscript(x: Int, y: Int) -> CoveragePicture.Colour {
        let at = (y * width + x) * 3
        return (Int(bytes[at]), Int(bytes[at + 1]), Int(bytes[at + 2]))
    }
}
#endif
