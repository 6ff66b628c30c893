#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The Web Mercator plane (EPSG:3857) in whole numbers: 2^36 by 2^36 cells, counted from the north-west corner.
///
/// A cell is 0.6 mm wide at the equator, a tile of zoom 28 is 256 cells. Every position is rounded to the nearest
/// corner of a cell. Floating point errs by less than 1/16,000 of a cell, so a tile's corner that was computed in
/// degrees comes back as exactly that corner, and what touches what is decided in whole numbers, without an epsilon.
enum PlaneGrid {
    /// How many bits a position has.
    static let bits = 36
    /// The number of cells from the west edge of the world to its east edge, and from north to south.
    static let side = 1 << bits
    /// The pyramid ends here, north and south: atan(sinh(π)) in degrees.
    static let maximumLatitude = 85.0511287798066

    /// How many bits of a position are within a tile.
    static func shift(_ zoom: Int) -> Int { bits - zoom }

    /// The position from the west edge; beyond the edges for longitudes that were unrolled across the antimeridian.
    static func x(longitude: Double) -> Int { rounded((longitude + 180) / 360) }

    /// The position from the north edge; latitudes beyond the pyramid are on its edge.
    static func y(latitude: Double) -> Int {
        if latitude >= maximumLatitude { return 0 }
        if latitude <= -maximumLatitude { return side }
        return min(max(rounded(0.5 - asinh(tan(latitude * .pi / 180)) / (2 * .pi)), 0), side)
    }

    /// A share of the world as a position, limited to eight worlds east or west; 0 for what is not a number.
    private static func rounded(_ share: Double) -> Int {
        guard share == share else { return 0 }
        return Int((min(max(share, -8), 8) * Double(side)).rounded())
    }

    /// The longitude of a share of the way from the west edge to the east edge.
    static func longitude(share: Double) -> Double { share * 360 - 180 }

    /// The latitude of a share of the way from the north edge to the south edge.
    static func latitude(share: Double) -> Double {
        let latitude = atan(sinh(.pi * (1 - 2 * share))) * 180 / .pi
        return min(max(latitude, -maximumLatitude), maximumLatitude)
    }

    /// The column or row of a position; the last one for the east or south edge of the world and beyond.
    static func tile(at position: Int, zoom: Int) -> Int { min(max(position >> shift(zoom), 0), (1 << zoom) - 1) }

    /// The last column or row that something touches which ends at a position.
    ///
    /// What ends on a tile's edge does not touch the next tile, and what has no extent touches one tile.
    static func lastTile(endingAt position: Int, zoom: Int, notBefore first: Int) -> Int {
        max(first, tile(at: position - 1, zoom: zoom))
    }
}
