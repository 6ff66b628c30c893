import TileStore

/// What a package will have in it: collected from the manifest, before any tile is read.
///
/// Contents are numbered by sorting on their digests, tiles are put into the package's order by sorting again; both in
/// bounded memory, whatever the number of tiles.
struct PackagePlan {
    /// A tile of the package, in the order of its place.
    struct Tile: Comparable, BitwiseCopyable {
        var tile: UInt64
        /// The number of its content.
        var content: UInt64
        /// The first bytes of its digest.
        var digest: UInt64
        /// Which of ``PackagePlan/variants``, and what is to be done to the bytes.
        var variant: UInt32
        var recoding: Recoding

        static func < (a: Tile, b: Tile) -> Bool { a.tile < b.tile }
    }

    /// What has to be done to bytes before they go into a package.
    enum Recoding: UInt32, BitwiseCopyable {
        case none
        /// Decompress a picture.
        case unpackPicture
        /// Compress, because all vector tiles of the package are.
        case compress
    }

    /// Scale and format of a tile's key.
    struct Variant: Hashable {
        var scale: Int
        var format: String?
    }

    /// A tile with its whole digest, for numbering.
    private struct Named: Comparable, BitwiseCopyable {
        var digest: BlobDigest
        var tile: UInt64
        var variant: UInt32
        var recoding: Recoding

        static func < (a: Named, b: Named) -> Bool {
            if a.digest != b.digest { return a.digest < b.digest }
            return a.recoding == b.recoding ? a.tile < b.tile : a.recoding.rawValue < b.recoding.rawValue
        }
    }

    private let named = RecordSorter<Named>()
    private(set) var variants: [Variant] = []
    private var variantNumbers: [Variant: UInt32] = [:]
    private var last: (z: Int, x: Int, y: Int)?
    private(set) var count = 0
    private(set) var contentCount: UInt64 = 0

    // What the package is.
    private(set) var zooms: ClosedRange<Int>?
    private var corner = (west: Int.max, north: Int.max, east: Int.min, south: Int.min)
    private(set) var formats: [String: Int] = [:]
    private var isCompressed = (vector: 0, plain: 0)

    /// Takes an entry in; entries come in the order of their keys.
    ///
    /// - Returns: `false` where another entry has its place in the package already.
    mutating func add(_ address: TileAddress, _ blob: BlobDigest, _ response: ResponseFields) throws -> Bool {
        if let last, last == (address.z, address.x, address.y) { return false }
        last = (address.z, address.x, address.y)
        let variant = Variant(scale: address.scale, format: address.format)
        var number = variantNumbers[variant]
        if number == nil {
            number = UInt32(variants.count)
            variantNumbers[variant] = number
            variants.append(variant)
        }
        let format = address.format ?? TileContent.format(ofMediaType: response.mediaType)
        formats[format, default: 0] += 1
        var recoding = Recoding.none
        if TileContent.isRaster(format: format) {
            if let encoding = response.contentEncoding, encoding.lowercased() != "identity" {
                recoding = .unpackPicture
            }
        } else if PlainPicture.isGzip(response.contentEncoding) {
            isCompressed.vector += 1
        } else if response.contentEncoding == nil {
            isCompressed.plain += 1
            recoding = .compress
        }
        widen(address)
        try named.add(
            Named(
                digest: blob, tile: TileID.number(z: address.z, x: address.x, y: address.y), variant: number ?? 0,
                recoding: recoding))
        count += 1
        return true
    }

    private mutating func widen(_ tile: TileAddress) {
        let low = zooms?.lowerBound ?? tile.z
        if tile.z > zooms?.upperBound ?? -1 {
            corner = (tile.x, tile.y, tile.x, tile.y)
            zooms = min(low, tile.z)...tile.z
        }
        guard tile.z == zooms?.upperBound else {
            zooms = min(low, tile.z)...(zooms?.upperBound ?? tile.z)
            return
        }
        corner = (
            min(corner.west, tile.x), min(corner.north, tile.y), max(corner.east, tile.x), max(corner.south, tile.y)
        )
    }

    /// The tiles with the numbers of their contents, ready to be visited in the package's order.
    ///
    /// - Parameter compressing: Whether plain vector tiles are compressed where others are: a package that can only say
    ///   so for all of its tiles.
    mutating func numbered(compressing: Bool) throws -> RecordSorter<Tile> {
        let compresses = compressing && isCompressed.vector > 0
        let tiles = RecordSorter<Tile>()
        var last: (digest: BlobDigest, recoding: Recoding)?
        var next: UInt64 = 0
        try named.forEach { tile in
            let recoding = tile.recoding == .compress && !compresses ? .none : tile.recoding
            if last?.digest != tile.digest || last?.recoding != recoding {
                last = (tile.digest, recoding)
                next += 1
            }
            try tiles.add(
                Tile(
                    tile: tile.tile, content: next - 1, digest: tile.digest.start, variant: tile.variant,
                    recoding: recoding))
        }
        contentCount = next
        return tiles
    }

    /// The area of the tiles of the largest zoom, in degrees.
    var bounds: GeoBox? {
        guard let zooms, corner.west <= corner.east else { return nil }
        return MapGrid.box(
            zoom: zooms.upperBound, columns: corner.west...corner.east, rows: corner.north...corner.south)
    }

    /// The format that most of the tiles have.
    var format: String? { formats.max { ($0.value, $1.key) < ($1.value, $0.key) }?.key }
}

extension BlobDigest {
    /// The first eight bytes: enough to tell that a tile's content has changed.
    var start: UInt64 { withUnsafeBytes(of: self) { $0.loadUnaligned(as: UInt64.self) } }
}
