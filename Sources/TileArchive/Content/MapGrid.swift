import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Columns and rows to degrees (EPSG:3857).
enum MapGrid {
    /// The box of a rectangle of tiles.
    static func box(zoom: Int, columns: ClosedRange<Int>, rows: ClosedRange<Int>) -> GeoBox? {
        let edge = Double(1 << zoom)
        func longitude(_ column: Int) -> Double { rounded(Double(column) / edge * 360 - 180) }
        func latitude(_ row: Int) -> Double {
            rounded(atan(sinh(.pi * (1 - 2 * Double(row) / edge))) * 180 / .pi)
        }
        // Tiles of the pyramid have edges in range and in order, so there always is a box; without one, metadata just say
        // nothing of bounds.
        return try? GeoBox(
            west: longitude(columns.lowerBound), south: latitude(rows.upperBound + 1),
            east: longitude(columns.upperBound + 1), north: latitude(rows.lowerBound))
    }

    /// To a ten-millionth of a degree, a centimetre: what PMTiles keeps.
    private static func rounded(_ degrees: Double) -> Double { (degrees * 1e7).rounded() / 1e7 }
}
