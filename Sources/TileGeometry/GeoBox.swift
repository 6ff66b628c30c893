/// A box in degrees of longitude and latitude (WGS 84).
///
/// `west > east` means that it crosses the antimeridian.
public struct GeoBox: Hashable, Sendable, CustomStringConvertible {
    /// Its edges in degrees.
    public let west, south, east, north: Double

    /// Checks and takes a box.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue`` if a number is out of range or south is north.
    public init(west: Double, south: Double, east: Double, north: Double) throws {
        guard (-180...180).contains(west), (-180...180).contains(east), (-90...90).contains(south),
            (-90...90).contains(north), south <= north
        else {
            throw StoreError(
                .invalidValue,
                "box \(west),\(south),\(east),\(north): expected west,south,east,north in degrees with south <= north")
        }
        self.init(uncheckedWest: west, south: south, east: east, north: north)
    }

    init(uncheckedWest west: Double, south: Double, east: Double, north: Double) {
        self.west = west
        self.south = south
        self.east = east
        self.north = north
    }

    /// `west,south,east,north`.
    public var description: String { "\(west),\(south),\(east),\(north)" }

    /// The tiles of a zoom that the box touches: one rectangle, or two where it crosses the antimeridian.
    ///
    /// A box that ends exactly on a tile's edge does not touch the next tile; a box without extent touches one tile.
    /// Edges are rounded to 1/256 of a tile of zoom 28, so edges that were computed from tiles are exactly on theirs.
    public func spans(zoom: Int) throws -> [TileSpan] {
        guard (0...28).contains(zoom) else { throw StoreError(.invalidValue, "zoom \(zoom) is not in 0...28") }
        let start = PlaneGrid.x(longitude: west)
        let end = PlaneGrid.x(longitude: east)
        let above = PlaneGrid.y(latitude: north)
        let below = PlaneGrid.y(latitude: south)
        let top = PlaneGrid.tile(at: above, zoom: zoom)
        let rows = top...PlaneGrid.lastTile(endingAt: below, zoom: zoom, notBefore: top)
        let first = PlaneGrid.tile(at: start, zoom: zoom)
        let lastOfAll = (1 << zoom) - 1
        if west <= east {
            let last = PlaneGrid.lastTile(endingAt: end, zoom: zoom, notBefore: first)
            return [try TileSpan(zoom: zoom, columns: first...last, rows: rows)]
        }
        // Across the antimeridian. What begins or ends on it has nothing on the other side.
        if start == PlaneGrid.side {
            let last = PlaneGrid.lastTile(endingAt: end, zoom: zoom, notBefore: 0)
            return [try TileSpan(zoom: zoom, columns: 0...last, rows: rows)]
        }
        if end == 0 { return [try TileSpan(zoom: zoom, columns: first...lastOfAll, rows: rows)] }
        let last = PlaneGrid.lastTile(endingAt: end, zoom: zoom, notBefore: 0)
        if last + 1 >= first { return [try TileSpan(zoom: zoom, columns: 0...lastOfAll, rows: rows)] }
        return [
            try TileSpan(zoom: zoom, columns: first...lastOfAll, rows: rows),
            try TileSpan(zoom: zoom, columns: 0...last, rows: rows),
        ]
    }
}
