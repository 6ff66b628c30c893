#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A place in the Web Mercator plane (EPSG:3857), in metres from the equator and the meridian of Greenwich.
///
/// These metres are those of the projection: a metre on the ground is 1/cos(latitude) of them.
public struct MercatorPoint: Hashable, Sendable {
    /// The plane reaches so far from its middle in each direction: π times the radius of the sphere, 6,378,137 m.
    public static let extent = Double.pi * 6_378_137

    /// Metres to the east.
    public let x: Double
    /// Metres to the north.
    public let y: Double

    /// Checks and takes a place.
    ///
    /// What is at most a metre outside of the plane, as rounded numbers of other programs are, is moved to its edge.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue`` if a number is out of range or no number.
    public init(x: Double, y: Double) throws {
        let limit = Self.extent
        guard (-limit - 1...limit + 1).contains(x), (-limit - 1...limit + 1).contains(y) else {
            throw StoreError(.invalidValue, "\(x),\(y): expected metres of EPSG:3857 within \(limit) of 0")
        }
        self.init(unchecked: min(max(x, -limit), limit), min(max(y, -limit), limit))
    }

    init(unchecked x: Double, _ y: Double) {
        self.x = x
        self.y = y
    }

    /// Projects a place; latitudes beyond 85.0511° are on the plane's edge.
    public init(_ place: GeoCoordinate) {
        let limit = PlaneGrid.maximumLatitude
        let angle = min(max(place.latitude, -limit), limit) * .pi / 180
        let y = asinh(tan(angle)) / .pi * Self.extent
        self.init(unchecked: place.longitude / 180 * Self.extent, min(max(y, -Self.extent), Self.extent))
    }

    /// The place in degrees.
    public var coordinate: GeoCoordinate {
        let across = (x / Self.extent + 1) / 2
        let down = (1 - y / Self.extent) / 2
        return GeoCoordinate(
            uncheckedLongitude: min(max(PlaneGrid.longitude(share: across), -180), 180),
            latitude: PlaneGrid.latitude(share: down))
    }

    /// The place in pixels of a zoom, counted from the north-west corner of the world.
    ///
    /// - Parameters:
    ///   - zoom: 0 to 28.
    ///   - tileSize: The edge of a tile in pixels, 1 to 8,192; 256 and 512 are usual.
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue``.
    public func pixel(zoom: Int, tileSize: Int = 256) throws -> PixelPoint {
        let side = try PixelPoint.side(zoom: zoom, tileSize: tileSize)
        return PixelPoint(x: (x / Self.extent + 1) / 2 * side, y: (1 - y / Self.extent) / 2 * side)
    }

    /// The place of a pixel; pixels outside of the world are moved to its edge.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue``.
    public init(_ pixel: PixelPoint, zoom: Int, tileSize: Int = 256) throws {
        let side = try PixelPoint.side(zoom: zoom, tileSize: tileSize)
        guard pixel.x.isFinite, pixel.y.isFinite else {
            throw StoreError(.invalidValue, "pixel \(pixel.x),\(pixel.y) is no place")
        }
        let across = min(max(pixel.x / side, 0), 1)
        let down = min(max(pixel.y / side, 0), 1)
        self.init(unchecked: (2 * across - 1) * Self.extent, (1 - 2 * down) * Self.extent)
    }
}

/// A place in pixels of a zoom, counted from the north-west corner of the world.
public struct PixelPoint: Hashable, Sendable {
    /// Pixels to the east.
    public let x: Double
    /// Pixels to the south.
    public let y: Double

    /// Takes a place.
    public init(x: Double, y: Double) {
        self.x = x
        self.y = y
    }

    static func side(zoom: Int, tileSize: Int) throws -> Double {
        guard (0...28).contains(zoom) else { throw StoreError(.invalidValue, "zoom \(zoom) is not in 0...28") }
        guard (1...8192).contains(tileSize) else {
            throw StoreError(.invalidValue, "a tile of \(tileSize) pixels: expected 1 to 8192")
        }
        return Double(tileSize) * Double(1 << zoom)
    }
}

/// A box in metres of the Web Mercator plane (EPSG:3857).
public struct MercatorBox: Hashable, Sendable, CustomStringConvertible {
    /// Its edges in metres.
    public let west, south, east, north: Double

    /// `west,south,east,north`, as the `bbox` of a WMS request has it.
    public var description: String { "\(west),\(south),\(east),\(north)" }
}
