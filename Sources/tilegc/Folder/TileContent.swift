#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a tile's bytes are, told from their first ones; the file's extension is asked only where bytes cannot tell.
struct TileContent: Hashable {
    /// The media type; `nil` where it is not known.
    var mediaType: String?
    /// `gzip`, or `nil` for bytes as they are.
    var contentEncoding: String?

    static let vectorTile = "application/vnd.mapbox-vector-tile"

    init(of data: Data, format: String?) {
        if data.starts(with: [0x1F, 0x8B]) {
            contentEncoding = "gzip"
            mediaType = Self.byFormat(format)
        } else {
            mediaType = Self.byBytes(data) ?? Self.byFormat(format, ofText: data)
        }
    }

    /// Whether the bytes are a web page: a server's error page that somebody saved as a tile.
    static func isWebPage(_ data: Data) -> Bool {
        let start = String(decoding: data.prefix(64), as: UTF8.self).lowercased()
        let text = start.drop { $0.isWhitespace || $0 == "\u{FEFF}" }
        return text.hasPrefix("<!doctype html") || text.hasPrefix("<html")
    }

    /// The extension for a file of that type; `bin` where there is none.
    static func format(ofMediaType mediaType: String?, data: Data) -> String {
        let essence = mediaType.map { type in
            type.prefix { $0 != ";" }.lowercased().filter { $0 != " " }
        }
        return essence.flatMap { formats[$0] } ?? byBytes(data).flatMap { formats[$0] } ?? "bin"
    }

    /// Whether a type is a picture, which programs expect to find uncompressed in a folder.
    static func isRaster(format: String) -> Bool { ["png", "jpg", "jpeg", "webp", "gif", "avif"].contains(format) }

    private static let formats = [
        "image/png": "png", "image/jpeg": "jpg", "image/jpg": "jpg", "image/webp": "webp", "image/gif": "gif",
        "image/avif": "avif", vectorTile: "pbf", "application/x-protobuf": "pbf", "application/protobuf": "pbf",
        "application/json": "json", "application/geo+json": "geojson",
    ]

    private static func byBytes(_ data: Data) -> String? {
        let start = [UInt8](data.prefix(16))
        func text(_ range: Range<Int>) -> String? {
            start.count >= range.upperBound ? String(decoding: start[range], as: UTF8.self) : nil
        }
        if start.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) { return "image/png" }
        if start.starts(with: [0xFF, 0xD8, 0xFF]) { return "image/jpeg" }
        if text(0..<4) == "RIFF", text(8..<12) == "WEBP" { return "image/webp" }
        if text(0..<6) == "GIF87a" || text(0..<6) == "GIF89a" { return "image/gif" }
        if text(4..<12) == "ftypavif" || text(4..<12) == "ftypavis" { return "image/avif" }
        return nil
    }

    /// For what bytes cannot tell.
    ///
    /// A picture's extension proves nothing, since its bytes would have shown it.
    private static func byFormat(_ format: String?, ofText data: Data = Data()) -> String? {
        switch format {
        case "pbf", "mvt": return vectorTile
        case "json": return "application/json"
        case "geojson": return "application/geo+json"
        default:
            let first = data.first { $0 != 0x20 && $0 != 0x0A && $0 != 0x0D && $0 != 0x09 }
            return first == UInt8(ascii: "{") ? "application/json" : nil
        }
    }
}
