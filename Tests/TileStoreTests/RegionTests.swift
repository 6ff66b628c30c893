import Testing
import TileStoreTesting

@testable import TileStore

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct RegionTests {
    @Test("What is no region is refused")
    func refusals() throws {
        let source = try SourceName("a")
        let span = try TileSpan(zoom: 0, columns: 0...0, rows: 0...0)
        #expect(throws: StoreError.self) { try PinnedRegion(name: "", source: source, spans: [span]) }
        #expect(throws: StoreError.self) { try PinnedRegion(name: "a b", source: source, spans: [span]) }
        #expect(throws: StoreError.self) { try PinnedRegion(name: "a", source: source, spans: []) }
    }

    @Test
    func theCountOfAnEnormousRegionIsCapped() throws {
        let world = try TileSpan(zoom: 28, columns: 0...((1 << 28) - 1), rows: 0...((1 << 28) - 1))
        let region = try PinnedRegion(
            name: "a", source: SourceName("a"), spans: Array(repeating: world, count: 65_536))
        #expect(region.tileCount == Int.max)
    }

    @Test("A look-up in a region costs the same whatever its rectangles are", arguments: 0..<6)
    func lookUpsDoNotScanTheRectangles(kind: Int) throws {
        var random = SplitMix64(seed: UInt64(kind))
        let (zoom, side, count) = (18, 1 << 18, 65_536)
        func span(_ i: Int) throws -> TileSpan {
            let (column, row) = (random.below(side), random.below(side))
            switch kind {
            // One that is as tall as the map, beside many of one row.
            case 0: return try TileSpan(zoom: zoom, columns: 9...9, rows: i == 0 ? 0...side - 1 : i * 2...i * 2)
            // All as tall as the map, with gaps between them.
            case 1: return try TileSpan(zoom: zoom, columns: i * 4...i * 4 + 1, rows: 0...side - 1)
            // Stairs: each begins below the one before and ends above it.
            case 2: return try TileSpan(zoom: zoom, columns: i * 4...i * 4, rows: i...side - 1 - i)
            case 3: return try TileSpan(zoom: zoom, columns: column...column, rows: row...row)
            case 4: return try TileSpan(zoom: zoom, columns: column...side - 1, rows: 0...row)
            default:
                return try TileSpan(
                    zoom: zoom, columns: column...min(side - 1, column + random.below(900)),
                    rows: row...min(side - 1, row + random.below(900)))
            }
        }
        let spans = try (0..<count).map(span)
        let index = RegionIndex(spans)
        var most = 0
        for i in 0..<100 {
            let near = random.pick(spans)
            let x = i % 2 == 0 ? random.below(side) : near.columns.upperBound
            let y = i % 3 == 0 ? random.below(side) : near.rows.lowerBound
            var probes = 0
            let isIn = index.contains(z: zoom, x: x, y: y, probes: &probes)
            #expect(isIn == spans.contains { $0.contains(z: zoom, x: x, y: y) }, "\(x), \(y)")
            most = max(most, probes)
        }
        #expect(most <= 18 * 18)
        #expect(!index.contains(z: zoom - 1, x: 9, y: 0))
    }

    @Test("Small regions cover exactly the tiles of their rectangles", arguments: 0..<40)
    func smallRegionsByTheTile(seed: Int) throws {
        var random = SplitMix64(seed: UInt64(seed))
        let spans = try (0..<1 + random.below(9)).map { _ in
            let (x, y) = (random.below(16), random.below(16))
            return try TileSpan(
                zoom: 4, columns: x...x + random.below(16 - x), rows: y...y + random.below(16 - y))
        }
        let index = RegionIndex(spans)
        for x in 0..<16 {
            for y in 0..<16 {
                #expect(index.contains(z: 4, x: x, y: y) == spans.contains { $0.contains(z: 4, x: x, y: y) })
            }
        }
    }
}
