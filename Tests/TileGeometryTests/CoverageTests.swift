import Testing
import TileGeometry
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A corner of a test polygon: a corner of a tile of zoom 10, so that edges often run along and through tiles' corners.
private struct Corner: Hashable, CustomStringConvertible {
    var x, y: Int

    static let zoom = 10
    static let side = 1 << zoom

    var description: String { "(\(x),\(y))" }

    var place: GeoCoordinate {
        get throws {
            let column = ((x % Self.side) + Self.side) % Self.side
            let north = try TileAddress(z: Self.zoom, x: column, y: min(y, Self.side - 1))
            let latitude = y == Self.side ? north.box.south : north.box.north
            return try GeoCoordinate(longitude: north.box.west, latitude: latitude)
        }
    }
}

/// What a polygon covers, found tile by tile with whole numbers, in another way than the scanner's.
private struct BruteForce {
    private let edges: [(Corner, Corner)]
    private let columns: Range<Int>

    init(rings: [[Corner]]) {
        edges = rings.flatMap { ring in zip(ring, ring.dropFirst() + ring.prefix(1)).map { ($0, $1) } }
        let all = rings.joined().map(\.x)
        columns = (all.min() ?? 0)..<((all.max() ?? 0) + 1)
    }

    /// Whether an edge has a point in the open square: if none of the three lines that could part them does.
    private func crosses(_ a: Corner, _ b: Corner, _ x: Int, _ y: Int, _ size: Int) -> Bool {
        if max(a.x, b.x) <= x || min(a.x, b.x) >= x + size { return false }
        if max(a.y, b.y) <= y || min(a.y, b.y) >= y + size { return false }
        func side(_ x: Int, _ y: Int) -> Int { ((b.x - a.x) * (y - a.y) - (b.y - a.y) * (x - a.x)).signum() }
        let sides = (side(x, y), side(x + size, y), side(x, y + size), side(x + size, y + size))
        let least = min(sides.0, sides.1, sides.2, sides.3)
        let most = max(sides.0, sides.1, sides.2, sides.3)
        return a == b || least < 0 && most > 0
    }

    /// Whether the square's centre is inside by the even-odd rule (in half units, so that it is whole).
    private func holds(_ x: Int, _ y: Int, _ size: Int) -> Bool {
        let (px, py) = (2 * x + size, 2 * y + size)
        var inside = false
        for (a, b) in edges where (2 * a.y <= py) != (2 * b.y <= py) {
            // Where the edge is at the centre's height, against the centre, multiplied out.
            let left = (px - 2 * a.x) * (b.y - a.y)
            let right = (py - 2 * a.y) * (b.x - a.x)
            if b.y > a.y ? left > right : left < right { inside.toggle() }
        }
        return inside
    }

    func tiles(zoom: Int) -> Set<[Int]> {
        let size = Corner.side >> zoom
        var tiles: Set<[Int]> = []
        for y in 0..<(1 << zoom) {
            for x in 0..<(1 << zoom) {
                for world in -2...2 {
                    let west = x * size + world * Corner.side
                    guard west < columns.upperBound, west + size >= columns.lowerBound else { continue }
                    if edges.contains(where: { crosses($0, $1, west, y * size, size) }) || holds(west, y * size, size) {
                        tiles.insert([x, y])
                    }
                }
            }
        }
        return tiles
    }
}

private func covered(_ shape: RegionShape, zoom: Int) throws -> Set<[Int]> {
    var tiles: Set<[Int]> = []
    for tile in try TileCoverage(shape, zooms: zoom...zoom).tiles() { tiles.insert([tile.x, tile.y]) }
    return tiles
}

/// A polygon anywhere, of any form, often across the antimeridian; the edges are less than half the world long.
private func randomRings(_ random: inout SplitMix64) -> [[Corner]] {
    let reach = [4, 16, 60, 240][random.below(4)]
    let (x, y) = (random.below(Corner.side), random.below(Corner.side))
    func ring(_ random: inout SplitMix64) -> [Corner] {
        while true {
            let corners = (0..<(3 + random.below(7))).map { _ in
                Corner(
                    x: x + random.below(2 * reach + 1) - reach,
                    y: min(max(y + random.below(2 * reach + 1) - reach, 0), Corner.side))
            }
            if Set(corners).count >= 3 { return corners }
        }
    }
    let outline = ring(&random)
    guard random.oneIn(2) else { return [outline] }
    let west = outline.map(\.x).min() ?? 0
    let hole = ring(&random)
    let move = west - (hole.map(\.x).min() ?? 0)
    return [outline, hole.map { Corner(x: $0.x + max(0, move), y: $0.y) }]
}

private func polygon(_ rings: [[Corner]]) throws -> RegionShape {
    let places = try rings.map { try $0.map { try $0.place } }
    return .polygon(try GeoPolygon(places[0], holes: Array(places.dropFirst())))
}

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct GeoRegionTests {
    @Test(arguments: Seeds.list(60))
    func aPolygonCoversWhatBruteForceFinds(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        for _ in 0..<4 {
            let rings = randomRings(&random)
            let zoom = random.below(7)
            let expected = BruteForce(rings: rings).tiles(zoom: zoom)
            let found = try covered(polygon(rings), zoom: zoom)
            #expect(found == expected, "zoom \(zoom): \(rings)")
        }
    }

    @Test(arguments: Seeds.list(24))
    func countsAreThoseOfEnumeration(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let shapes = try [
            polygon(randomRings(&random)),
            .union([polygon(randomRings(&random)), polygon(randomRings(&random)), polygon(randomRings(&random))]),
            corridor(&random),
        ]
        for shape in shapes {
            let coverage = try TileCoverage(shape, zooms: 0...10)
            var counts = Array(repeating: 0, count: 11)
            var seen: Set<TileAddress> = []
            var last = try TileAddress(z: 0, x: 0, y: 0)
            for tile in coverage.tiles() {
                counts[tile.z] += 1
                if tile.z <= 6 { #expect(seen.insert(tile).inserted) }
                if (last.z, last.y, last.x) > (tile.z, tile.y, tile.x) { Issue.record("\(tile) after \(last)") }
                last = tile
            }
            for zoom in 0...10 { #expect(coverage.tileCount(zoom: zoom) == counts[zoom], "zoom \(zoom)") }
            #expect(coverage.tileCount == counts.reduce(0, +))
            let spans = try coverage.spans(limit: .max)
            #expect(spans.reduce(0) { $0 + $1.count } == coverage.tileCount)
            for tile in seen { #expect(spans.contains { $0.contains(z: tile.z, x: tile.x, y: tile.y) }) }
        }
    }

    @Test(arguments: Seeds.list(12))
    func countsInClosedFormAreThoseOfRows(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        for shape in [try polygon(randomRings(&random)), try corridor(&random)] {
            for zoom in [12, 15] {
                let coverage = try TileCoverage(shape, zooms: zoom...zoom)
                let rows = try coverage.spans(limit: .max).reduce(0) { $0 + $1.count }
                #expect(coverage.tileCount == rows, "zoom \(zoom)")
            }
        }
    }

    @Test(arguments: Seeds.list(40))
    func aPolygonTurnedAroundTheWorldCoversTheSame(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let rings = randomRings(&random)
        let zoom = 3 + random.below(5)
        let columns = random.below(1 << zoom)
        let moved = rings.map { $0.map { Corner(x: $0.x + columns * (Corner.side >> zoom), y: $0.y) } }
        let turned = try covered(polygon(rings), zoom: zoom).map { [($0[0] + columns) & ((1 << zoom) - 1), $0[1]] }
        #expect(try covered(polygon(moved), zoom: zoom) == Set(turned))
        let mirrored = rings.map { $0.map { Corner(x: -$0.x, y: $0.y) } }
        let flipped = try covered(polygon([rings[0]]), zoom: zoom).map { [(1 << zoom) - 1 - $0[0], $0[1]] }
        #expect(try covered(polygon([mirrored[0]]), zoom: zoom) == Set(flipped))
    }

    @Test(arguments: Seeds.list(40))
    func aBoxCoversItsSpans(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        func number(_ limit: Int) -> Double {
            let whole = Double(random.below(2 * limit + 1) - limit)
            return random.oneIn(2) ? whole : max(-Double(limit), whole - Double(random.below(1_000_000)) / 1_000_000)
        }
        for _ in 0..<20 {
            let (a, b) = (number(90), number(90))
            let west = number(180)
            let box = try GeoBox(
                west: west, south: min(a, b), east: random.oneIn(4) ? west : number(180),
                north: random.oneIn(4) ? min(a, b) : max(a, b))
            for zoom in [0, 1, 2, 5, 11, 19, 28] {
                let expected = try box.spans(zoom: zoom).sorted { $0.columns.lowerBound < $1.columns.lowerBound }
                let coverage = try TileCoverage(.box(box), zooms: zoom...zoom)
                #expect(try coverage.spans() == expected, "\(box) at zoom \(zoom)")
                #expect(coverage.tileCount == expected.reduce(0) { $0 + $1.count })
            }
        }
    }

    @Test
    func theWholeWorldIsCounted() throws {
        let world = try TileCoverage(.box(GeoBox(west: -180, south: -90, east: 180, north: 90)), zooms: 0...28)
        #expect(world.tileCount == 96_076_792_050_570_581)
        #expect(try world.spans().count == 29)
        let corners = try [(-180.0, -90.0), (180, -90), (180, 90), (-180, 90)].map {
            try GeoCoordinate(longitude: $0.0, latitude: $0.1)
        }
        for rule in [AntimeridianRule.shorterWay, .asWritten] {
            let polygon = try GeoPolygon(corners, antimeridian: rule)
            #expect(try TileCoverage(.polygon(polygon), zooms: 28...28).tileCount == 1 << 56)
        }
        let last = try TileAddress(z: 28, x: (1 << 28) - 1, y: (1 << 28) - 1)
        #expect(Array(world.tiles(after: last)).isEmpty)
        #expect(try world.tiles(after: TileAddress(z: 0, x: 0, y: 0)).first { _ in true }?.z == 1)
        var random = SplitMix64(seed: 1)
        let drawn = world.sample(200, using: &random)
        #expect(Set(drawn).count == 200)
        // Three quarters of all tiles are of the last zoom.
        #expect((110...180).contains(drawn.filter { $0.z == 28 }.count))
    }

    @Test
    func aSliverThinnerThanACellCoversTheTilesItIsIn() throws {
        // The east edge leaves the meridian of Greenwich, a tile's edge, by one cell (0.6 mm) over 40 degrees.
        let cell = 360.0 / Double(1 << 36)
        let places = try [(-10.0, 20.0), (0, 20), (cell, -20), (-10, -20)].map {
            try GeoCoordinate(longitude: $0.0, latitude: $0.1)
        }
        for zoom in [4, 8, 20] {
            let coverage = try TileCoverage(.polygon(GeoPolygon(places)), zooms: zoom...zoom)
            let box = try GeoBox(west: -10, south: -20, east: cell, north: 20).spans(zoom: zoom)
            #expect(try coverage.spans() == box)
            #expect(coverage.tileCount == box.reduce(0) { $0 + $1.count })
        }
    }

    @Test
    func whatGoesAroundTheWorldTwiceIsCountedOnce() throws {
        let places = try [(-179.0, 10.0), (179, 12), (179, 60), (-179, 50)].map {
            try GeoCoordinate(longitude: $0.0, latitude: $0.1)
        }
        let most = RegionShape.polygon(try GeoPolygon(places, antimeridian: .asWritten))
        let rest = RegionShape.box(try GeoBox(west: 170, south: 20, east: -170, north: 40))
        let pole = RegionShape.corridor(
            try GeoCorridor(path: [GeoCoordinate(longitude: 100, latitude: 84)], halfWidth: 500_000))
        for shape in [most, .union([most, rest]), pole, .union([pole, most])] {
            for zoom in [3, 7, 11] {
                let coverage = try TileCoverage(shape, zooms: zoom...zoom)
                let rows = try coverage.spans(limit: .max).reduce(0) { $0 + $1.count }
                #expect(coverage.tileCount == rows, "zoom \(zoom)")
            }
        }
    }

    @Test(arguments: Seeds.list(40))
    func aWalkGoesOnBehindAnyTile(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let shape = try random.oneIn(2) ? polygon(randomRings(&random)) : corridor(&random)
        let coverage = try TileCoverage(shape, zooms: 2...7, scale: 2, format: "png")
        let all = Array(coverage.tiles())
        #expect(all.allSatisfy { $0.scale == 2 && $0.format == "png" })
        for _ in 0..<20 {
            let zoom = random.below(9)
            let last = try TileAddress(z: zoom, x: random.below(1 << zoom), y: random.below(1 << zoom))
            let rest = all.filter { ($0.z, $0.y, $0.x) > (last.z, last.y, last.x) }
            #expect(Array(coverage.tiles(after: last)) == rest)
        }
        for tile in all.prefix(50) {
            if let parent = tile.parent, parent.z >= 2 { #expect(all.contains(parent)) }
        }
    }

    @Test(arguments: Seeds.list(20))
    func aSampleIsDrawnFromTheTiles(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let shape = try random.oneIn(2) ? polygon(randomRings(&random)) : corridor(&random)
        let coverage = try TileCoverage(shape, zooms: 3...8)
        let all = Array(coverage.tiles())
        #expect(coverage.sample(Int.max, using: &random) == (all.count <= TileCoverage.sampleLimit ? all : []))
        #expect(coverage.sample(-1, using: &random).isEmpty)
        var again = SplitMix64(seed: seed)
        var once = SplitMix64(seed: seed)
        let drawn = coverage.sample(25, using: &once)
        #expect(drawn == coverage.sample(25, using: &again))
        #expect(drawn.count == min(25, all.count) && Set(drawn).isSubset(of: all))
    }

    @Test
    func everyTileIsDrawnAsOften() throws {
        let box = try GeoBox(west: -180, south: -90, east: 180, north: 90)
        let coverage = try TileCoverage(.box(box), zooms: 0...2)
        var random = SplitMix64(seed: 5)
        var times: [TileAddress: Int] = [:]
        for _ in 0..<2_100 { for tile in coverage.sample(3, using: &random) { times[tile, default: 0] += 1 } }
        // 21 tiles, each expected 300 times; 80 is more than four and a half standard deviations.
        #expect(times.count == 21 && times.values.allSatisfy { abs($0 - 300) < 80 })
    }

    @Test
    func whatIsNoShapeIsRefused() throws {
        func places(_ numbers: [(Double, Double)]) throws -> [GeoCoordinate] {
            try numbers.map { try GeoCoordinate(longitude: $0.0, latitude: $0.1) }
        }
        func message(_ body: () throws -> Void) -> String {
            (#expect(throws: StoreError.self) { try body() })?.message ?? ""
        }
        #expect(message { _ = try GeoPolygon(places([(0, 0), (1, 1), (0, 0)])) }.contains("three"))
        #expect(message { _ = try GeoPolygon([]) }.contains("three"))
        #expect(message { _ = try GeoPolygon(places([(0, 80), (120, 80), (-120, 80)])) }.contains("pole"))
        #expect(message { _ = try TileCoverage(.union([]), zooms: 0...1) }.contains("no shapes"))
        let corner = try GeoCoordinate(longitude: 1, latitude: 1)
        #expect(message { _ = try GeoPolygon(Array(repeating: corner, count: 100_001)) }.contains("simplify"))
        #expect(message { _ = try GeoCorridor(path: [], halfWidth: 1) }.contains("places"))
        for width in [-1, .nan, .infinity, 500_001.0] {
            #expect(message { _ = try GeoCorridor(path: [corner], halfWidth: width) }.contains("width"))
        }
        let spiral = try (0..<40).map { try GeoCoordinate(longitude: Double($0 * 100 % 360) - 180, latitude: 0) }
        #expect(message { _ = try GeoCorridor(path: spiral, halfWidth: 1) }.contains("around the world"))
        let box = RegionShape.box(try GeoBox(west: 0, south: 0, east: 1, north: 1))
        #expect(throws: StoreError.self) { try TileCoverage(box, zooms: 0...29) }
        #expect(throws: StoreError.self) { try TileCoverage(box, zooms: -1...2) }
        #expect(throws: StoreError.self) { try TileCoverage(box, zooms: 0...2, scale: 0) }
        let triangle = RegionShape.polygon(try GeoPolygon(places([(0, 0), (50, 10), (20, 50)])))
        let tooMany = message { _ = try TileCoverage(triangle, zooms: 0...28).spans() }
        #expect(tooMany.contains("65536 rectangles at zoom") && tooMany.contains("use lower zooms"))
    }

    @Test
    func sharedBordersAndSpikesAreCountedOnce() throws {
        func ring(_ west: Int, _ east: Int) -> [Corner] {
            [Corner(x: west, y: 100), Corner(x: east, y: 100), Corner(x: east, y: 900), Corner(x: west, y: 900)]
        }
        let apart = try RegionShape.union([polygon([ring(101, 333)]), polygon([ring(333, 577)])])
        let both = try polygon([ring(101, 577)])
        let evenOdd = try polygon([ring(101, 333), ring(333, 577)])
        for zoom in [5, 9, 10, 18, 28] {
            let expected = try TileCoverage(both, zooms: zoom...zoom).tileCount
            #expect(try TileCoverage(apart, zooms: zoom...zoom).tileCount == expected)
            #expect(try TileCoverage(evenOdd, zooms: zoom...zoom).tileCount == expected)
        }
    }

    // MARK: Corridors

    private func corridor(_ random: inout SplitMix64) throws -> RegionShape {
        var place = (Double(random.below(360)) - 180, Double(random.below(150)) - 75)
        var path: [GeoCoordinate] = []
        for _ in 0...random.below(4) {
            path.append(try GeoCoordinate(longitude: place.0, latitude: place.1))
            place.0 += Double(random.below(200) - 100) / 10
            place.0 = place.0 > 180 ? place.0 - 360 : place.0 < -180 ? place.0 + 360 : place.0
            place.1 = min(max(place.1 + Double(random.below(200) - 100) / 10, -80), 80)
        }
        return .corridor(
            try GeoCorridor(path: path, halfWidth: Double([0, 300, 20_000, 200_000][random.below(4)])))
    }

    @Test(arguments: Seeds.list(60))
    func noTileWithinTheWidthIsMissed(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        func share() -> Double { Double(random.below(1 << 30)) / Double(1 << 30) }
        let width = [200.0, 20_000, 300_000][random.below(3)]
        let extreme = random.oneIn(4) ? 88.0 : 70
        let start = (share() * 360 - 180, (share() * 2 - 1) * extreme)
        let end = (start.0 + (share() - 0.5) * 60, min(max(start.1 + (share() - 0.5) * 30, -88), 88))
        func wrapped(_ longitude: Double) -> Double {
            longitude > 180 ? longitude - 360 : longitude < -180 ? longitude + 360 : longitude
        }
        let path = try [start, end].map { try GeoCoordinate(longitude: wrapped($0.0), latitude: $0.1) }
        let zoom = width < 1_000 ? 15 : 9
        let coverage = try TileCoverage(.corridor(GeoCorridor(path: path, halfWidth: width)), zooms: zoom...zoom)
        let spans = try coverage.spans(limit: .max)
        func height(_ latitude: Double) -> Double { Ellipsoid.mercator(latitude) }
        for _ in 0..<200 {
            // A place of the path, straight in the Mercator plane, and one within the width of it on the ground.
            let along = share()
            let latitude = Ellipsoid.latitude(height(start.1) + (height(end.1) - height(start.1)) * along)
            let reached = Ellipsoid.destination(
                longitude: start.0 + (end.0 - start.0) * along, latitude: latitude, bearing: share() * 360,
                metres: width * (random.oneIn(2) ? 0.9999 : share()))
            guard abs(reached.latitude) < 85.05 else { continue }
            let tile = try TileAddress(
                containing: GeoCoordinate(longitude: wrapped(reached.longitude), latitude: reached.latitude),
                zoom: zoom)
            #expect(spans.contains { $0.contains(z: zoom, x: tile.x, y: tile.y) })
        }
    }

    @Test(arguments: [0.0, 30, -60, 75])
    func aCorridorIsNotMuchWiderThanAsked(latitude: Double) throws {
        let path = try [0.0, 1].map { try GeoCoordinate(longitude: 20, latitude: latitude + $0) }
        let zoom = 22
        let coverage = try TileCoverage(.corridor(GeoCorridor(path: path, halfWidth: 2_000)), zooms: zoom...zoom)
        let middle = try TileAddress(
            containing: GeoCoordinate(longitude: 20, latitude: latitude + 0.5), zoom: zoom)
        var columns = 0
        for span in try coverage.spans(limit: .max) where span.rows.contains(middle.y) { columns += span.columns.count }
        let metre = Ellipsoid.groundMetres(at: latitude + 0.5) * 2 * MercatorPoint.extent / Double(1 << zoom)
        #expect((4_000...4_350).contains(Double(columns) * metre))
    }
}

/// Geodesics on WGS 84, for the tests alone.
private enum Ellipsoid {
    static func mercator(_ latitude: Double) -> Double { asinh(tan(latitude * .pi / 180)) }
    static func latitude(_ mercator: Double) -> Double { atan(sinh(mercator)) * 180 / .pi }

    /// How many metres on the ground, east to west, a metre of the plane is.
    static func groundMetres(at latitude: Double) -> Double {
        let sine = sin(latitude * .pi / 180)
        return cos(latitude * .pi / 180) / (1 - 0.006_694_379_990_14 * sine * sine).squareRoot()
    }

    /// Vincenty's direct formula.
    static func destination(
        longitude: Double, latitude: Double, bearing: Double, metres: Double
    ) -> (longitude: Double, latitude: Double) {
        let (a, f) = (6_378_137.0, 1 / 298.257_223_563)
        let b = a * (1 - f)
        let azimuth = bearing * .pi / 180
        let reduced = atan((1 - f) * tan(latitude * .pi / 180))
        let sigma1 = atan2(tan(reduced), cos(azimuth))
        let sinAlpha = cos(reduced) * sin(azimuth)
        let cosSquare = 1 - sinAlpha * sinAlpha
        let u = cosSquare * (a * a - b * b) / (b * b)
        let A = 1 + u / 16_384 * (4_096 + u * (-768 + u * (320 - 175 * u)))
        let B = u / 1_024 * (256 + u * (-128 + u * (74 - 47 * u)))
        var sigma = metres / (b * A)
        for _ in 0..<20 {
            let m = cos(2 * sigma1 + sigma)
            let inner =
                cos(sigma) * (-1 + 2 * m * m) - B / 6 * m * (-3 + 4 * sin(sigma) * sin(sigma)) * (-3 + 4 * m * m)
            sigma = metres / (b * A) + B * sin(sigma) * (m + B / 4 * inner)
        }
        let m = cos(2 * sigma1 + sigma)
        let across = sin(reduced) * sin(sigma) - cos(reduced) * cos(sigma) * cos(azimuth)
        let north = atan2(
            sin(reduced) * cos(sigma) + cos(reduced) * sin(sigma) * cos(azimuth),
            (1 - f) * (sinAlpha * sinAlpha + across * across).squareRoot())
        let lambda = atan2(
            sin(sigma) * sin(azimuth), cos(reduced) * cos(sigma) - sin(reduced) * sin(sigma) * cos(azimuth))
        let C = f / 16 * cosSquare * (4 + f * (4 - 3 * cosSquare))
        let east =
            lambda - (1 - C) * f * sinAlpha * (sigma + C * sin(sigma) * (m + C * cos(sigma) * (-1 + 2 * m * m)))
        return (longitude + east * 180 / .pi, north * 180 / .pi)
    }
}
