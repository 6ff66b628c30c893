/// Tiles and the places that they show.
///
/// A tile has its west and its north edge, not its east and its south edge, which are the next tile's; the last column
/// and the last row have those too. So `try TileAddress(containing: tile.northWest, zoom: tile.z) == tile` for every
/// tile of every zoom. Places are rounded to 1/256 of a tile of zoom 28 (0.6 mm at the equator) for that.
extension TileAddress {
    /// The tile that shows a place.
    ///
    /// Latitudes beyond 85.0511°, where the pyramid ends, are in its first or last row.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidKey`` if zoom, scale or format is out of range.
    public init(containing place: GeoCoordinate, zoom: Int, scale: Int = 1, format: String? = nil) throws {
        // The checks are those of any address; only then is the zoom good for shifting.
        let checked = try TileAddress(z: zoom, x: 0, y: 0, scale: scale, format: format)
        self = checked.at(
            zoom,
            PlaneGrid.tile(at: PlaneGrid.x(longitude: place.longitude), zoom: zoom),
            PlaneGrid.tile(at: PlaneGrid.y(latitude: place.latitude), zoom: zoom))
    }

    /// Another tile of the same scale and format.
    package func at(_ z: Int, _ x: Int, _ y: Int) -> TileAddress { TileAddress(unchecked: z, x, y, scale, format) }

    /// The number of columns, and of rows, of its zoom.
    var side: Int { 1 << z }

    private func place(across: Double, down: Double) -> GeoCoordinate {
        GeoCoordinate(
            uncheckedLongitude: PlaneGrid.longitude(share: (Double(x) + across) / Double(side)),
            latitude: PlaneGrid.latitude(share: (Double(y) + down) / Double(side)))
    }

    /// Its north-west corner.
    public var northWest: GeoCoordinate { place(across: 0, down: 0) }

    /// Its centre in the Web Mercator plane, which is where its middle pixel is.
    public var center: GeoCoordinate { place(across: 0.5, down: 0.5) }

    /// What it shows, in degrees.
    ///
    /// `tile.box.spans(zoom: tile.z)` is this tile alone.
    public var box: GeoBox {
        let corner = place(across: 1, down: 1)
        let start = northWest
        return GeoBox(
            uncheckedWest: start.longitude, south: corner.latitude, east: corner.longitude, north: start.latitude)
    }

    /// What it shows, in metres of EPSG:3857; neighbours share the same numbers.
    public var mercatorBox: MercatorBox {
        // Shares of the way from the middle are exact, so edges are rounded once and are symmetrical.
        func east(_ edge: Int) -> Double { (2 * Double(edge) / Double(side) - 1) * MercatorPoint.extent }
        func north(_ edge: Int) -> Double { (1 - 2 * Double(edge) / Double(side)) * MercatorPoint.extent }
        return MercatorBox(west: east(x), south: north(y + 1), east: east(x + 1), north: north(y))
    }

    /// The tile of a lower zoom that shows what this one shows; itself for its own zoom, `nil` for others.
    public func ancestor(zoom: Int) -> TileAddress? {
        guard zoom >= 0, zoom <= z else { return nil }
        return at(zoom, x >> (z - zoom), y >> (z - zoom))
    }

    /// The tile of the zoom below that shows what this one shows; `nil` for the one of zoom 0.
    public var parent: TileAddress? { ancestor(zoom: z - 1) }

    /// The four tiles of the next zoom that show what this one shows, from the north-west to the south-east.
    ///
    /// Empty at zoom 28.
    public var children: [TileAddress] {
        guard z < 28 else { return [] }
        return [
            at(z + 1, 2 * x, 2 * y), at(z + 1, 2 * x + 1, 2 * y),
            at(z + 1, 2 * x, 2 * y + 1), at(z + 1, 2 * x + 1, 2 * y + 1),
        ]
    }

    /// Its row counted from the south, as TMS and MBTiles have it.
    public var tmsRow: Int { side - 1 - y }

    /// Checks and takes an address whose row is counted from the south, as TMS and MBTiles have it.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidKey``.
    public init(z: Int, x: Int, tmsRow: Int, scale: Int = 1, format: String? = nil) throws {
        guard (0...28).contains(z) else { throw StoreError(.invalidKey, "zoom \(z) is not in 0...28") }
        guard (0..<(1 << z)).contains(tmsRow) else {
            throw StoreError(.invalidKey, "tile \(z)/\(x), row \(tmsRow) from the south: it must be in 0..<\(1 << z)")
        }
        try self.init(z: z, x: x, y: (1 << z) - 1 - tmsRow, scale: scale, format: format)
    }
}
