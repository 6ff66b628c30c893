import TileStore

/// A centre and the degrees around it: what MapKit calls an `MKCoordinateRegion`, as a value that can be compared.
struct MapRegion: Hashable, Sendable {
    var latitude, longitude, latitudeDelta, longitudeDelta: Double

    /// Whether a map view can show it; MapKit ends the app that asks it for anything else.
    var isValid: Bool {
        (-90...90).contains(latitude) && (-180...180).contains(longitude) && (0...180).contains(latitudeDelta)
            && (0...360).contains(longitudeDelta)
    }

    /// The box around it, cut off at the poles; across the antimeridian its west is east of its east.
    ///
    /// - Throws: `StoreError` for numbers that are none, or negative spans.
    func box() throws -> GeoBox {
        guard latitude.isFinite, longitude.isFinite, latitudeDelta >= 0, longitudeDelta >= 0 else {
            throw StoreError(
                .invalidValue,
                "region of \(latitudeDelta) by \(longitudeDelta) degrees around \(latitude), \(longitude): expected a "
                    + "place and spans of 0 or more")
        }
        let isWorld = longitudeDelta >= 360
        return try GeoBox(
            west: isWorld ? -180 : Self.wrapped(longitude - longitudeDelta / 2),
            south: min(max(latitude - latitudeDelta / 2, -90), 90),
            east: isWorld ? 180 : Self.wrapped(longitude + longitudeDelta / 2),
            north: min(max(latitude + latitudeDelta / 2, -90), 90))
    }

    /// The same meridian within -180 to 180; those are left as they are, to the last digit.
    private static func wrapped(_ longitude: Double) -> Double {
        guard !(-180...180).contains(longitude) else { return longitude }
        return longitude - ((longitude + 180) / 360).rounded(.down) * 360
    }
}

extension PlaneRect {
    /// The box of a rectangle of map points; across the antimeridian its west is east of its east.
    ///
    /// - Throws: `StoreError` for a rectangle that is empty, infinite or outside of the world.
    func box() throws -> GeoBox {
        guard x.isFinite, y.isFinite, width.isFinite, height.isFinite, width >= 0, height >= 0, y <= Self.world,
            maxY >= 0
        else {
            throw StoreError(
                .invalidValue, "map rectangle at \(x), \(y) of \(width) by \(height) points: it is no part of the world"
            )
        }
        let isWorld = width >= Self.world
        let west = PlanePoint(x: x, y: y).wrapped.x
        let end = west + width
        let north = try PlanePoint(x: 0, y: max(y, 0)).coordinate.latitude
        let south = try PlanePoint(x: 0, y: min(maxY, Self.world)).coordinate.latitude
        return try GeoBox(
            west: isWorld ? -180 : PlanePoint(x: west, y: 0).coordinate.longitude, south: south,
            east: isWorld ? 180 : PlanePoint(x: end > Self.world ? end - Self.world : end, y: 0).coordinate.longitude,
            north: north)
    }
}

/// A place in MapKit's plane, in map points.
struct PlanePoint: Hashable, Sendable {
    var x, y: Double

    /// The same place within the world's width.
    var wrapped: PlanePoint {
        guard !(0...PlaneRect.world).contains(x) else { return self }
        return PlanePoint(x: x - (x / PlaneRect.world).rounded(.down) * PlaneRect.world, y: y)
    }

    /// The place in degrees.
    ///
    /// - Throws: `StoreError` for numbers that are none.
    var coordinate: GeoCoordinate {
        get throws {
            let place = wrapped
            // A map point is a pixel of zoom 20.
            return try MercatorPoint(PixelPoint(x: place.x, y: place.y), zoom: 20).coordinate
        }
    }
}

extension RegionShape {
    /// A corridor along a line of map points; each step goes the shorter way around the world.
    ///
    /// - Throws: `StoreError` for a line without points or with more than a corridor may have, and for a width that is none.
    init(along line: some Sequence<PlanePoint>, width: Double) throws {
        self = .corridor(try GeoCorridor(path: line.map { try $0.coordinate }, halfWidth: width / 2))
    }
}
