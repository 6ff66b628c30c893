import ContentCoding

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What a tile's bytes are, told from their first ones.
///
/// What an archive or a file's name claims is asked only where bytes cannot tell.
package struct TileContent: Hashable, Sendable {
    /// The media type; `nil` where it is not known.
    package var mediaType: String?
    /// `gzip`, or `nil` for bytes as they are.
    package var contentEncoding: String?

    package static let vectorTile = "application/vnd.mapbox-vector-tile"

    package init(mediaType: String?, contentEncoding: String?) {
        self.mediaType = mediaType
        self.contentEncoding = contentEncoding
    }

    /// Looks at bytes.
    ///
    /// - Parameter format: The claim: a file's extension, or the `format` of an archive's metadata.
    package init(of data: Data, format: String?) {
        guard Gzip.isMarked(data) else {
            mediaType = Self.byBytes(data) ?? Self.byFormat(format, ofText: data)
            return
        }
        contentEncoding = "gzip"
        // A cheap look is enough: a picture that somebody compressed shows its magic at once.
        let inside = Gzip.start(of: data, count: 16) ?? Data()
        if Gzip.isMarked(inside) { contentEncoding = "gzip, gzip" }
        mediaType = Self.byBytes(inside) ?? Self.byFormat(format, ofText: inside)
    }

    /// Whether the bytes are a web page: a server's error page that somebody saved as a tile.
    package static func isWebPage(_ data: Data) -> Bool {
        // Most tiles show at their first byte that they are none.
        guard let first = data.first, first == 0x3C || first == 0xEF || first <= 0x20 else { return false }
        let start = String(decoding: data.prefix(64), as: UTF8.self).lowercased()
        let text = start.drop { $0.isWhitespace || $0 == "\u{FEFF}" }
        return text.hasPrefix("<!doctype html") || text.hasPrefix("<html")
    }

    /// The extension for a file of that type; `bin` where there is none.
    package static func format(ofMediaType mediaType: String?, data: Data = Data()) -> String {
        let essence = mediaType.map { type in
            type.prefix { $0 != ";" }.lowercased().filter { $0 != " " }
        }
        return essence.flatMap { formats[$0] } ?? byBytes(data).flatMap { formats[$0] } ?? "bin"
    }

    /// Whether a type is a picture, which programs expect to find uncompressed in a folder or an archive.
    package static func isRaster(format: String) -> Bool {
        ["png", "jpg", "jpeg", "webp", "gif", "avif"].contains(format)
    }

    private static let formats = [
        "image/png": "png", "image/jpeg": "jpg", "image/jpg": "jpg", "image/webp": "webp", "image/gif": "gif",
        "image/avif": "avif", vectorTile: "pbf", "application/x-protobuf": "pbf", "application/protobuf": "pbf",
        "application/json": "json", "application/geo+json": "geojson",
    ]

    private static func byBytes(_ data: Data) -> String? {
        data.withUnsafeBytes { bytes in
            func starts(_ text: StaticString, at offset: Int = 0) -> Bool {
                let count = text.utf8CodeUnitCount
                guard bytes.count >= offset + count else { return false }
                for i in 0..<count where bytes[offset + i] != text.utf8Start[i] { return false }
                return true
            }
            guard let first = bytes.first else { return nil }
            switch first {
            case 0x89:
                return bytes.prefix(8).elementsEqual([0x89, 0x50, 0x4E, 0x47, 13, 10, 26, 10]) ? "image/png" : nil
            case 0xFF: return bytes.prefix(3).elementsEqual([0xFF, 0xD8, 0xFF]) ? "image/jpeg" : nil
            case UInt8(ascii: "R"): return starts("RIFF") && starts("WEBP", at: 8) ? "image/webp" : nil
            case UInt8(ascii: "G"): return starts("GIF87a") || starts("GIF89a") ? "image/gif" : nil
            default: return starts("ftypavif", at: 4) || starts("ftypavis", at: 4) ? "image/avif" : nil
            }
        }
    }

    /// For what bytes cannot tell.
    ///
    /// A picture's extension proves nothing, since its bytes would have shown it.
    private static func byFormat(_ format: String?, ofText data: Data) -> String? {
        switch format {
        case "pbf", "mvt": return vectorTile
        case "json": return "application/json"
        case "geojson": return "application/geo+json"
        default:
            let first = data.first { $0 != 0x20 && $0 != 0x0A && $0 != 0x0D && $0 != 0x09 }
            if first == UInt8(ascii: "{") { return "application/json" }
            // A vector tile begins with a layer: field 3, of bytes.
            return first == 0x1A ? vectorTile : nil
        }
    }
}
