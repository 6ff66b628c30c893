package import TileStore

/// The key of a tile within a set: zoom, quadkey, scale and format.
package struct SetKey: Hashable, Comparable, Sendable {
    /// The zoom, and below it the quadkey as a number.
    let place: UInt64
    private let scale: UInt8
    private let format: String?

    /// The place of a zoom's first tile.
    private static let zoomShift: UInt64 = 56

    /// Takes an address.
    package init(_ tile: TileAddress) {
        let packed = PackedTile(z: tile.z, x: tile.x, y: tile.y)
        place = UInt64(tile.z) << Self.zoomShift | packed.quadkey
        scale = UInt8(tile.scale)
        format = tile.format
    }

    private init(_ place: UInt64, _ scale: UInt8, _ format: String?) {
        (self.place, self.scale, self.format) = (place, scale, format)
    }

    /// The address.
    package var tile: TileAddress {
        let packed = PackedTile(z: zoom, quadkey: quadkey)
        return TileAddress(unchecked: zoom, packed.x, packed.y, Int(scale), format)
    }

    private var zoom: Int { Int(place >> Self.zoomShift) }
    private var quadkey: UInt64 { place & (1 << Self.zoomShift - 1) }

    /// The key so many tiles further along the curve of its zoom; `nil` beyond its end.
    func advanced(by count: Int) -> SetKey? {
        guard count >= 0, UInt64(count) < (1 << UInt64(2 * zoom)) - quadkey else { return nil }
        return SetKey(place + UInt64(count), scale, format)
    }

    /// Whether it is of the same place and scale as another key; the formats may differ.
    package func isAtPlace(of other: SetKey) -> Bool { place == other.place && scale == other.scale }

    /// Whether it differs from another key in nothing but its place.
    func isVariant(like other: SetKey) -> Bool { scale == other.scale && format == other.format }

    /// `z/x/y[@2x][.ext]`.
    package var text: String {
        let tile = tile
        return "\(tile.z)/\(tile.x)/\(tile.y)\(scale == 1 ? "" : "@\(scale)x")\(format.map { "." + $0 } ?? "")"
    }

    /// Parses `z/x/y[@2x][.ext]`; `nil` if it is not written in just this way, or out of range.
    package init?(_ text: String) {
        guard text.utf8.count <= 48 else { return nil }
        // One parser of keys is enough.
        guard let key = try? TileKey("s/" + text), let tile = key.tile else { return nil }
        self.init(tile)
    }

    /// By zoom, quadkey, scale, format.
    package static func < (a: SetKey, b: SetKey) -> Bool {
        if a.place != b.place { return a.place < b.place }
        return (a.scale, a.format ?? "") < (b.scale, b.format ?? "")
    }
}

/// A tile of a set: its key, the name and size of its bytes, and what they are.
package struct SetTile: Hashable, Sendable {
    package let key: SetKey
    package let blob: BlobDigest
    package let size: Int
    package let kind: SetKind

    package init(key: SetKey, blob: BlobDigest, size: Int, kind: SetKind) {
        self.key = key
        self.blob = blob
        self.size = size
        self.kind = kind
    }

    /// Whether the bytes are the same, and are the same kind of thing.
    func isContent(like other: SetTile) -> Bool { blob == other.blob && size == other.size && kind == other.kind }
}
