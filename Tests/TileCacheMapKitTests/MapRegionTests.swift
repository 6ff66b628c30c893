import Testing
import TileStore

@testable import TileCacheMapKit

@Suite(.timeLimit(.minutes(60)))
struct MapRegionTests {
    private static let world = PlaneRect.world

    private func box(_ latitude: Double, _ longitude: Double, _ height: Double, _ width: Double) throws -> GeoBox {
        try MapRegion(latitude: latitude, longitude: longitude, latitudeDelta: height, longitudeDelta: width).box()
    }

    @Test func aRegionIsTheBoxAroundItsCentre() throws {
        #expect(try box(47, 8, 2, 4) == GeoBox(west: 6, south: 46, east: 10, north: 48))
        // Across the antimeridian, from either side.
        #expect(try box(0, 179, 2, 4) == GeoBox(west: 177, south: -1, east: -179, north: 1))
        #expect(try box(0, -179, 2, 4) == GeoBox(west: 179, south: -1, east: -177, north: 1))
        // Just up to it is not across.
        #expect(try box(0, 170, 2, 20) == GeoBox(west: 160, south: -1, east: 180, north: 1))
        #expect(try box(0, -170, 2, 20) == GeoBox(west: -180, south: -1, east: -160, north: 1))
        // The poles, and the world.
        #expect(try box(80, 0, 40, 2) == GeoBox(west: -1, south: 60, east: 1, north: 90))
        #expect(try box(0, 77, 180, 360) == GeoBox(west: -180, south: -90, east: 180, north: 90))
        #expect(try box(0, 540, 2, 4) == GeoBox(west: 178, south: -1, east: -178, north: 1))
        #expect(try box(10, 20, 0, 0) == GeoBox(west: 20, south: 10, east: 20, north: 10))
    }

    @Test(arguments: [
        (Double.nan, 0.0, 1.0, 1.0), (0, .infinity, 1, 1), (0, 0, -1, 1), (0, 0, 1, -1), (0, 0, .nan, 1),
    ])
    func aRegionWhoseNumbersAreNoneIsAnError(latitude: Double, longitude: Double, height: Double, width: Double) {
        #expect(throws: StoreError.self) { try box(latitude, longitude, height, width) }
    }

    /// The rectangle of a tile covers that tile and no other, at every zoom.
    @Test(arguments: 0...28) func theRectangleOfATileCoversItAlone(zoom: Int) throws {
        let last = (1 << zoom) - 1
        for (x, y) in [(0, 0), (last, last), (last / 3, last / 5), (last, 0)] {
            let spans = try PlaneRect(try tile(zoom, x, y)).box().spans(zoom: zoom)
            #expect(spans == [try TileSpan(zoom: zoom, columns: x...x, rows: y...y)])
        }
    }

    @Test func aRectangleAcrossTheAntimeridianHasTwoSides() throws {
        let side = Self.world / 8
        let across = try PlaneRect(x: 7 * side, y: 3 * side, width: 2 * side, height: side).box().spans(zoom: 3)
        #expect(
            across == [
                try TileSpan(zoom: 3, columns: 7...7, rows: 3...3), try TileSpan(zoom: 3, columns: 0...0, rows: 3...3),
            ])
        // The same, written from the other side, and a world further on.
        for world in [-1.0, 1] {
            let other = PlaneRect(x: 7 * side + world * Self.world, y: 3 * side, width: 2 * side, height: side)
            #expect(try other.box().spans(zoom: 3) == across)
        }
        let all = try PlaneRect(x: -side, y: -side, width: 3 * Self.world, height: 3 * Self.world).box()
        #expect(try all.spans(zoom: 3) == [TileSpan(zoom: 3, columns: 0...7, rows: 0...7)])
    }

    @Test func aRectangleThatIsNoPartOfTheWorldIsAnError() {
        let none = [
            PlaneRect(x: .infinity, y: .infinity, width: 0, height: 0), PlaneRect(x: 0, y: 0, width: -1, height: 1),
            PlaneRect(x: 0, y: 2 * Self.world, width: 1, height: 1), PlaneRect(x: .nan, y: 0, width: 1, height: 1),
        ]
        for rect in none { #expect(throws: StoreError.self) { try rect.box() } }
    }

    @Test func aLineIsACorridorOfItsWidth() throws {
        // Along the equator, from 0° to 10° east.
        let middle = Self.world / 2
        let line = [PlanePoint(x: middle, y: middle), PlanePoint(x: middle + Self.world / 36, y: middle)]
        let expected = RegionShape.corridor(
            try GeoCorridor(
                path: [GeoCoordinate(longitude: 0, latitude: 0), GeoCoordinate(longitude: 10, latitude: 0)],
                halfWidth: 2_000))
        func tiles(_ shape: RegionShape) throws -> [TileSpan] { try TileCoverage(shape, zooms: 10...10).spans() }
        #expect(try tiles(RegionShape(along: line, width: 4_000)) == tiles(expected))
        // A step over the antimeridian is a short one.
        let across = [PlanePoint(x: Self.world - 1000, y: middle), PlanePoint(x: 1000, y: middle)]
        let beyond = [PlanePoint(x: Self.world - 1000, y: middle), PlanePoint(x: Self.world + 1000, y: middle)]
        let short = try tiles(RegionShape(along: across, width: 10))
        #expect(short.reduce(0) { $0 + $1.count } <= 4)
        #expect(try tiles(RegionShape(along: beyond, width: 10)) == short)
    }

    @Test func aLineThatIsNoneIsAnError() {
        #expect(throws: StoreError.self) { try RegionShape(along: [], width: 10) }
        #expect(throws: StoreError.self) { try RegionShape(along: [PlanePoint(x: 0, y: 0)], width: -1) }
        #expect(throws: StoreError.self) { try RegionShape(along: [PlanePoint(x: 0, y: 0)], width: .nan) }
        #expect(throws: StoreError.self) { try RegionShape(along: [PlanePoint(x: .nan, y: 0)], width: 10) }
        #expect(throws: StoreError.self) { try RegionShape(along: [PlanePoint(x: 0, y: .infinity)], width: 10) }
    }
}

#if canImport(MapKit)
import MapKit

extension MapRegionTests {
    /// The faces with MapKit's types.
    @Test func mapKitsRegionsRectanglesAndLinesAreShapes() throws {
        let region = MKCoordinateRegion(
            center: CLLocationCoordinate2D(latitude: 47, longitude: 8),
            span: MKCoordinateSpan(latitudeDelta: 2, longitudeDelta: 4))
        #expect(try RegionShape(region) == .box(GeoBox(west: 6, south: 46, east: 10, north: 48)))
        #expect(try RegionShape(MKMapRect.world) == .box(PlaneRect(tile(0, 0, 0)).box()))
        #expect(throws: StoreError.self) { try RegionShape(MKMapRect.null) }
        let middle = Self.world / 2
        let points = [MKMapPoint(x: middle, y: middle), MKMapPoint(x: middle / 2, y: middle)]
        let line = MKPolyline(points: points, count: points.count)
        let expected = try RegionShape(along: points.map { PlanePoint(x: $0.x, y: $0.y) }, width: 500)
        #expect(try RegionShape(along: line, width: 500) == expected)
        #expect(throws: StoreError.self) { try RegionShape(along: MKPolyline(points: points, count: 0), width: 500) }
    }
}
#endif
