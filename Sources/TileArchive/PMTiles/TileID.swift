/// The place of a tile in PMTiles' order: zoom by zoom, along a Hilbert curve within each.
///
/// https://github.com/protomaps/PMTiles/blob/main/spec/v3/spec.md, "Entries". Neighbours on the curve are neighbours on
/// the map, so that what is looked at together lies together.
package enum TileID {
    /// The number of the first tile of a zoom: how many tiles the zooms above it have.
    @inline(__always)
    package static func first(ofZoom zoom: Int) -> UInt64 { ((1 << UInt64(2 * zoom)) - 1) / 3 }

    /// One more than the number of the last tile that a cache can hold: zoom 28 is the last.
    package static let end = first(ofZoom: 29)

    /// One more than the last number that the format has: zoom 31 is its last.
    package static let formatEnd: UInt64 = 0x5555_5555_5555_5555

    /// The number of a tile; zoom, column and row must be in range.
    package static func number(z: Int, x: Int, y: Int) -> UInt64 {
        var (x, y) = (UInt64(x), UInt64(y))
        var place: UInt64 = 0
        var side: UInt64 = z > 0 ? 1 << UInt64(z - 1) : 0
        while side > 0 {
            let right: UInt64 = x & side != 0 ? 1 : 0
            let below: UInt64 = y & side != 0 ? 1 : 0
            place &+= side &* side &* ((3 &* right) ^ below)
            rotate(&x, &y, side, right, below)
            side >>= 1
        }
        return first(ofZoom: z) &+ place
    }

    /// The tile of a number; `nil` beyond zoom 28.
    package static func tile(_ number: UInt64) -> (z: Int, x: Int, y: Int)? {
        guard number < end else { return nil }
        // 3n + 1 lies in [4^z, 4^(z+1)).
        let z = (63 - (3 &* number &+ 1).leadingZeroBitCount) / 2
        var place = number &- first(ofZoom: z)
        var (x, y): (UInt64, UInt64) = (0, 0)
        var side: UInt64 = 1
        while side < 1 << UInt64(z) {
            let right = (place >> 1) & 1
            let below = (place ^ right) & 1
            rotate(&x, &y, side, right, below)
            x &+= side &* right
            y &+= side &* below
            place >>= 2
            side <<= 1
        }
        return (z, Int(x), Int(y))
    }

    /// Turns the quadrant so that the curve through it begins and ends where its neighbours need it.
    @inline(__always)
    private static func rotate(_ x: inout UInt64, _ y: inout UInt64, _ side: UInt64, _ right: UInt64, _ below: UInt64) {
        guard below == 0 else { return }
        if right == 1 {
            x = (side &- 1) &- (x & (side &- 1))
            y = (side &- 1) &- (y & (side &- 1))
        }
        swap(&x, &y)
    }
}
