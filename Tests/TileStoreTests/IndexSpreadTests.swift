import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Keys spread over the cells of the indexes, whatever part of the world they are from.
///
/// A slip in an expression once let every key begin at the first cell of its segment: all was found, half a segment later.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct IndexSpreadTests {
    struct Shape: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var keys: @Sendable () throws -> [TileKey]
    }

    static let shapes = [
        Shape(testDescription: "a pyramid down to zoom 7") {
            try (0...7).flatMap { z in try square("world", z, 0..<(1 << z), 0..<(1 << z)) }
        },
        Shape(testDescription: "a city at zoom 17") { try square("osm", 17, 70_400..<70_550, 42_900..<43_050) },
        Shape(testDescription: "a row of the world at zoom 15") { try square("osm", 15, 0..<20_000, 10_000..<10_001) },
        Shape(testDescription: "a column of the world at zoom 15") { try square("osm", 15, 7..<8, 0..<20_000) },
        Shape(testDescription: "variants of the same tiles") {
            try (1...8).flatMap { try square("osm", 12, 0..<50, 0..<50, scale: $0) }
        },
        Shape(testDescription: "many sources") {
            try (0..<2000).flatMap { try square("source-\($0)", 3, 0..<4, 0..<3) }
        },
        Shape(testDescription: "resources") {
            try (0..<20_000).map { try TileKey("osm:fonts/Noto/\($0 * 256)-\($0 * 256 + 255).pbf") }
        },
    ]

    private static func square(
        _ source: String, _ z: Int, _ columns: Range<Int>, _ rows: Range<Int>, scale: Int = 1
    ) throws -> [TileKey] {
        try columns.flatMap { x in try rows.map { try TileKey(source: source, z: z, x: x, y: $0, scale: scale) } }
    }

    @Test("A look-up goes through few cells", arguments: shapes)
    func lookUpsAreShort(shape: Shape) throws {
        let lab = try Lab()
        let keys = try shape.keys()
        #expect(keys.count >= 20_000)
        for start in stride(from: 0, to: keys.count, by: 1000) {
            try lab.store.put(
                keys[start..<min(start + 1000, keys.count)].map {
                    TilePut(key: $0, data: nil, metadata: lab.metadata())
                })
        }
        // Segments that grew by themselves are between 0.7 and 0.875 full: 2.2 to 4.5 cells where hashes are even.
        #expect(lab.store.indexProbes().entry < 4.5)
        _ = try lab.store.compact()
        try lab.reopen()
        #expect(try lab.store.snapshot().entries.count == keys.count)
        // One that is sized for what it is loaded with is at most 0.8 full: 3 cells.
        #expect(lab.store.indexProbes().entry < 4)
        _ = try lab.store.remove(keys.enumerated().filter { $0.offset % 2 == 0 }.map(\.element))
        #expect(lab.store.indexProbes().entry < 2)
    }

    @Test("A look-up of a blob goes through few cells")
    func blobsSpread() throws {
        let lab = try Lab()
        let count = 8000
        for start in stride(from: 0, to: count, by: 1000) {
            try lab.store.put(
                (start..<(start + 1000)).map {
                    TilePut(key: lab.key($0), data: lab.bytes($0, size: 16), metadata: lab.metadata())
                })
        }
        #expect(lab.store.indexProbes().blob < 4.5)
        _ = try lab.store.compact()
        try lab.reopen()
        #expect(lab.store.indexProbes().blob < 4)
    }
}
