/// Quadkeys: a digit a zoom, each saying which quarter of the tile above (Bing Maps Tile System).
extension TileAddress {
    /// Its quadkey: as many digits of `0123` as its zoom; empty for zoom 0.
    public var quadkey: String {
        String(unsafeUninitializedCapacity: z) { digits in
            for index in 0..<z {
                let bit = z - 1 - index
                digits[index] = UInt8(truncatingIfNeeded: 0x30 + (x >> bit & 1) + (y >> bit & 1) * 2)
            }
            return z
        }
    }

    /// Takes the address that a quadkey names.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidKey``, saying which character is wrong.
    public init(quadkey: String, scale: Int = 1, format: String? = nil) throws {
        guard quadkey.utf8.count <= 28 else {
            throw StoreError(.invalidKey, "quadkey \(quoted(quadkey)) has more than 28 digits")
        }
        var (x, y) = (0, 0)
        for (index, digit) in quadkey.utf8.enumerated() {
            guard (0x30...0x33).contains(digit) else {
                throw StoreError(
                    .invalidKey, "quadkey \(quoted(quadkey)): character \(index + 1) is none of the digits 0 1 2 3")
            }
            x = x << 1 | Int(digit & 1)
            y = y << 1 | Int(digit >> 1 & 1)
        }
        try self.init(z: quadkey.utf8.count, x: x, y: y, scale: scale, format: format)
    }
}
