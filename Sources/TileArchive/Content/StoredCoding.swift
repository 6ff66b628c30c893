import ContentCoding

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What the bytes of a stored tile are encoded with, by the name in its `Content-Encoding` (RFC 9110 §8.4.1).
enum StoredCoding {
    case none, gzip, brotli, zstd
    /// One of another name, or several.
    case other

    init(_ name: String?) {
        switch name?.lowercased() {
        case nil, "", "identity": self = .none
        case "gzip", "x-gzip": self = .gzip
        case "br": self = .brotli
        case "zstd": self = .zstd
        default: self = .other
        }
    }
}

extension Gzip {
    /// A tile's content; `nil` where the bytes are broken, or expand to more than any tile has.
    static func tile(_ data: Data) -> Data? { decode(data, limit: 64 << 20) }
}

extension ArchivedTile {
    /// Whether it is a picture that somebody compressed once more: what draws pictures does not expect that.
    package var isCompressedPicture: Bool {
        guard contentEncoding != nil, let mediaType, mediaType.hasPrefix("image/") else { return false }
        return StoredCoding(contentEncoding) == .gzip
    }

    /// The tile with a picture's bytes as they are; vector tiles stay as stored.
    ///
    /// - Throws: ``ArchiveError`` for a compressed picture that is broken.
    package func withPlainPicture() throws -> ArchivedTile {
        guard isCompressedPicture else { return self }
        guard let plain = Gzip.tile(data) else {
            throw ArchiveError(.damaged, "the tile is a compressed picture, and its gzip encoding is broken")
        }
        var tile = self
        tile.data = plain
        tile.contentEncoding = nil
        return tile
    }
}
