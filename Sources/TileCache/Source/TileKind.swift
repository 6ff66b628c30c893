import ContentCoding

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What the tiles of a source are: decides which media types are asked for and which bodies are believed.
public enum TileKind: Hashable, Sendable {
    /// Pictures: PNG, JPEG, WebP, AVIF, GIF.
    ///
    /// Asked for without content coding; a body that begins like none of them is refused.
    case image
    /// Mapbox vector tiles, asked for with gzip; a body that begins like HTML or JSON is refused.
    case vector
    /// JSON, such as UTFGrid or GeoJSON tiles, asked for with gzip.
    case json
    /// Anything; only HTML is refused.
    case any

    /// The `Accept` field of requests.
    var accept: String {
        switch self {
        case .image: "image/avif,image/webp,image/png,image/jpeg,image/*;q=0.8"
        case .vector:
            "application/vnd.mapbox-vector-tile,application/x-protobuf,application/octet-stream;q=0.9,*/*;q=0.1"
        case .json: "application/json,application/geo+json,*/*;q=0.1"
        case .any: "*/*"
        }
    }

    /// The `Accept-Encoding` field of requests.
    var acceptEncoding: String {
        switch self {
        case .image: "identity"
        case .vector, .json, .any: "gzip"
        }
    }
}

extension TileKind {
    /// Whether bytes of unknown origin may be a tile of this kind.
    package func accepts(_ body: Data) -> Bool { objection(to: body, mediaType: nil, contentEncoding: nil) == nil }

    /// What is wrong with a body that claims to be a tile of this kind; `nil` if it may be one.
    ///
    /// Bytes decide, not the media type: servers label PNG as JPEG, and error pages as anything. A type that says HTML
    /// or plain text is believed, though, since nobody labels a tile so.
    func objection(to body: Data, mediaType: String?, contentEncoding: String?) -> String? {
        let signature = BodySignature(body)
        if signature == .empty { return "an empty body" }
        let type = mediaType?.prefix { $0 != ";" }.lowercased().filter { $0 != " " } ?? ""
        if type == "text/html" || type == "application/xhtml+xml" { return "a page (\(type))" }
        // A coded body begins with its coding, not with what it is.
        if contentEncoding != nil { return nil }
        if signature == .html { return "a page of HTML" }
        if signature == .xml, self != .any { return "a page of XML" }
        switch self {
        case .image:
            switch signature {
            case .png, .jpeg, .webp, .avif, .gif: return nil
            default: return type.hasPrefix("image/") && signature == .unknown ? nil : "no picture"
            }
        case .vector:
            return signature == .json ? "JSON instead of a vector tile" : nil
        case .json, .any:
            return nil
        }
    }
}
