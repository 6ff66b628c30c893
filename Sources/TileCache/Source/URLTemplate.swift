public import TileStore

/// The URL of every tile of a source: a text with placeholders, checked once and then filled in for each tile.
///
/// | placeholder | becomes |
/// |---|---|
/// | `{z}` `{x}` `{y}` | zoom, column, row from the north |
/// | `{-y}` | row from the south (TMS) |
/// | `{q}` | quadkey |
/// | `{bbox-epsg-3857}` | `west,south,east,north` in metres, for WMS |
/// | `{scale}` | pixels per point: `1`, `2`, … |
/// | `{r}` | nothing, `@2x`, `@3x`, … |
/// | `{s}` | one of the subdomains, always the same one for a tile: number (x + y) modulo their count, as Leaflet does |
/// | any other `{name}` | the value given for that name |
///
/// Schemes are `http`, `https` and `file`. Values are percent-encoded as UTF-8, except letters, digits and `-._~/`;
/// the template's own text is taken as it is, apart from characters that no URL has, which are percent-encoded.
/// Values never appear in errors, descriptions or mirrors, and neither do path and query, where people write tokens too.
public struct URLTemplate: Hashable, Sendable {
    /// How tiles are got.
    public let scheme: TileURL.Scheme
    /// Every host that it can ask, in lower case and without ports; empty for files.
    public let hosts: [String]

    let authorities: [String]
    private let subdomains: [String]
    private let literals: [UInt8]
    let pieces: [Piece]
    private let capacity: Int

    enum Piece: Hashable, Sendable {
        /// A stretch of `literals`.
        case literal(Range<Int>)
        case zoom, column, row, tmsRow, quadkey, box, scale, retina, subdomain

        /// How many bytes it takes at most.
        var limit: Int {
            switch self {
            case .literal(let range): range.count
            case .zoom, .scale: 2
            case .column, .row, .tmsRow: 9
            case .retina: 4
            case .quadkey: 28
            case .box: 4 * 26
            case .subdomain: 63
            }
        }
    }

    /// Checks and takes a template.
    ///
    /// - Parameters:
    ///   - template: The text, at most 8,192 bytes.
    ///   - subdomains: What `{s}` stands for: `["a", "b", "c"]`, say.
    ///   - values: What placeholders of other names stand for: an access token, say. Each must be used.
    /// - Throws: ``URLTemplateError``, saying where the template is wrong and how to mend it.
    public init(_ template: String, subdomains: [String] = [], values: [String: String] = [:]) throws(URLTemplateError)
    {
        self = try URLTemplate(
            URLTemplateParser.parse(template, subdomains: subdomains, values: values), subdomains)
    }

    /// The URL of one file that has all tiles.
    init(oneFile url: String, values: [String: String]) throws(URLTemplateError) {
        self = try URLTemplate(URLTemplateParser.parse(url, subdomains: [], values: values, isOneFile: true), [])
    }

    private init(_ parsed: URLTemplateParser.Result, _ subdomains: [String]) {
        scheme = parsed.scheme
        hosts = parsed.hosts
        authorities = parsed.authorities
        self.subdomains = subdomains
        literals = parsed.literals
        pieces = parsed.pieces
        capacity = parsed.pieces.reduce(0) { $0 + $1.limit }
    }

    /// The template of tiles that are nowhere.
    static let none = URLTemplate()

    private init() {
        scheme = .file
        hosts = []
        authorities = [""]
        subdomains = []
        literals = []
        pieces = []
        capacity = 0
    }

    /// Whether the URL depends on the tile's scale.
    public var usesScale: Bool {
        pieces.contains { piece in
            switch piece {
            case .scale, .retina: true
            default: false
            }
        }
    }

    /// The bytes of a literal piece.
    func bytes(of range: Range<Int>) -> ArraySlice<UInt8> { literals[range] }

    /// What `{s}` may stand for.
    var choices: [String] { subdomains }

    /// Which of the subdomains a tile is asked from.
    private func choice(_ tile: TileAddress, of count: Int) -> Int { count < 2 ? 0 : (tile.x + tile.y) % count }

    /// The URL of a tile.
    ///
    /// Costs one string.
    public func url(for tile: TileAddress) -> TileURL {
        let path = String(unsafeUninitializedCapacity: capacity) { buffer in
            var writer = ByteWriter(buffer: buffer)
            for piece in pieces {
                switch piece {
                case .literal(let range): writer.write(literals[range])
                case .zoom: writer.write(tile.z)
                case .column: writer.write(tile.x)
                case .row: writer.write(tile.y)
                case .tmsRow: writer.write(tile.tmsRow)
                case .quadkey: writer.write(tile.quadkey.utf8)
                case .box: writer.write(tile.mercatorBox.description.utf8)
                case .scale: writer.write(tile.scale)
                case .retina:
                    if tile.scale > 1 {
                        writer.write(CollectionOfOne(UInt8(ascii: "@")))
                        writer.write(tile.scale)
                        writer.write(CollectionOfOne(UInt8(ascii: "x")))
                    }
                case .subdomain: writer.write(subdomains[choice(tile, of: subdomains.count)].utf8)
                }
            }
            return writer.count
        }
        return TileURL(scheme: scheme, authority: authorities[choice(tile, of: authorities.count)], path: path)
    }
}

extension URLTemplate: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// Scheme and hosts; the rest may be secret.
    public var description: String {
        scheme == .file ? "file:///…" : "\(scheme.rawValue)://\(authorities.joined(separator: "|"))/…"
    }

    /// Scheme and hosts; the rest may be secret.
    public var debugDescription: String { description }

    /// Scheme and hosts; the rest may be secret.
    public var customMirror: Mirror {
        Mirror(self, children: ["scheme": scheme.rawValue, "hosts": hosts], displayStyle: .struct)
    }
}

/// Fills a string's storage; what does not fit is left out, so that nothing is written beyond it.
private struct ByteWriter {
    let buffer: UnsafeMutableBufferPointer<UInt8>
    var count = 0

    @inline(__always)
    mutating func write(_ bytes: some Collection<UInt8>) {
        let room = UnsafeMutableBufferPointer(rebasing: buffer[count...])
        guard bytes.count <= room.count else { return }
        count += room.update(fromContentsOf: bytes)
    }

    /// A number that is not negative.
    @inline(__always)
    mutating func write(_ number: Int) {
        var (rest, digits) = (number, 1)
        while rest >= 10 {
            rest /= 10
            digits += 1
        }
        guard count + digits <= buffer.count else { return }
        rest = number
        for place in stride(from: count + digits - 1, through: count, by: -1) {
            buffer[place] = UInt8(truncatingIfNeeded: 0x30 + rest % 10)
            rest /= 10
        }
        count += digits
    }
}
