import HTTPCaching
import HTTPTypes
import HTTPWire
import TileStore

/// What an answer about a tile says in its header: pure functions over what is stored.
///
/// Nothing of the origin's header is passed on as it came: `Set-Cookie`, `Vary` and `Access-Control-*` of a tile server
/// mean nothing here, and could poison what others get.
enum TileFields {
    /// The fields that a 200 and a 304 share, without `Age` and `Cache-Status`, which change from answer to answer.
    static func common(
        _ metadata: TileMetadata, tag: String?, varies: Bool, mayBeKept: Bool, allowedOrigin: String?
    ) -> HTTPFields {
        var fields = HTTPFields()
        fields[.cacheControl] = mayBeKept ? cacheControl(metadata) : "no-store"
        fields[.eTag] = tag
        if let modified = metadata.lastModified {
            fields[.lastModified] = HTTPDate(seconds: modified.seconds).description
        }
        if varies { fields[.vary] = "Accept-Encoding" }
        fields[.accessControlAllowOrigin] = allowedOrigin
        return fields
    }

    /// The fields that describe the bytes.
    static func content(type: String, coding: String?) -> HTTPFields {
        var fields = HTTPFields()
        fields[.contentType] = HTTPField.isValidValue(type) ? type : "application/octet-stream"
        fields[.contentEncoding] = coding
        fields[.acceptRanges] = "bytes"
        fields[.xContentTypeOptions] = "nosniff"
        // What could hold a script is a picture here and nothing else, should anybody open it as a page.
        if runsScripts(type) {
            fields[.contentSecurityPolicy] = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
        }
        return fields
    }

    private static func runsScripts(_ type: String) -> Bool {
        let type = Array(type.utf8)
        return type.withUnsafeBytes { bytes in
            bytes.indices.contains { start in
                func holds(_ word: StaticString) -> Bool {
                    let end = start + word.utf8CodeUnitCount
                    return end <= bytes.count && bytes.part(start, end).equals(lowercase: word)
                }
                return holds("xml") || holds("html") || holds("svg")
            }
        }
    }

    /// `Cache-Control`, such that a client that subtracts `Age`, as it must (RFC 9111 §4.2), comes out with exactly the
    /// lifetime that is left here.
    ///
    /// So `max-age` is the whole lifetime, counted from when the answer was made, and stays the same for as long as the
    /// entry does.
    static func cacheControl(_ metadata: TileMetadata) -> String {
        let control = TileCacheControl(metadata.response)
        let whole = lifetime(StoredFreshness(metadata))
        var text = "public, "
        if let own = control.own, own < whole {
            text += "max-age=\(own), s-maxage=\(whole)"
        } else {
            text += "max-age=\(whole)"
        }
        return text + control.rest
    }

    /// The lifetime of an entry from when its answer was made by the origin.
    @inline(__always)
    static func lifetime(_ freshness: StoredFreshness) -> Int {
        let left = freshness.expires.seconds &- freshness.storedAt.seconds
        return Int(max(0, min(left &+ Int64(max(0, freshness.initialAge)), Int64(Int32.max))))
    }

    /// How old the answer is (RFC 9111 §4.2.3).
    static func age(_ metadata: TileMetadata, now: HTTPDate) -> Int {
        StoredFreshness(metadata).age(at: now)
    }

    /// The entity tag: the origin's, else one made of the bytes; another one for bytes that were decoded here.
    static func tag(_ metadata: TileMetadata, blob: BlobDigest?, isDecoded: Bool) -> String? {
        if let tag = metadata.etag, HTTPField.isValidValue(tag) {
            guard isDecoded else { return tag }
            if tag.hasSuffix("\""), tag.utf8.count > 2 { return tag.dropLast() + "-identity\"" }
        }
        guard let blob else { return nil }
        return "\"" + blob.description.prefix(32) + (isDecoded ? "-identity\"" : "\"")
    }
}

/// What `Cache-Control` says of a tile besides its lifetime: the same for all entries with the same shared fields.
struct TileCacheControl {
    /// The origin's own `max-age`, if it wants browsers to come back sooner than shared caches.
    let own: Int?
    /// What follows the lifetime.
    let rest: String

    init(_ response: ResponseFields) {
        let stated = response.headers.first { $0.name.lowercased() == "cache-control" }.map {
            CacheControl($0.value)
        }
        own = stated?.sharedMaxAge != nil ? stated?.maxAge.map { max(0, $0) } : nil
        var text = ""
        if response.noCache { text += ", no-cache" }
        if response.mustRevalidate { text += ", must-revalidate" }
        if response.staleWhileRevalidate > 0 { text += ", stale-while-revalidate=\(response.staleWhileRevalidate)" }
        if response.staleIfError > 0 { text += ", stale-if-error=\(response.staleIfError)" }
        if stated?.immutable == true { text += ", immutable" }
        rest = text
    }
}

extension StoredFreshness {
    /// The numbers of a stored tile.
    @inline(__always)
    init(_ metadata: TileMetadata) {
        self.init(
            storedAt: HTTPDate(seconds: metadata.storedAt.seconds), initialAge: metadata.initialAge,
            expires: HTTPDate(seconds: metadata.expires.seconds))
    }

    /// The numbers of an entry, as far as they count while it is fresh.
    @inline(__always)
    init(_ known: KnownEntry) {
        self.init(
            storedAt: HTTPDate(seconds: known.storedAt.seconds), initialAge: known.initialAge,
            expires: HTTPDate(seconds: known.expires.seconds))
    }
}
