import ContentCoding
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
        /// Decompress.
        case unpack
        /// Compress, because all tiles of the package are.
        case compress
        /// Leave the tile out: the package cannot say how it is encoded.
        case leaveOut
    }

    /// How a tile is stored.
    private enum Form: UInt32, BitwiseCopyable, CaseIterable {
        /// Vector tiles, and what nobody knows.
        case plain, gzip
        /// Pictures and JSON, which programs expect plain.
        case picture, gzipPicture
        case brotli, zstd, other
    }

    /// How a package says what its tiles are encoded with.
    enum Packing: Equatable {
        /// Not at all: readers look at each tile, and know gzip.
        case eachTile
        /// Once for all tiles.
        case all(PMTilesCompression)
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
        var form: Form

        static func < (a: Named, b: Named) -> Bool {
            if a.digest != b.digest { return a.digest < b.digest }
            return a.form == b.form ? a.tile < b.tile : a.form.rawValue < b.form.rawValue
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
    private var forms: [Int] = Array(repeating: 0, count: Form.allCases.count)
    /// Where the first vector tile is that is said to be plain.
    private(set) var firstPlain: TileAddress?

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
        let isPlain = TileContent.isPlain(format: format)
        let form: Form =
            switch StoredCoding(response.contentEncoding) {
            case .none: isPlain ? .picture : .plain
            case .gzip: isPlain ? .gzipPicture : .gzip
            case .brotli: .brotli
            case .zstd: .zstd
            case .other: .other
            }
        forms[Int(form.rawValue)] += 1
        if form == .plain, firstPlain == nil { firstPlain = address }
        widen(address)
        try named.add(
            Named(
                digest: blob, tile: TileID.number(z: address.z, x: address.x, y: address.y), variant: number ?? 0,
                form: form))
        count += 1
        return true
    }

    /// What a package whose tiles are all encoded alike says of them: what most of them can be brought to.
    ///
    /// - Parameter isFirstGzip: Whether the bytes of ``firstPlain`` are gzip, as some servers send without saying so.
    func commonCompression(isFirstGzip: Bool) -> PMTilesCompression {
        func count(_ forms: Form...) -> Int { forms.reduce(0) { $0 + self.forms[Int($1.rawValue)] } }
        let known = count(.plain, .gzip, .picture, .gzipPicture)
        if count(.brotli) > max(known, count(.zstd)) { return .brotli }
        if count(.zstd) > known { return .zstd }
        return count(.gzip) > 0 || isFirstGzip ? .gzip : .none
    }

    private static func recoding(_ form: Form, _ packing: Packing) -> Recoding {
        switch (packing, form) {
        case (.eachTile, .gzipPicture), (.all(.none), .gzipPicture): .unpack
        case (.eachTile, .plain), (.eachTile, .gzip), (.eachTile, .picture): .none
        case (.all(.gzip), .plain), (.all(.gzip), .picture): .compress
        case (.all(.gzip), .gzip), (.all(.gzip), .gzipPicture): .none
        case (.all(.none), .plain), (.all(.none), .picture): .none
        case (.all(.brotli), .brotli), (.all(.zstd), .zstd): .none
        default: .leaveOut
        }
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
    mutating func numbered(_ packing: Packing) throws -> RecordSorter<Tile> {
        let tiles = RecordSorter<Tile>()
        var last: (digest: BlobDigest, recoding: Recoding)?
        var next: UInt64 = 0
        try named.forEach { tile in
            let recoding = Self.recoding(tile.form, packing)
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
