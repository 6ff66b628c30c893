#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Longitude and latitude to columns and rows of the XYZ pyramid (EPSG:3857).
enum WebMercator {
    /// The pyramid ends here, north and south.
    static let maximumLatitude = 85.05112877980659

    private static func clamped(_ value: Double, _ zoom: Int) -> Int {
        let edge = 1 << zoom
        return value >= Double(edge) ? edge - 1 : value <= 0 ? 0 : Int(value)
    }

    /// The position from the west edge in tiles.
    static func across(longitude: Double, zoom: Int) -> Double { (longitude + 180) / 360 * Double(1 << zoom) }

    /// The position from the north edge in tiles.
    static func down(latitude: Double, zoom: Int) -> Double {
        let limited = min(max(latitude, -maximumLatitude), maximumLatitude) * .pi / 180
        return (1 - asinh(tan(limited)) / .pi) / 2 * Double(1 << zoom)
    }

    static func column(longitude: Double, zoom: Int) -> Int { clamped(across(longitude: longitude, zoom: zoom), zoom) }
    static func row(latitude: Double, zoom: Int) -> Int { clamped(down(latitude: latitude, zoom: zoom), zoom) }

    /// The last column that a box ending at a longitude touches.
    static func lastColumn(longitude: Double, zoom: Int, notBefore first: Int) -> Int {
        let position = across(longitude: longitude, zoom: zoom)
        return max(first, clamped(position.rounded(.up) - 1, zoom))
    }

    /// The last row that a box ending at a latitude touches.
    static func lastRow(latitude: Double, zoom: Int, notAbove first: Int) -> Int {
        let position = down(latitude: latitude, zoom: zoom)
        return max(first, clamped(position.rounded(.up) - 1, zoom))
    }
}
