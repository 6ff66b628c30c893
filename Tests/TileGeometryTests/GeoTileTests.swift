import Testing
import TileGeometry
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct GeoTileTests {
    private func place(_ longitude: Double, _ latitude: Double) throws -> GeoCoordinate {
        try GeoCoordinate(longitude: longitude, latitude: latitude)
    }

    /// Whether the corner, the centre and the box of a tile lead back to it.
    private func returns(_ tile: TileAddress) throws -> Bool {
        guard try TileAddress(containing: tile.northWest, zoom: tile.z) == tile,
            try TileAddress(containing: tile.center, zoom: tile.z) == tile,
            try tile.box.spans(zoom: tile.z)
                == [TileSpan(zoom: tile.z, columns: tile.x...tile.x, rows: tile.y...tile.y)]
        else { return false }
        // The same by way of metres and of pixels.
        let box = tile.mercatorBox
        let corner = try MercatorPoint(x: box.west, y: box.north)
        let pixel = PixelPoint(x: Double(tile.x) * 512, y: Double(tile.y) * 512)
        return try TileAddress(containing: corner.coordinate, zoom: tile.z) == tile
            && TileAddress(containing: MercatorPoint(pixel, zoom: tile.z, tileSize: 512).coordinate, zoom: tile.z)
                == tile
            && TileAddress(containing: MercatorPoint(tile.northWest).coordinate, zoom: tile.z) == tile
    }

    @Test(arguments: 0...13)
    func everyRowAndEveryColumnComesBack(zoom: Int) throws {
        let side = 1 << zoom
        var wrong: [TileAddress] = []
        for index in 0..<side {
            // A row and a column a tile: all rows and all columns of the zoom.
            let tile = try TileAddress(z: zoom, x: side - 1 - index, y: index)
            if try !returns(tile) { wrong.append(tile) }
        }
        #expect(wrong.isEmpty)
    }

    @Test
    func tilesOfEveryZoomComeBack() throws {
        var random = SplitMix64(seed: 28)
        var wrong: [TileAddress] = []
        for zoom in 0...28 {
            let side = 1 << zoom
            var rows = [0, side - 1, side / 2, max(0, side / 2 - 1), min(1, side - 1), max(0, side - 2)]
            for _ in 0..<2_000 { rows.append(random.below(side)) }
            for row in rows {
                let tile = try TileAddress(z: zoom, x: random.below(side), y: row)
                if try !returns(tile) { wrong.append(tile) }
            }
        }
        #expect(wrong.isEmpty, "\(wrong.count) tiles did not come back")
    }

    @Test
    func knownTiles() throws {
        // As OpenStreetMap's and Bing's documents have them.
        let berlin = try TileAddress(containing: place(13.4, 52.5), zoom: 10)
        #expect((berlin.x, berlin.y) == (550, 335))
        #expect(try TileAddress(quadkey: "213") == TileAddress(z: 3, x: 3, y: 5))
        #expect(try TileAddress(z: 3, x: 3, y: 5).quadkey == "213")
        #expect(try TileAddress(z: 0, x: 0, y: 0).quadkey == "")
        #expect(try TileAddress(z: 3, x: 3, y: 5).tmsRow == 2)
        let world = try TileAddress(z: 0, x: 0, y: 0)
        #expect(world.mercatorBox.description.hasPrefix("-20037508.342789244,-20037508.342789244,"))
        #expect(world.box.west == -180 && world.box.east == 180)
        #expect(abs(world.box.north - 85.0511287798066) < 1e-12)
        #expect(world.box.south == -world.box.north)
    }

    @Test
    func theEndsOfTheWorldAreInItsOuterTiles() throws {
        for zoom in [0, 1, 7, 28] {
            let last = (1 << zoom) - 1
            for (longitude, column) in [(-180.0, 0), (180.0, last)] {
                for (latitude, row) in [(90.0, 0), (85.06, 0), (-85.06, last), (-90.0, last)] {
                    let tile = try TileAddress(containing: place(longitude, latitude), zoom: zoom)
                    #expect((tile.x, tile.y) == (column, row))
                }
            }
        }
    }

    @Test
    func noInputTraps() throws {
        let odd: [Double] = [
            .nan, .signalingNaN, .infinity, -.infinity, 1e308, -1e308, 180.0.nextUp, (-180.0).nextDown, 360,
            .greatestFiniteMagnitude,
        ]
        for value in odd {
            #expect(throws: StoreError.self) { try place(value, 0) }
            #expect(throws: StoreError.self) { try MercatorPoint(x: value * 1e9, y: 0) }
            #expect(throws: StoreError.self) { try GeoBox(west: value, south: 0, east: 0, north: 0) }
            let pixel = PixelPoint(x: value, y: -value)
            if value.isFinite {
                let point = try MercatorPoint(pixel, zoom: 28)
                _ = try TileAddress(containing: point.coordinate, zoom: 28)
            } else {
                #expect(throws: StoreError.self) { try MercatorPoint(pixel, zoom: 28) }
            }
        }
        for value in [0.0, -0.0, .leastNonzeroMagnitude, -.leastNonzeroMagnitude, .ulpOfOne] {
            let tile = try TileAddress(containing: place(value, value), zoom: 1)
            #expect((tile.x, tile.y) == (1, 1))
        }
        for zoom in [Int.min, -1, 29, 64, Int.max] {
            #expect(throws: StoreError.self) { try TileAddress(containing: place(0, 0), zoom: zoom) }
            #expect(throws: StoreError.self) { try MercatorPoint(place(0, 0)).pixel(zoom: zoom) }
            #expect(throws: StoreError.self) { try TileAddress(z: zoom, x: 0, tmsRow: 0) }
            #expect(throws: StoreError.self) { try GeoBox(west: 0, south: 0, east: 0, north: 0).spans(zoom: zoom) }
            #expect(try TileAddress(z: 3, x: 1, y: 1).ancestor(zoom: zoom) == nil)
        }
        for row in [Int.min, -1, 8, Int.max] {
            #expect(throws: StoreError.self) { try TileAddress(z: 3, x: 0, tmsRow: row) }
        }
        for size in [Int.min, 0, -1, 8193, Int.max] {
            #expect(throws: StoreError.self) { try MercatorPoint(place(0, 0)).pixel(zoom: 0, tileSize: size) }
        }
    }

    @Test
    func pixelsAndMetresAgreeWithTheProjection() throws {
        let origin = MercatorPoint(try place(0, 0))
        #expect(abs(origin.x) < 1e-9 && abs(origin.y) < 1e-9)
        #expect(try origin.pixel(zoom: 0) == PixelPoint(x: 128, y: 128))
        #expect(try origin.pixel(zoom: 3, tileSize: 512) == PixelPoint(x: 2048, y: 2048))
        // EPSG's own example for 3857: 24°22'54.433"N 100°20'00.000"W is -11169055.58, 2800000.00.
        let example = MercatorPoint(try place(-100.333333333, 24.381786944))
        #expect(abs(example.x + 11_169_055.58) < 0.02 && abs(example.y - 2_800_000) < 0.02)
        // What other programs round up is still the edge of the world.
        #expect(try MercatorPoint(x: 20_037_508.343, y: -20_037_508.343).coordinate.longitude == 180)
        #expect(throws: StoreError.self) { try MercatorPoint(x: 20_037_510, y: 0) }
    }

    @Test(arguments: Seeds.list(20))
    func familiesAndQuadkeysAgree(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        for _ in 0..<200 {
            let zoom = random.below(29)
            let tile = try TileAddress(
                z: zoom, x: random.below(1 << zoom), y: random.below(1 << zoom), scale: 2, format: "png")
            for child in tile.children {
                #expect(child.parent == tile)
                #expect(child.quadkey.hasPrefix(tile.quadkey))
            }
            #expect(tile.children.count == (zoom == 28 ? 0 : 4))
            #expect(try TileAddress(quadkey: tile.quadkey, scale: 2, format: "png") == tile)
            #expect(try TileAddress(z: zoom, x: tile.x, tmsRow: tile.tmsRow, scale: 2, format: "png") == tile)
            let up = random.below(zoom + 1)
            let ancestor = try #require(tile.ancestor(zoom: up))
            #expect(tile.quadkey.hasPrefix(ancestor.quadkey) && ancestor.z == up && ancestor.scale == 2)
            #expect(try TileAddress(containing: tile.center, zoom: up, scale: 2, format: "png") == ancestor)
        }
        #expect(try TileAddress(z: 0, x: 0, y: 0).parent == nil)
    }

    @Test
    func aBadQuadkeySaysWhatIsWrong() throws {
        let error = #expect(throws: StoreError.self) { try TileAddress(quadkey: "0124") }
        #expect(error?.message.contains("character 4") == true)
        #expect(throws: StoreError.self) { try TileAddress(quadkey: String(repeating: "0", count: 29)) }
        #expect(throws: StoreError.self) { try TileAddress(quadkey: "01é") }
        #expect(try TileAddress(quadkey: String(repeating: "3", count: 28)).x == (1 << 28) - 1)
    }

    @Test(arguments: 0...4)
    func ringsAreTheTilesByDistance(zoom: Int) throws {
        let side = 1 << zoom
        for y in 0..<side {
            for x in 0..<side {
                let center = try TileAddress(z: zoom, x: x, y: y)
                var seen: Set<TileAddress> = []
                var last = 0
                for tile in center.rings(0...Int.max) {
                    let apart = abs(tile.x - x)
                    let ring = max(min(apart, side - apart), abs(tile.y - y))
                    #expect(ring >= last)
                    last = ring
                    #expect(seen.insert(tile).inserted)
                }
                #expect(seen.count == side * side)
            }
        }
    }

    @Test
    func ringsTakeAnyDistance() throws {
        let center = try TileAddress(z: 28, x: 0, y: 0)
        #expect(Array(center.rings(0...0)) == [center])
        #expect(Array(center.rings(1...1)).count == 5)
        #expect(Array(center.rings(Int.min ... -1)).isEmpty)
        #expect(Array(center.rings(Int.max...Int.max)).isEmpty)
        // The farthest row of all, and a ring that has long gone around the world.
        #expect(center.rings((1 << 28) - 1...Int.max).first { _ in true }?.y == (1 << 28) - 1)
        #expect(Array(center.rings(0...1)).map(\.x).contains((1 << 28) - 1))
    }

    @Test
    func aBoxThatOnlyMeetsTheAntimeridianStaysOnItsSide() throws {
        let fromIt = try GeoBox(west: 180, south: -10, east: -170, north: 10).spans(zoom: 4)
        #expect(fromIt.map(\.columns) == [0...0])
        let toIt = try GeoBox(west: 170, south: -10, east: -180, north: 10).spans(zoom: 4)
        #expect(toIt.map(\.columns) == [15...15])
    }
}
