import Testing
import TileStore
import TileStoreTesting

@testable import TileCacheMapKit

@Suite(.timeLimit(.minutes(60)))
struct TileGridTests {
    private func scale(_ zoom: Int, _ size: Double = 256) -> Double {
        // Powers of two are exact.
        (0..<40).reduce(size / PlaneRect.world) { value, step in step < zoom ? value * 2 : value }
    }

    @Test func aScaleOfMapKitsIsAZoom() throws {
        let layout = TileLayout(zooms: 0...22)
        for zoom in 0...22 {
            let grid = try #require(TileGrid(layout, zoomScale: scale(zoom)))
            #expect(grid.zoom == zoom)
        }
        // One point for each map point: 2^20 tiles of 256 points.
        #expect(TileGrid(layout, zoomScale: 1)?.zoom == 20)
        #expect(TileGrid(TileLayout(zooms: 0...22, tileSize: 512), zoomScale: 1)?.zoom == 19)
        // Rounding errors change nothing, and the whole world in half a tile is still zoom 0.
        #expect(TileGrid(layout, zoomScale: scale(7) * 1.000_001)?.zoom == 7)
        #expect(TileGrid(layout, zoomScale: scale(0) / 2)?.zoom == 0)
    }

    @Test(arguments: [0.0, -1.0, Double.nan, Double.infinity, -Double.infinity, Double.leastNonzeroMagnitude])
    func aNumberThatIsNoScaleIsRefusedOrBounded(zoomScale: Double) {
        let grid = TileGrid(TileLayout(), zoomScale: zoomScale)
        #expect(grid == nil || (0...40).contains(grid?.zoom ?? -1))
    }

    @Test func stateFollowsTheZooms() {
        let layout = TileLayout(zooms: 5...10)
        #expect(TileGrid(layout, zoomScale: scale(4))?.state == .belowMinimum)
        #expect(TileGrid(layout, zoomScale: scale(5))?.state == .inRange)
        #expect(TileGrid(layout, zoomScale: scale(10))?.state == .inRange)
        #expect(TileGrid(layout, zoomScale: scale(11))?.state == .beyondMaximum)
        #expect(TileGrid(layout, zoomScale: scale(14))?.tileZoom == 10)
    }

    /// A rectangle that is a tile touches that tile alone: not its neighbours to the east and south.
    @Test(arguments: Seeds.list(8)) func aTilesOwnRectangleTouchesItAlone(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        for _ in 0..<50 {
            let zoom = Int.random(in: 0...22, using: &random)
            let wanted = try tile(
                zoom, Int.random(in: 0..<(1 << zoom), using: &random), Int.random(in: 0..<(1 << zoom), using: &random))
            let grid = try #require(TileGrid(TileLayout(zooms: 0...22), zoomScale: scale(zoom)))
            #expect(grid.placements(in: PlaneRect(wanted), scale: 1).map(\.tile) == [wanted])
        }
    }

    /// So thin that its far edge is its near edge in numbers, and on a tile's edge too.
    @Test func aRectangleWithoutARealWidthTouchesNothing() throws {
        let grid = try #require(TileGrid(TileLayout(zooms: 0...22), zoomScale: scale(8)))
        let edge = PlaneRect(try tile(8, 7, 9))
        #expect(grid.placements(in: PlaneRect(x: edge.x, y: edge.y, width: 1e-12, height: 10), scale: 1).isEmpty)
        #expect(grid.placements(in: PlaneRect(x: edge.x, y: edge.y, width: 10, height: 1e-12), scale: 1).isEmpty)
    }

    /// What is found covers the rectangle, and every tile of it overlaps the rectangle.
    @Test(arguments: Seeds.list(8)) func tilesCoverARectangleAndNoMore(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        for _ in 0..<50 {
            let zoom = Int.random(in: 3...18, using: &random)
            let side = PlaneRect.world / Double(1 << zoom)
            let rect = PlaneRect(
                x: Double.random(in: 0...PlaneRect.world - 3 * side, using: &random),
                y: Double.random(in: 0...PlaneRect.world - 3 * side, using: &random),
                width: Double.random(in: 0.01...3, using: &random) * side,
                height: Double.random(in: 0.01...3, using: &random) * side)
            let grid = try #require(TileGrid(TileLayout(zooms: 0...22), zoomScale: scale(zoom)))
            let placements = grid.placements(in: rect, scale: 1)
            var area = 0.0
            for placement in placements {
                let width = min(placement.rect.maxX, rect.maxX) - max(placement.rect.x, rect.x)
                let height = min(placement.rect.maxY, rect.maxY) - max(placement.rect.y, rect.y)
                #expect(width > 0 && height > 0)
                area += width * height
            }
            #expect(abs(area / (rect.width * rect.height) - 1) < 1e-9)
            #expect(Set(placements.map(\.tile)).count == placements.count)
        }
    }

    @Test func columnsGoOnAcrossTheAntimeridianAndRowsEndAtThePoles() throws {
        let grid = try #require(TileGrid(TileLayout(zooms: 0...22), zoomScale: scale(2)))
        let side = PlaneRect.world / 4
        let rect = PlaneRect(x: 3.5 * side, y: -side, width: side, height: 1.5 * side)
        let placements = grid.placements(in: rect, scale: 1)
        #expect(placements.map(\.tile) == [try tile(2, 3, 0), try tile(2, 0, 0)])
        #expect(placements.map(\.rect.x) == [3 * side, PlaneRect.world])
        #expect(placements.map(\.shift) == [0, PlaneRect.world])
        #expect(grid.placements(in: PlaneRect(x: 0, y: -side, width: side, height: side), scale: 1).isEmpty)
        let west = grid.placements(in: PlaneRect(x: -side, y: 0, width: side, height: side), scale: 1)
        #expect(west.map(\.tile) == [try tile(2, 3, 0)])
    }

    @Test(arguments: [
        PlaneRect(x: .nan, y: 0, width: 1, height: 1), PlaneRect(x: 0, y: 0, width: .infinity, height: 1),
        PlaneRect(x: .infinity, y: .infinity, width: 0, height: 0), PlaneRect(x: 1e300, y: 0, width: 1, height: 1),
        PlaneRect(x: 0, y: 0, width: -1, height: 1),
        PlaneRect(x: 0, y: 0, width: PlaneRect.world, height: PlaneRect.world),
    ])
    func whatIsNoRectangleOfMapKitsHasNoTiles(rect: PlaneRect) throws {
        let grid = try #require(TileGrid(TileLayout(zooms: 0...22), zoomScale: 1))
        #expect(grid.placements(in: rect, scale: 1).isEmpty)
    }

    @Test func aScreenGetsTheScaleThatThereIs() {
        let layout = TileLayout(scales: 1...2)
        #expect([0.5, 1, 2, 3, .nan, .infinity].map(layout.scale) == [1, 1, 2, 2, 1, 1])
        #expect(TileLayout(scales: 2...2).scale(1) == 2)
    }
}
