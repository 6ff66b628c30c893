import ContentCoding
import HTTPCaching

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What the tiles of a source are: decides which media types are asked for and which bodies are believed.
public enum TileKind: Hashable, Sendable {
    /// Pictures: PNG, JPEG, WebP, AVIF, GIF.
    ///
    /// Asked for without content coding; a body that begins like none of them, or breaks off, is refused.
    case image
    /// Mapbox vector tiles, asked for with gzip; text, HTML, JSON and pictures are refused, within gzip too, and so is gzip that
    /// breaks off.
    case vector
    /// JSON, such as UTFGrid or GeoJSON tiles, asked for with gzip; HTML, XML, pictures and plain text are refused.
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
    /// Bytes decide, not the media type: servers label PNG as JPEG, and error pages as anything. A type that says HTML is
    /// believed, though, since nobody labels a tile so.
    /// Gzip is decompressed to its end, so that no part of a tile is stored: that takes some time for a large one.
    /// - Parameter isWhole: Whether to look into gzip, and whether it or a picture breaks off, too.
    package func objection(
        to body: Data, mediaType: String?, contentEncoding: String?, isWhole: Bool = true
    ) -> String? {
        if body.isEmpty { return "an empty body" }
        let type = mediaType.map(Self.withoutParameters) ?? ""
        if type == "text/html" || type == "application/xhtml+xml" { return "a page (\(type))" }
        let codings = contentEncoding == nil ? [] : ContentCodings.applied(contentEncoding)
        let signature = BodySignature(body)
        if signature == .gzip, self != .image || codings.contains(where: Self.gzipNames.contains) {
            // Whether named or not, and applied twice by some: what counts is what is inside.
            guard isWhole else { return nil }
            var gzip = Gzip.look(through: body, keeping: Self.lookedAt, limit: Self.largestContent)
            if gzip.end == .whole, Gzip.isMarked(gzip.start), let once = Gzip.decode(body, limit: Self.largestPicture) {
                gzip = Gzip.look(through: once, keeping: Self.lookedAt, limit: Self.largestContent)
            }
            if gzip.start.isEmpty, gzip.end == .broken { return "gzip that holds nothing" }
            let inside = BodySignature(gzip.start)
            if let objection = content(inside, gzip.start, type) { return objection + " in gzip" }
            switch gzip.end {
            case .broken: return "gzip that breaks off or is damaged"
            case .tooLong: return "gzip that expands to more than \(Self.largestContent >> 20) MiB"
            case .whole: break
            }
            // Hardly anybody compresses pictures, so that looking at the whole of one costs little.
            if inside.pictureType != nil, Self.isCutShort(body, inside) { return "a picture in gzip that breaks off" }
            return nil
        }
        // What is in other codings cannot be seen. A body that begins as a page, a document or a picture has none of them,
        // whatever its header says.
        let isHidden = codings.contains { ContentCodings.registered.contains($0) && !Self.gzipNames.contains($0) }
        if isHidden, signature != .html, signature != .xml, signature.pictureType == nil { return nil }
        if let objection = content(signature, body, type) { return objection }
        return isWhole && signature.isCutShort(body) ? "a picture that breaks off" : nil
    }

    /// A media type in lower case, without parameters.
    private static func withoutParameters(_ type: String) -> String {
        // As nearly all are written.
        if type.utf8.allSatisfy({ (33...126).contains($0) && $0 != UInt8(ascii: ";") && !(65...90).contains($0) }) {
            return type
        }
        return type.prefix { $0 != ";" }.lowercased().filter { $0 != " " }
    }

    /// Whether a compressed picture, or its gzip, ends too soon; also of one that nobody would decompress.
    private static func isCutShort(_ body: Data, _ signature: BodySignature) -> Bool {
        var plain = body
        for _ in 0..<2 where Gzip.isMarked(plain) {
            guard let whole = Gzip.decode(plain, limit: largestPicture) else { return true }
            plain = whole
        }
        return signature.isCutShort(plain)
    }

    /// So much of a compressed body is looked through; no tile holds more.
    private static let largestContent = 64 << 20
    /// No larger picture is a tile.
    private static let largestPicture = 16 << 20

    private static let gzipNames: Set<String> = ["gzip", "x-gzip"]
    /// So much of what is in a compressed body tells what it is.
    private static let lookedAt = 4096

    /// Types of pictures that ``BodySignature`` knows: bytes that are labelled so and are none of them are no picture.
    private static let knownPictures: Set<String> = [
        "image/png", "image/apng", "image/x-png", "image/jpeg", "image/jpg", "image/pjpeg", "image/webp", "image/avif",
        "image/gif",
    ]

    /// What is wrong with bytes that have no coding.
    private func content(_ signature: BodySignature, _ bytes: Data, _ type: String) -> String? {
        let isPicture = signature.pictureType != nil
        if signature == .html { return "a page of HTML" }
        if self == .any { return nil }
        if signature == .xml { return "a page of XML" }
        switch self {
        case .image:
            if isPicture { return nil }
            // Other formats (JPEG XL, HEIC) are not looked into, but they are not text.
            let isOther = type.hasPrefix("image/") && !Self.knownPictures.contains(type) && signature == .unknown
            return isOther && (bytes.count < 8 || !BodySignature.isText(bytes)) ? nil : "no picture"
        case .vector:
            if isPicture { return "a picture instead of a vector tile" }
            if signature == .json { return "JSON instead of a vector tile" }
            return BodySignature.isText(bytes) ? "text instead of a vector tile" : nil
        case .json:
            if isPicture { return "a picture instead of JSON" }
            // A value by itself is no tile; a call with one (JSONP) is.
            let isPlain = signature != .json && BodySignature.isText(bytes)
            let holdsJSON = bytes.prefix(512).contains { $0 == UInt8(ascii: "{") || $0 == UInt8(ascii: "[") }
            return isPlain && !holdsJSON ? "text instead of JSON" : nil
        case .any:
            return nil
        }
    }
}
