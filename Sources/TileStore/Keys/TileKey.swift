/// The name of one thing in the cache: a tile of a source, or another resource of it (a style, a font, a sprite).
///
/// The text form is `source/z/x/y[@2x][.ext]` for a tile and `source:path[?query][#variant]` for a resource; both are
/// parsed and printed exactly, so that `TileKey(key.description) == key`. Keys never become file names, and neither
/// URLs nor queries nor secrets are part of one.
public struct TileKey: Hashable, Sendable {
    /// What a key names within its source.
    public enum Address: Hashable, Sendable {
        /// A tile of the XYZ scheme: row 0 is in the north.
        case tile(TileAddress)
        /// Anything else that the source serves.
        case resource(ResourceAddress)
    }

    /// The source that serves it.
    public let source: SourceName
    /// What it is within the source.
    public let address: Address

    /// Makes the key of a tile.
    public init(source: SourceName, tile: TileAddress) {
        self.source = source
        self.address = .tile(tile)
    }

    /// Makes the key of another resource.
    public init(source: SourceName, resource: ResourceAddress) {
        self.source = source
        self.address = .resource(resource)
    }

    /// Makes the key of a tile from its parts.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidKey`` if a part is out of range.
    public init(
        source: String, z: Int, x: Int, y: Int, scale: Int = 1, format: String? = nil
    ) throws {
        self.init(
            source: try SourceName(source), tile: try TileAddress(z: z, x: x, y: y, scale: scale, format: format))
    }

    /// Parses the text form.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidKey``, saying what is wrong.
    public init(_ text: String) throws {
        var text = text
        self = try text.withUTF8 { try TileKey(utf8: UnsafeRawBufferPointer($0)) }
    }

    /// The tile's address, or `nil` for another resource.
    public var tile: TileAddress? {
        if case .tile(let tile) = address { tile } else { nil }
    }
}

/// The name of a tile source: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
public struct SourceName: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The name itself.
    public let description: String

    /// Checks and takes a name.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidKey``.
    public init(_ name: String) throws {
        guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isSourceByte), name != ".", name != ".." else {
            throw StoreError(
                .invalidKey, "source name \(quoted(name)) must be 1 to 64 characters of A-Z a-z 0-9 . _ -")
        }
        description = name
    }

    init(unchecked name: String) { description = name }

    /// Orders names by their bytes.
    public static func < (a: SourceName, b: SourceName) -> Bool { a.description < b.description }
}

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

    init(unchecked z: Int, _ x: Int, _ y: Int, _ scale: Int, _ format: String?) {
        self.z = z
        self.x = x
        self.y = y
        self.scale = scale
        self.format = format
    }
}

/// A resource that is not a tile: a path of the source, and fingerprints of what else selects it.
///
/// Query and request fields are never written down; only 128 bits of their salted SHA-256 are.
public struct ResourceAddress: Hashable, Sendable {
    /// The path, 1 to 1,024 printable ASCII characters without `?`, `#`, `"`, `\` and without `.` or `..` segments.
    public let path: String
    /// The fingerprint of the exact query, if there was one.
    public let query: Fingerprint?
    /// The fingerprint of the request fields that the response's `Vary` names, if any.
    public let variant: Fingerprint?

    /// Checks and takes an address.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidKey``.
    public init(path: String, query: Fingerprint? = nil, variant: Fingerprint? = nil) throws {
        guard (1...1024).contains(path.utf8.count), path.utf8.allSatisfy(isPathByte) else {
            throw StoreError(
                .invalidKey, "path \(quoted(path)) must be 1 to 1024 printable ASCII characters without ? # \" \\")
        }
        guard !path.split(separator: "/").contains(where: { $0 == ".." || $0 == "." }) else {
            throw StoreError(.invalidKey, "path \(quoted(path)) must not have . or .. segments")
        }
        self.path = path
        self.query = query
        self.variant = variant
    }
}

/// 128 bits of a salted SHA-256: tells values apart without keeping them.
public struct Fingerprint: Hashable, Sendable, CustomStringConvertible {
    let high: UInt64
    let low: UInt64

    /// 32 lower-case hexadecimal digits.
    public var description: String { hexadecimal(high) + hexadecimal(low) }
}

private func hexadecimal(_ value: UInt64) -> String {
    let digits = String(value, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
}

/// A value from outside as part of a message: bounded, with control characters made visible.
func quoted(_ text: String) -> String {
    let shown = text.unicodeScalars.prefix(80).map {
        $0.value < 32 || $0.value == 127 ? "\\u{\(String($0.value, radix: 16))}" : String($0)
    }
    return "\"" + shown.joined() + (text.unicodeScalars.count > 80 ? "…" : "") + "\""
}

@inline(__always) func isSourceByte(_ b: UInt8) -> Bool {
    (b >= 0x61 && b <= 0x7A) || (b >= 0x41 && b <= 0x5A) || (b >= 0x30 && b <= 0x39) || b == 0x2E || b == 0x5F
        || b == 0x2D
}

@inline(__always) func isFormatByte(_ b: UInt8) -> Bool {
    (b >= 0x61 && b <= 0x7A) || (b >= 0x30 && b <= 0x39)
}

@inline(__always) func isPathByte(_ b: UInt8) -> Bool {
    b > 0x20 && b < 0x7F && b != 0x3F && b != 0x23 && b != 0x22 && b != 0x5C
}
