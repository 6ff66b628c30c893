#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A shape as edges in the plane: several parts, each by the even-odd rule, which together cover what any one covers.
struct Outline: Sendable {
    /// From north to south by where they begin.
    private(set) var edges: [PlaneEdge] = []
    private(set) var parts = 0

    /// How many edges a shape may have: some 40 MB.
    static let edgeLimit = 1_000_000

    init(_ shape: RegionShape) throws {
        try add(shape)
        guard !edges.isEmpty else { throw StoreError(.invalidValue, "the shape is a union of no shapes") }
        edges.sort { $0.y0 < $1.y0 }
    }

    private mutating func add(_ shape: RegionShape) throws {
        switch shape {
        case .box(let box): try add([Self.ring(of: box)])
        case .polygon(let polygon): try add(polygon.rings)
        case .corridor(let corridor): for ring in corridor.pieces() { try add([ring]) }
        case .union(let shapes): for shape in shapes { try add(shape) }
        }
    }

    /// Adds a part.
    private mutating func add(_ rings: [[PlaneVertex]]) throws {
        for ring in rings {
            guard var last = ring.last else { continue }
            for vertex in ring {
                if vertex != last { edges.append(PlaneEdge(from: last, to: vertex, part: parts)) }
                last = vertex
            }
        }
        parts += 1
        guard edges.count <= Self.edgeLimit else {
            throw StoreError(
                .invalidValue, "the shape has more than \(Self.edgeLimit) edges: simplify it or divide the region")
        }
    }

    /// A box as a ring: at least a cell wide and high, so that it covers a tile as ``GeoBox/spans(zoom:)`` says.
    private static func ring(of box: GeoBox) -> [PlaneVertex] {
        let side = PlaneGrid.side
        var west = PlaneGrid.x(longitude: box.west)
        var east = PlaneGrid.x(longitude: box.east)
        if box.west > box.east { east += side } else if west == side { west = side - 1 }
        east = max(east, west + 1)
        let north = min(PlaneGrid.y(latitude: box.north), side - 1)
        let south = max(PlaneGrid.y(latitude: box.south), north + 1)
        return [
            PlaneVertex(x: west, y: north), PlaneVertex(x: east, y: north),
            PlaneVertex(x: east, y: south), PlaneVertex(x: west, y: south),
        ]
    }
}

extension GeoCorridor {
    /// The ground is an ellipsoid, the plane that of a sphere: the most that a metre grows by beyond 1/cos(latitude),
    /// which is on a meridian at the equator.
    private static let ellipsoid = 1.00674
    /// The least radius of curvature of a meridian (WGS 84), in metres: the most degrees that a metre can span.
    private static let leastRadius = 6_335_439.0
    /// A disc is drawn as a polygon of so many corners around it.
    private static let discCorners = 12

    /// Convex rings that together cover everything within the half width of the path.
    ///
    /// Metres grow towards the poles, so the path is cut into pieces of at most 1/256 of the world's height, over
    /// which they grow by 2.5 %, and each piece has the width of its end that is nearer to a pole.
    func pieces() -> [[PlaneVertex]] {
        let points = path.map(planar)
        guard points.count > 1 else { return points.map { piece(from: $0, to: $0) } }
        var step = 1.0 / 256
        func parts(_ index: Int) -> Int {
            max(1, Int((abs(points[index].y - points[index - 1].y) / step).rounded(.up)))
        }
        while (1..<points.count).reduce(0, { $0 + parts($1) }) > 2 * Self.placeLimit { step *= 2 }
        var result: [[PlaneVertex]] = []
        for index in 1..<points.count {
            let (a, b) = (points[index - 1], points[index])
            let count = parts(index)
            func point(_ number: Int) -> PlanePoint {
                if number == 0 { return a }
                if number == count { return b }
                let share = Double(number) / Double(count)
                return PlanePoint(x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share)
            }
            for number in 0..<count { result.append(piece(from: point(number), to: point(number + 1))) }
        }
        return result
    }

    /// In shares of the world; unlike tiles, paths go on beyond the pyramid's ends, up to 89.9°.
    private func planar(_ point: PathPoint) -> PlanePoint {
        let angle = min(max(point.latitude, -89.9), 89.9) * .pi / 180
        return PlanePoint(x: (point.longitude + 180) / 360, y: 0.5 - asinh(tan(angle)) / (2 * .pi))
    }

    private func piece(from a: PlanePoint, to b: PlanePoint) -> [PlaneVertex] {
        func angle(_ y: Double) -> Double { atan(sinh(.pi * (1 - 2 * y))) }
        func height(_ angle: Double) -> Double {
            0.5 - asinh(tan(min(max(angle, -1.5690), 1.5690))) / (2 * .pi)
        }
        let (north, south) = (angle(min(a.y, b.y)), angle(max(a.y, b.y)))
        let reach = halfWidth / Self.leastRadius
        let extreme = max(abs(north), abs(south)) + reach
        // Around a pole everything is within reach, in whatever direction.
        let growth = extreme < 1.5690 ? 1 / cos(extreme) : .infinity
        let cell = 1 / Double(PlaneGrid.side)
        // Two cells for the rounding of the corners.
        let radius = min(halfWidth * Self.ellipsoid * growth / (2 * MercatorPoint.extent), 1.5) + 2 * cell
        let corner = radius / cos(.pi / Double(Self.discCorners))
        var disc: [PlanePoint] = []
        for number in 0..<Self.discCorners {
            let turn = 2 * .pi * Double(number) / Double(Self.discCorners)
            disc.append(PlanePoint(x: corner * cos(turn), y: corner * sin(turn)))
        }
        let hull = convexHull(
            disc.map { PlanePoint(x: a.x + $0.x, y: a.y + $0.y) }
                + disc.map { PlanePoint(x: b.x + $0.x, y: b.y + $0.y) })
        // To the north and south a metre is known better.
        let top = height(north + reach * 1.000001) - 2 * cell
        let bottom = height(south - reach * 1.000001) + 2 * cell
        let band = clipped(clipped(hull, by: { $0.y - top }), by: { bottom - $0.y })
        return band.map {
            PlaneVertex(
                x: Int(($0.x * Double(PlaneGrid.side)).rounded()), y: Int(($0.y * Double(PlaneGrid.side)).rounded()))
        }
    }
}

/// A place in the plane in shares of the world.
private struct PlanePoint {
    var x, y: Double
}

/// The convex hull of some points (Andrew's monotone chain).
private func convexHull(_ points: [PlanePoint]) -> [PlanePoint] {
    let sorted = points.sorted { ($0.x, $0.y) < ($1.x, $1.y) }
    func chain(_ points: some Sequence<PlanePoint>) -> [PlanePoint] {
        var hull: [PlanePoint] = []
        for point in points {
            while let b = hull.last, let a = hull.dropLast().last,
                (b.x - a.x) * (point.y - a.y) - (b.y - a.y) * (point.x - a.x) <= 0
            {
                hull.removeLast()
            }
            hull.append(point)
        }
        return hull.dropLast()
    }
    return chain(sorted) + chain(sorted.reversed())
}

/// The share of a convex ring where a linear function is not negative.
private func clipped(_ ring: [PlanePoint], by side: (PlanePoint) -> Double) -> [PlanePoint] {
    var result: [PlanePoint] = []
    guard var last = ring.last else { return [] }
    for point in ring {
        let (before, now) = (side(last), side(point))
        if (before < 0) != (now < 0) {
            let share = before / (before - now)
            result.append(PlanePoint(x: last.x + (point.x - last.x) * share, y: last.y + (point.y - last.y) * share))
        }
        if now >= 0 { result.append(point) }
        last = point
    }
    return result
}
