/// A rectangle of tiles of one zoom, both ends included.
public struct TileSpan: Hashable, Sendable {
    /// The zoom, 0 to 28.
    public let zoom: Int
    /// The columns.
    public let columns: ClosedRange<Int>
    /// The rows, from the north.
    public let rows: ClosedRange<Int>

    /// Checks and takes a rectangle.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue`` if it is outside of its zoom.
    public init(zoom: Int, columns: ClosedRange<Int>, rows: ClosedRange<Int>) throws {
        guard (0...28).contains(zoom), columns.lowerBound >= 0, rows.lowerBound >= 0, columns.upperBound < 1 << zoom,
            rows.upperBound < 1 << zoom
        else {
            throw StoreError(
                .invalidValue, "tiles \(columns) x \(rows) are not all in zoom \(zoom) (zooms are 0 to 28)")
        }
        self.zoom = zoom
        self.columns = columns
        self.rows = rows
    }

    /// How many tiles it covers.
    public var count: Int { columns.count * rows.count }

    /// Whether it covers a tile.
    @inline(__always)
    public func contains(z: Int, x: Int, y: Int) -> Bool { z == zoom && columns.contains(x) && rows.contains(y) }
}

/// A named set of tiles of one source that is kept whatever the limits say, on an account of its own.
public struct PinnedRegion: Hashable, Sendable {
    /// Its name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///
    /// Pinning another region of that name replaces it.
    public let name: String
    /// The source whose tiles it pins, in every scale and format.
    public let source: SourceName
    /// What it covers, at most 65,536 rectangles.
    public let spans: [TileSpan]
    /// The box that it was made from, in degrees, for people; the spans decide.
    public let box: GeoBox?

    /// Checks and takes a region.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue``.
    public init(name: String, source: SourceName, spans: [TileSpan], box: GeoBox? = nil) throws {
        guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isSourceByte) else {
            throw StoreError(
                .invalidValue, "region name \(quoted(name)) must be 1 to 64 characters of A-Z a-z 0-9 . _ -")
        }
        guard (1...65536).contains(spans.count) else {
            throw StoreError(.invalidValue, "region \(name) has \(spans.count) rectangles; 1 to 65536 are possible")
        }
        self.name = name
        self.source = source
        self.spans = spans
        self.box = box
    }

    /// How many tiles it covers, those that overlap counted once for each rectangle; `Int.max` if they are more.
    public var tileCount: Int {
        spans.reduce(0) { sum, span in
            let (total, overflow) = sum.addingReportingOverflow(span.count)
            return overflow ? Int.max : total
        }
    }

    /// Whether it covers a tile.
    public func contains(z: Int, x: Int, y: Int) -> Bool {
        spans.contains { $0.contains(z: z, x: x, y: y) }
    }
}

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
