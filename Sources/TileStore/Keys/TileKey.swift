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
    /// - Throws: `StoreError` with `StoreError.Code.invalidKey` if a part is out of range.
    public init(
        source: String, z: Int, x: Int, y: Int, scale: Int = 1, format: String? = nil
    ) throws {
        self.init(
            source: try SourceName(source), tile: try TileAddress(z: z, x: x, y: y, scale: scale, format: format))
    }

    /// Parses the text form.
    ///
    /// - Throws: `StoreError` with `StoreError.Code.invalidKey`, saying what is wrong.
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
    /// - Throws: `StoreError` with `StoreError.Code.invalidKey`.
    public init(_ name: String) throws {
        guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isSourceByte), name != ".", name != ".." else {
            throw StoreError(
                .invalidKey, "source name \(quoted(name)) must be 1 to 64 characters of A-Z a-z 0-9 . _ -")
        }
        description = name
    }

    package init(unchecked name: String) { description = name }

    /// Orders names by their bytes.
    public static func < (a: SourceName, b: SourceName) -> Bool { a.description < b.description }
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
    /// - Throws: `StoreError` with `StoreError.Code.invalidKey`.
    public init(path: String, query: Fingerprint? = nil, variant: Fingerprint? = nil) throws {
        guard (1...1024).contains(path.utf8.count), path.utf8.allSatisfy(isPathByte) else {
            throw StoreError(
                .invalidKey, "path \(quoted(path)) must be 1 to 1024 printable ASCII characters without ? # \" \\")
        }
        guard !hasDotSegment(path) else {
            throw StoreError(.invalidKey, "path \(quoted(path)) must not have . or .. segments")
        }
        self.path = path
        self.query = query
        self.variant = variant
    }

    private init(_ path: String, _ query: Fingerprint?) { (self.path, self.query, variant) = (path, query, nil) }

    /// What all its variants have in common.
    var forAllVariants: ResourceAddress { variant == nil ? self : ResourceAddress(path, query) }
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

@inline(__always) func isSourceByte(_ b: UInt8) -> Bool {
    (b >= 0x61 && b <= 0x7A) || (b >= 0x41 && b <= 0x5A) || (b >= 0x30 && b <= 0x39) || b == 0x2E || b == 0x5F
        || b == 0x2D
}

/// Whether a segment of an ASCII path is `.` or `..`.
private func hasDotSegment(_ path: String) -> Bool {
    var (dots, others) = (0, 0)
    for byte in path.utf8 {
        switch byte {
        case UInt8(ascii: "/"):
            if others == 0, dots == 1 || dots == 2 { return true }
            (dots, others) = (0, 0)
        case UInt8(ascii: "."): dots += 1
        default: others += 1
        }
    }
    return others == 0 && (dots == 1 || dots == 2)
}

@inline(__always) func isPathByte(_ b: UInt8) -> Bool {
    b > 0x20 && b < 0x7F && b != 0x3F && b != 0x23 && b != 0x22 && b != 0x5C
}
