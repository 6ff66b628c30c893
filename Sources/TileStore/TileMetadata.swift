/// The part of a stored response that many tiles have in common: kept once, however many entries share it.
///
/// Two values with equal content are equal. Copying one costs a reference count.
public struct ResponseFields: Hashable, Sendable {
    /// A response header field.
    ///
    /// The store keeps name and value verbatim and never interprets them.
    public struct Header: Hashable, Sendable {
        /// The field's name.
        public var name: String
        /// The field's value.
        public var value: String
        /// Makes a header field.
        public init(name: String, value: String) {
            self.name = name
            self.value = value
        }
    }

    final class Storage: Sendable {
        let status: Int
        let mediaType: String?
        let contentEncoding: String?
        let staleWhileRevalidate: Int
        let staleIfError: Int
        let mustRevalidate: Bool
        let noCache: Bool
        let headers: [Header]
        /// About how many bytes it takes.
        let length: Int

        /// The most bytes that are kept.
        static var longest: Int { 65536 }

        /// Whether it can be stored: the status is final, it is not too long, and no time is negative.
        let isStorable: Bool

        init(
            status: Int, mediaType: String?, contentEncoding: String?, staleWhileRevalidate: Int, staleIfError: Int,
            mustRevalidate: Bool, noCache: Bool, headers: [Header]
        ) {
            self.status = status
            self.mediaType = mediaType
            self.contentEncoding = contentEncoding
            self.staleWhileRevalidate = staleWhileRevalidate
            self.staleIfError = staleIfError
            self.mustRevalidate = mustRevalidate
            self.noCache = noCache
            self.headers = headers
            length =
                headers.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count + 8 }
                + (mediaType?.utf8.count ?? 0) + (contentEncoding?.utf8.count ?? 0)
            isStorable =
                (200...599).contains(status) && length <= Self.longest && staleIfError >= 0
                && staleWhileRevalidate >= 0
        }
    }

    let storage: Storage

    /// Describes a response.
    ///
    /// - Parameters:
    ///   - status: The final status code, 200 to 599.
    ///   - mediaType: The `Content-Type`, if known.
    ///   - contentEncoding: The `Content-Encoding` of the bytes as stored, `nil` for identity.
    ///   - staleWhileRevalidate: Seconds past expiry in which it may be served while it is refreshed (RFC 5861 §3).
    ///   - staleIfError: Seconds past expiry in which it may be served when the origin fails (RFC 5861 §4).
    ///   - mustRevalidate: Whether it must not be served stale (RFC 9111 §5.2.2.2).
    ///   - noCache: Whether it must be revalidated before every use (RFC 9111 §5.2.2.4).
    ///   - headers: Other fields that have to be given back.
    public init(
        status: Int = 200, mediaType: String? = nil, contentEncoding: String? = nil, staleWhileRevalidate: Int = 0,
        staleIfError: Int = 0, mustRevalidate: Bool = false, noCache: Bool = false, headers: [Header] = []
    ) {
        storage = Storage(
            status: status, mediaType: mediaType, contentEncoding: contentEncoding,
            staleWhileRevalidate: staleWhileRevalidate, staleIfError: staleIfError, mustRevalidate: mustRevalidate,
            noCache: noCache, headers: headers)
    }

    /// The status code.
    public var status: Int { storage.status }
    /// The `Content-Type`.
    public var mediaType: String? { storage.mediaType }
    /// The `Content-Encoding` of the stored bytes.
    public var contentEncoding: String? { storage.contentEncoding }
    /// Seconds past expiry in which it may be served while it is refreshed.
    public var staleWhileRevalidate: Int { storage.staleWhileRevalidate }
    /// Seconds past expiry in which it may be served when the origin fails.
    public var staleIfError: Int { storage.staleIfError }
    /// Whether it must not be served stale.
    public var mustRevalidate: Bool { storage.mustRevalidate }
    /// Whether it must be revalidated before every use.
    public var noCache: Bool { storage.noCache }
    /// Other fields that have to be given back.
    public var headers: [Header] { storage.headers }

    /// Whether two values say the same.
    public static func == (a: ResponseFields, b: ResponseFields) -> Bool {
        if a.storage === b.storage { return true }
        return a.status == b.status && a.mediaType == b.mediaType && a.contentEncoding == b.contentEncoding
            && a.staleWhileRevalidate == b.staleWhileRevalidate && a.staleIfError == b.staleIfError
            && a.mustRevalidate == b.mustRevalidate && a.noCache == b.noCache && a.headers == b.headers
    }

    /// Hashes what `==` compares.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(status)
        hasher.combine(mediaType)
        hasher.combine(contentEncoding)
        hasher.combine(staleWhileRevalidate)
        hasher.combine(staleIfError)
        hasher.combine(mustRevalidate)
        hasher.combine(noCache)
        hasher.combine(headers)
    }
}

/// What is known of a stored response besides its bytes: times and validators.
///
/// The store keeps it and compares times; what follows from them is decided by its caller.
public struct TileMetadata: Hashable, Sendable {
    /// The part that other entries share.
    public var response: ResponseFields
    /// The `ETag` verbatim, quotes and `W/` included; at most 512 bytes.
    ///
    /// Made into text when it is asked for.
    public var etag: String? {
        get { tag.text }
        set { tag = newValue.map { .text($0) } ?? .none }
    }
    var tag: TagValue
    /// The `Last-Modified` time.
    public var lastModified: Timestamp?
    /// When the response was received.
    public var storedAt: Timestamp
    /// The origin's `Date`.
    ///
    /// A response with an older one never replaces a newer one. One that lies after ``storedAt`` counts as that time: it
    /// comes from a wrong clock, and would keep out all that follows.
    public var date: Timestamp?
    /// How old the response was when it was received, in seconds (the corrected initial age of RFC 9111 §4.2.3).
    public var initialAge: Int
    /// When the entry turns stale.
    public var expires: Timestamp

    /// Describes a response.
    public init(
        response: ResponseFields = ResponseFields(), etag: String? = nil, lastModified: Timestamp? = nil,
        storedAt: Timestamp, date: Timestamp? = nil, initialAge: Int = 0, expires: Timestamp
    ) {
        self.init(
            response: response, tag: etag.map { .text($0) } ?? .none, lastModified: lastModified, storedAt: storedAt,
            date: date, initialAge: initialAge, expires: expires)
    }

    init(
        response: ResponseFields, tag: TagValue, lastModified: Timestamp?, storedAt: Timestamp, date: Timestamp?,
        initialAge: Int, expires: Timestamp
    ) {
        self.response = response
        self.tag = tag
        self.lastModified = lastModified
        self.storedAt = storedAt
        self.date = date
        self.initialAge = initialAge
        self.expires = expires
    }

    /// Whether two values say the same.
    public static func == (a: TileMetadata, b: TileMetadata) -> Bool {
        a.response == b.response && a.etag == b.etag && a.lastModified == b.lastModified && a.storedAt == b.storedAt
            && a.date == b.date && a.initialAge == b.initialAge && a.expires == b.expires
    }

    /// Hashes what `==` compares.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(response)
        hasher.combine(etag)
        hasher.combine(lastModified)
        hasher.combine(storedAt)
        hasher.combine(date)
        hasher.combine(initialAge)
        hasher.combine(expires)
    }

    /// Whether the entry is stale at a time: expired, or stored more than 60 s in the future (a clock went back).
    public func isStale(at now: Timestamp) -> Bool {
        expires <= now || storedAt.seconds > now.adding(seconds: 60).seconds
    }

    /// Whether the response was made before a stored one, which it then must not replace.
    package func isOlder(than stored: TileMetadata) -> Bool {
        stored.date.map { isOlder(thanDate: $0.packed, storedAt: stored.storedAt.packed) } ?? false
    }

    /// The same, of a stored response's packed times.
    ///
    /// A date counts as no later than its receipt. What was stored more than 60 s in the future orders nothing: a clock
    /// went back.
    func isOlder(thanDate date: UInt32, storedAt: UInt32) -> Bool {
        guard let mine = self.date?.packed else { return false }
        let received = self.storedAt.packed
        guard UInt64(storedAt) <= UInt64(received) + 60 else { return false }
        return min(mine, received) < min(date, storedAt)
    }
}

/// One line of the manifest as its reader sees it: a key and what is stored under it.
public struct TileEntry: Hashable, Sendable {
    /// The key.
    public let key: TileKey
    /// The name of its blob; `nil` for a response without a body (an absent tile that is remembered).
    public let blob: BlobDigest?
    /// The blob's size in bytes; 0 without one.
    public let size: Int
    /// Validators and times.
    public let metadata: TileMetadata
    /// When it was last used, for people.
    ///
    /// Eviction goes by ``recency``.
    public let lastUsed: Timestamp
    /// Its place in the order of use: a larger number was used later.
    public let recency: UInt64
    /// Whether a region pins it.
    public let isPinned: Bool

    package init(
        key: TileKey, blob: BlobDigest?, size: Int, metadata: TileMetadata, lastUsed: Timestamp, recency: UInt64,
        isPinned: Bool
    ) {
        self.key = key
        self.blob = blob
        self.size = size
        self.metadata = metadata
        self.lastUsed = lastUsed
        self.recency = recency
        self.isPinned = isPinned
    }
}
