/// Which tile of the XYZ pyramid: zoom, column, row, and the variant (scale and format) where a source has several.
public struct TileAddress: Hashable, Sendable {
    /// The zoom, 0 to 28.
    public let z: Int
    /// The column from the west, 0 to 2^z - 1.
    public let x: Int
    /// The row from the north, 0 to 2^z - 1.
    public let y: Int
    /// Pixels per point: 1 for ordinary tiles, 2 for `@2x`; 1 to 8.
    public let scale: Int
    /// The file extension that tells formats of one source apart, such as `png`; `nil` where a source has only one.
    public let format: String?

    /// Checks and takes an address.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidKey``.
    public init(z: Int, x: Int, y: Int, scale: Int = 1, format: String? = nil) throws {
        guard (0...28).contains(z) else { throw StoreError(.invalidKey, "zoom \(z) is not in 0...28") }
        guard (0..<(1 << z)).contains(x), (0..<(1 << z)).contains(y) else {
            throw StoreError(.invalidKey, "tile \(z)/\(x)/\(y): column and row must be in 0..<\(1 << z)")
        }
        guard (1...8).contains(scale) else { throw StoreError(.invalidKey, "scale \(scale) is not in 1...8") }
        if let format, !((1...12).contains(format.utf8.count) && format.utf8.allSatisfy(isFormatByte)) {
            throw StoreError(.invalidKey, "format \(quoted(format)) must be 1 to 12 characters of a-z 0-9")
        }
        self.init(unchecked: z, x, y, scale, format)
    }

    /// Takes an address whose parts are known to be in range, such as one that the store has packed.
    @inlinable
    package init(unchecked z: Int, _ x: Int, _ y: Int, _ scale: Int, _ format: String?) {
        self.z = z
        self.x = x
        self.y = y
        self.scale = scale
        self.format = format
    }
}

/// Whether a byte may be part of a format's name.
@inlinable
@inline(__always)
package func isFormatByte(_ b: UInt8) -> Bool {
    (b >= 0x61 && b <= 0x7A) || (b >= 0x30 && b <= 0x39)
}
