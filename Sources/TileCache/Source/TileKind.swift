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

/// What the first bytes of a body say that it is.
enum BodySignature: Hashable, Sendable {
    case png, jpeg, webp, avif, gif, gzip, html, xml, json, empty, unknown

    /// Looks at the first bytes, which cost nothing to look at and do not lie as media types do.
    init(_ body: Data) {
        let head = body.prefix(512)
        func begins(_ bytes: [UInt8], at offset: Int = 0) -> Bool {
            head.dropFirst(offset).prefix(bytes.count).elementsEqual(bytes)
        }
        if head.isEmpty {
            self = .empty
        } else if begins([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) {
            self = .png
        } else if begins([0xFF, 0xD8, 0xFF]) {
            self = .jpeg
        } else if begins(Array("RIFF".utf8)), begins(Array("WEBP".utf8), at: 8) {
            self = .webp
        } else if begins(Array("ftyp".utf8), at: 4),
            begins(Array("avi".utf8), at: 8) || begins(Array("mif1".utf8), at: 8)
        {
            self = .avif
        } else if begins(Array("GIF8".utf8)) {
            self = .gif
        } else if begins([0x1F, 0x8B]) {
            self = .gzip
        } else {
            self = Self.text(head)
        }
    }

    private static func text(_ head: Data) -> BodySignature {
        var rest = head
        if rest.prefix(3).elementsEqual([0xEF, 0xBB, 0xBF]) { rest = rest.dropFirst(3) }
        rest = rest.drop { $0 == 0x20 || $0 == 0x09 || $0 == 0x0A || $0 == 0x0D }
        let lower = rest.prefix(16).map { (0x41...0x5A).contains($0) ? $0 + 0x20 : $0 }
        func begins(_ marks: [String]) -> Bool { marks.contains { lower.starts(with: Array($0.utf8)) } }
        if begins(["<!doctype html", "<html", "<head", "<body", "<title", "<script", "<p>", "<h1"]) { return .html }
        if begins(["<?xml", "<!--", "<!doctype"]) { return .xml }
        if let first = lower.first, first == UInt8(ascii: "{") || first == UInt8(ascii: "[") { return .json }
        return .unknown
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
