import Testing
import TileGeometry

@Suite(.timeLimit(.minutes(60)))
struct BoxTests {
    private func covered(_ box: GeoBox, zoom: Int) throws -> Set<[Int]> {
        var tiles: Set<[Int]> = []
        for span in try box.spans(zoom: zoom) {
            for x in span.columns { for y in span.rows { tiles.insert([x, y]) } }
        }
        return tiles
    }

    @Test("The whole world is every tile", arguments: 0...6)
    func world(zoom: Int) throws {
        let box = try GeoBox(west: -180, south: -90, east: 180, north: 90)
        #expect(try covered(box, zoom: zoom).count == 1 << (2 * zoom))
    }

    @Test("A box that ends on a tile's edge does not touch the next tile")
    func edges() throws {
        #expect(try covered(GeoBox(west: -180, south: 0, east: 0, north: 85), zoom: 1) == [[0, 0]])
        #expect(try covered(GeoBox(west: 0, south: -85, east: 180, north: 0), zoom: 1) == [[1, 1]])
        #expect(
            try covered(GeoBox(west: -90, south: 0, east: 90, north: 85), zoom: 2) == [
                [1, 0], [2, 0], [1, 1], [2, 1],
            ])
    }

    @Test("A box without extent touches one tile, also at the ends of the world")
    func points() throws {
        for zoom in [0, 1, 5, 28] {
            for (x, y) in [(0.0, 0.0), (-180.0, 90.0), (180.0, -90.0), (13.4, 52.5)] {
                let spans = try GeoBox(west: x, south: y, east: x, north: y).spans(zoom: zoom)
                #expect(spans.reduce(0) { $0 + $1.count } == 1)
            }
        }
        // Berlin at zoom 10, as every slippy map has it.
        #expect(try covered(GeoBox(west: 13.4, south: 52.5, east: 13.4, north: 52.5), zoom: 10) == [[550, 335]])
    }

    @Test("A box across the antimeridian is two rectangles")
    func antimeridian() throws {
        let box = try GeoBox(west: 170, south: -10, east: -170, north: 10)
        let spans = try box.spans(zoom: 3)
        #expect(spans.count == 2)
        #expect(Set(spans.flatMap { Array($0.columns) }) == [0, 7])
        // Almost all around: no tile is covered twice.
        let around = try GeoBox(west: 1, south: -10, east: -1, north: 10).spans(zoom: 3)
        #expect(around.reduce(0) { $0 + $1.columns.count } == 8)
    }

    @Test("What is no box or span is refused")
    func refusals() throws {
        #expect(throws: StoreError.self) { try GeoBox(west: -181, south: 0, east: 0, north: 1) }
        #expect(throws: StoreError.self) { try GeoBox(west: 0, south: 2, east: 1, north: 1) }
        #expect(throws: StoreError.self) { try GeoBox(west: .nan, south: 0, east: 1, north: 1) }
        #expect(throws: StoreError.self) { try GeoBox(west: 0, south: 0, east: 1, north: 1).spans(zoom: 29) }
        #expect(throws: StoreError.self) { try TileSpan(zoom: 2, columns: 0...4, rows: 0...1) }
        #expect(throws: StoreError.self) { try TileSpan(zoom: 2, columns: -1...1, rows: 0...1) }
    }

    @Test("Every tile that a box covers holds a point of the box")
    func coverage() throws {
        let box = try GeoBox(west: -20, south: -30, east: 50, north: 60)
        let tiles = try covered(box, zoom: 5)
        #expect(tiles.count == (1 + 20 - 14) * (1 + 18 - 9))
    }
}
