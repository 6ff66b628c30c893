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
            mediaType = Self.mediaType(of: data, format: format)
            return
        }
        contentEncoding = "gzip"
        // A cheap look is enough: a picture that somebody compressed shows its magic at once.
        let inside = Gzip.start(of: data, count: 16) ?? Data()
        if Gzip.isMarked(inside) { contentEncoding = "gzip, gzip" }
        mediaType = Self.mediaType(of: inside, format: format)
    }

    /// Whether the bytes are a web page: a server's error page that somebody saved as a tile.
    package static func isWebPage(_ data: Data) -> Bool {
        BodySignature(data) == .html
    }

    /// The extension for a file of that type; `bin` where there is none.
    package static func format(ofMediaType mediaType: String?, data: Data = Data()) -> String {
        let essence = mediaType.map { type in
            type.prefix { $0 != ";" }.lowercased().filter { $0 != " " }
        }
        return essence.flatMap { formats[$0] } ?? BodySignature(data).pictureType.flatMap { formats[$0] } ?? "bin"
    }

    /// Whether a media type names a format that tiles have; `application/octet-stream` and `text/plain` say nothing about a tile.
    package static func isFormat(mediaType: String) -> Bool {
        formats[mediaType] != nil || format(ofMediaType: mediaType) != "bin"
    }

    /// What a tile is by the type that it was stored with, where that names a format, else by its bytes, else by the type after all.
    ///
    /// Servers that do not know a file's type call it `text/plain` or `application/octet-stream`.
    /// - Parameter format: The claim, as above.
    package static func mediaType(stored: String?, of data: Data, format: String?) -> String? {
        if let stored, isFormat(mediaType: stored) { return stored }
        return TileContent(of: data, format: format).mediaType ?? stored
    }

    /// Whether programs expect to find a format uncompressed in a folder or an archive: pictures and JSON.
    package static func isPlain(format: String) -> Bool {
        ["png", "jpg", "jpeg", "webp", "gif", "avif", "json", "geojson"].contains(format)
    }

    private static let formats = [
        "image/png": "png", "image/jpeg": "jpg", "image/jpg": "jpg", "image/webp": "webp", "image/gif": "gif",
        "image/avif": "avif", vectorTile: "pbf", "application/x-protobuf": "pbf", "application/protobuf": "pbf",
        "application/json": "json", "application/geo+json": "geojson",
    ]

    /// By the bytes, else by the claim.
    ///
    /// A picture's extension proves nothing, since its bytes would have shown it.
    private static func mediaType(of data: Data, format: String?) -> String? {
        let signature = BodySignature(data)
        if let picture = signature.pictureType { return picture }
        switch format {
        case "pbf", "mvt": return vectorTile
        case "json": return "application/json"
        case "geojson": return "application/geo+json"
        default:
            if signature == .json { return "application/json" }
            // A vector tile begins with a layer: field 3, of bytes.
            return data.first == 0x1A ? vectorTile : nil
        }
    }
}
