/// What a region covers on the map.
///
/// Edges are straight in the Web Mercator plane, as they are on the screen. A tile is covered if an edge goes through
/// its inside or if it lies within the shape; what only meets a tile's edge from outside does not cover it, as with
/// ``GeoBox/spans(zoom:)``. Corners are rounded to 0.6 mm (at the equator). What is beyond 85.0511°, where the
/// pyramid ends, is moved to its edge.
public indirect enum RegionShape: Hashable, Sendable {
    /// A box in degrees.
    case box(GeoBox)
    /// A polygon with holes.
    case polygon(GeoPolygon)
    /// A band along a line, or a disc around a place.
    case corridor(GeoCorridor)
    /// Whatever one of several shapes covers.
    case union([RegionShape])
}

/// How lines with corners far apart in longitude are meant.
public enum AntimeridianRule: Hashable, Sendable {
    /// Every edge goes the shorter way around: from 170° to -170° it crosses the antimeridian.
    ///
    /// Edges of exactly 180° or 360° go as they are written.
    case shorterWay
    /// Every edge goes as it is written: from 170° to -170° it goes west by way of Greenwich.
    ///
    /// This is what GeoJSON says (RFC 7946, section 3.1.9).
    case asWritten
}

/// A polygon with holes.
///
/// What is inside is decided by the even-odd rule over all of its rings, so rings may touch themselves and each other
/// and may run either way around.
public struct GeoPolygon: Hashable, Sendable {
    /// How many corners a polygon may have.
    public static let cornerLimit = 100_000

    let rings: [[PlaneVertex]]

    /// Checks and takes a polygon; a ring is closed whether or not its first corner is repeated at its end.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue`` if a ring has fewer than three corners, runs
    ///   around a pole or around the world more than once, or if there are more than 100,000 corners.
    public init(
        _ outline: [GeoCoordinate], holes: [[GeoCoordinate]] = [], antimeridian: AntimeridianRule = .shorterWay
    ) throws {
        try self.init(
            rings: [outline] + holes,
            turns: { ring in
                antimeridian == .asWritten ? Array(repeating: 0, count: ring.count + 1) : turns(closed(ring))
            })
    }

    /// Takes rings whose longitudes may go on beyond ±180°, up to ±540°.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue``.
    package init(unrolled rings: [[(longitude: Double, latitude: Double)]]) throws {
        var taken: [[PlaneVertex]] = []
        for ring in rings {
            taken.append(try ring.map { try PlaneVertex(longitude: $0.longitude, latitude: $0.latitude) })
        }
        try self.init(vertices: taken)
    }

    private init(rings: [[GeoCoordinate]], turns: ([GeoCoordinate]) -> [Int]) throws {
        try Self.check(corners: rings.reduce(0) { $0 + $1.count })
        var taken: [[PlaneVertex]] = []
        for ring in rings {
            let worlds = turns(ring)
            guard (worlds.last ?? 0) == 0 else {
                throw StoreError(
                    .invalidValue,
                    "polygon ring \(taken.count + 1) runs around a pole: lead it along the edge of the map, by way of "
                        + "corners such as 180,-90 and -180,-90")
            }
            taken.append(
                zip(ring, worlds).map { place, turn in
                    PlaneVertex(
                        x: PlaneGrid.x(longitude: place.longitude) + turn * PlaneGrid.side,
                        y: PlaneGrid.y(latitude: place.latitude))
                })
        }
        try self.init(vertices: taken)
    }

    private init(vertices: [[PlaneVertex]]) throws {
        try Self.check(corners: vertices.reduce(0) { $0 + $1.count })
        var rings: [[PlaneVertex]] = []
        var west = 0
        for (index, ring) in vertices.enumerated() {
            guard Set(ring).count >= 3, let first = ring.map(\.x).min(), let last = ring.map(\.x).max() else {
                throw StoreError(.invalidValue, "polygon ring \(index + 1) has fewer than three different corners")
            }
            guard last - first <= 2 * PlaneGrid.side else {
                throw StoreError(.invalidValue, "polygon ring \(index + 1) runs around the world more than once")
            }
            if index == 0 { west = first }
            // A hole may have been written on the other side of the antimeridian than its polygon.
            var move = 0
            while first + move < west { move += PlaneGrid.side }
            while first + move >= west + PlaneGrid.side { move -= PlaneGrid.side }
            rings.append(ring.map { PlaneVertex(x: $0.x + (index == 0 ? 0 : move), y: $0.y) })
        }
        guard !rings.isEmpty else { throw StoreError(.invalidValue, "the polygon has no ring") }
        self.rings = rings
    }

    private static func check(corners: Int) throws {
        guard corners <= cornerLimit else {
            throw StoreError(
                .invalidValue, "the polygon has \(corners) corners; \(cornerLimit) are possible: simplify it")
        }
    }
}

/// A band along a line, or a disc around a single place.
public struct GeoCorridor: Hashable, Sendable {
    /// How many places a path may have.
    public static let placeLimit = 20_000
    /// How wide half a corridor may be, in metres.
    public static let halfWidthLimit = 500_000.0

    /// How far it reaches to either side of the path, in metres on the ground.
    public let halfWidth: Double
    let path: [PathPoint]

    /// Checks and takes a corridor.
    ///
    /// The width is a lower bound: no tile nearer to the path than that on the ground is missed. The outline is some
    /// percent farther away, more so where a wide corridor is near a pole. The path is straight in the Web Mercator
    /// plane between its places.
    ///
    /// - Parameters:
    ///   - path: 1 to 20,000 places.
    ///   - halfWidth: 0 to 500,000 metres.
    ///   - antimeridian: How edges that span more than half the world are meant.
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue``.
    public init(path: [GeoCoordinate], halfWidth: Double, antimeridian: AntimeridianRule = .shorterWay) throws {
        let worlds = antimeridian == .asWritten ? Array(repeating: 0, count: path.count) : turns(path)
        try self.init(
            points: zip(path, worlds).map { place, turn in
                PathPoint(longitude: place.longitude + Double(turn) * 360, latitude: place.latitude)
            }, halfWidth: halfWidth)
    }

    /// Takes a path whose longitudes may go on beyond ±180°, up to ±540°.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue``.
    package init(unrolled path: [(longitude: Double, latitude: Double)], halfWidth: Double) throws {
        for place in path { _ = try PlaneVertex(longitude: place.longitude, latitude: place.latitude) }
        try self.init(
            points: path.map { PathPoint(longitude: $0.longitude, latitude: $0.latitude) }, halfWidth: halfWidth)
    }

    private init(points: [PathPoint], halfWidth: Double) throws {
        guard (1...Self.placeLimit).contains(points.count) else {
            throw StoreError(
                .invalidValue,
                "the path has \(points.count) places; 1 to \(Self.placeLimit) are possible: simplify or divide it")
        }
        guard (0...Self.halfWidthLimit).contains(halfWidth) else {
            throw StoreError(
                .invalidValue, "half width \(halfWidth): expected 0 to \(Int(Self.halfWidthLimit)) metres")
        }
        guard points.allSatisfy({ abs($0.longitude) <= 720 }) else {
            throw StoreError(.invalidValue, "the path runs around the world more than once")
        }
        self.halfWidth = halfWidth
        path = points
    }
}

/// A place of a path, in degrees; the longitude goes on beyond ±180° where the path crosses the antimeridian.
struct PathPoint: Hashable, Sendable {
    var longitude, latitude: Double
}

extension PlaneVertex {
    init(longitude: Double, latitude: Double) throws {
        guard (-540...540).contains(longitude), (-90...90).contains(latitude) else {
            throw StoreError(
                .invalidValue,
                "longitude \(longitude), latitude \(latitude): expected degrees in -540...540 and -90...90")
        }
        self.init(x: PlaneGrid.x(longitude: longitude), y: PlaneGrid.y(latitude: latitude))
    }
}

/// A ring with its first corner at its end.
private func closed(_ ring: [GeoCoordinate]) -> [GeoCoordinate] { ring + ring.prefix(1) }

/// How many times around the world each place is from where it was written, so that edges go the shorter way.
private func turns(_ places: [GeoCoordinate]) -> [Int] {
    var turn = 0
    var result: [Int] = []
    result.reserveCapacity(places.count)
    for (index, place) in places.enumerated() {
        let way = index == 0 ? 0 : place.longitude - places[index - 1].longitude
        if way > 180, way < 360 { turn -= 1 }
        if way < -180, way > -360 { turn += 1 }
        result.append(turn)
    }
    return result
}
