import HTTPCaching
import HTTPTypes
import TileStore

/// Turns answers into what the store keeps of them, and back.
///
/// Plain functions over values. Kept of the header are the validators, the type and coding of the body, and the fields
/// that decide about freshness when a 304 comes: little, and the same for most tiles of a source, so that it is stored
/// once.
enum ResponseRecord {
    /// An answer as it is to be stored, if it may be.
    struct Outcome {
        var metadata: TileMetadata
        var mayBeStored: Bool
        /// How many seconds the answer's `Date` lies after its receipt.
        var dateAhead: Int
    }

    /// What is to be stored for an answer to a GET.
    static func metadata(
        _ response: HTTPResponse, to request: HTTPRequest, policy: CachePolicy, rules: LifetimeRules,
        requestedAt: Timestamp, receivedAt: Timestamp
    ) -> Outcome {
        let storability = policy.storability(of: response, to: anonymous(request))
        let freshness = policy.freshness(
            of: response, requestedAt: HTTPDate(requestedAt), receivedAt: HTTPDate(receivedAt))
        return Outcome(
            metadata: metadata(response.status.code, response.headerFields, freshness, rules, receivedAt),
            mayBeStored: storability.isStorable, dateAhead: freshness.dateAhead)
    }

    /// What is to be stored after a 304 has confirmed a stored answer (RFC 9111 §4.3.4).
    ///
    /// - Returns: `nil` if the 304 is about something else than what is stored.
    static func refreshed(
        _ stored: TileMetadata, by update: HTTPResponse, to request: HTTPRequest, policy: CachePolicy,
        rules: LifetimeRules, requestedAt: Timestamp, receivedAt: Timestamp
    ) -> Outcome? {
        let response = StoredResponse(
            status: HTTPResponse.Status(code: stored.response.status), fields: fields(of: stored),
            freshness: StoredFreshness(storedAt: HTTPDate(stored.storedAt), expires: HTTPDate(stored.expires)))
        let outcome = NotModifiedOutcome(
            update.headerFields, asked: [response.validators], now: HTTPDate(receivedAt))
        guard case .confirmed = outcome else { return nil }
        let fresh = policy.freshen(
            response, with: update, to: anonymous(request), requestedAt: HTTPDate(requestedAt),
            receivedAt: HTTPDate(receivedAt))
        var refreshed = metadata(stored.response.status, fresh.response.fields, fresh.freshness, rules, receivedAt)
        // A date of our own making orders nothing: once our clock has been set back, it would keep off every update.
        if update.headerFields[.date] == nil { refreshed.date = nil }
        return Outcome(
            metadata: refreshed, mayBeStored: fresh.storability.isStorable, dateAhead: fresh.freshness.dateAhead)
    }

    /// The source's own credentials are not those of a user that a shared cache would have to protect (RFC 9111 §3.5).
    private static func anonymous(_ request: HTTPRequest) -> HTTPRequest {
        var request = request
        request.headerFields[.authorization] = nil
        return request
    }

    private static func metadata(
        _ status: Int, _ fields: HTTPFields, _ freshness: Freshness, _ rules: LifetimeRules, _ receivedAt: Timestamp
    ) -> TileMetadata {
        var expires = freshness.stored.expires
        if isAbsence(status), freshness.source == .none, !freshness.stored.noCache {
            expires = HTTPDate(seconds: receivedAt.adding(seconds: rules.absent.components.seconds).seconds)
        }
        let modified = fields[.lastModified].flatMap { HTTPDate(parsing: $0, now: HTTPDate(receivedAt)) }
        return TileMetadata(
            response: ResponseFields(
                status: status, mediaType: bounded(fields[.contentType], 256), contentEncoding: coding(fields),
                staleWhileRevalidate: freshness.stored.staleWhileRevalidate,
                staleIfError: freshness.stored.staleIfError, mustRevalidate: freshness.stored.mustRevalidate,
                noCache: freshness.stored.noCache, headers: kept(fields, freshness)),
            etag: EntityTag(of: fields).flatMap { $0.text.utf8.count <= 512 ? $0.text : nil },
            lastModified: modified.map { Timestamp(seconds: $0.seconds) }, storedAt: receivedAt,
            date: freshness.date.map { Timestamp(seconds: $0.seconds) }, initialAge: freshness.stored.initialAge,
            expires: Timestamp(seconds: expires.seconds))
    }

    /// The header fields of a stored answer, as far as they were kept.
    static func fields(of metadata: TileMetadata) -> HTTPFields {
        var fields = HTTPFields()
        for header in metadata.response.headers {
            if let name = HTTPField.Name(header.name) { fields.append(HTTPField(name: name, value: header.value)) }
        }
        fields[.contentType] = metadata.response.mediaType
        fields[.contentEncoding] = metadata.response.contentEncoding
        fields[.eTag] = metadata.etag
        fields[.lastModified] = metadata.lastModified.map { HTTPDate($0).description }
        fields[.date] = metadata.date.map { HTTPDate($0).description }
        return fields
    }

    /// Whether a stored answer says itself for how long it may be served after an error, be it for no time at all.
    ///
    /// Reads header text: not for the path of a hit.
    static func statesStaleIfError(_ metadata: TileMetadata, policy: CachePolicy) -> Bool {
        policy.directives(of: fields(of: metadata)).cacheControl.staleIfError != nil
    }

    /// The conditional fields that ask whether a stored answer still holds (RFC 9111 §4.3.1).
    static func addConditions(_ metadata: TileMetadata, to fields: inout HTTPFields) {
        fields[.ifNoneMatch] = metadata.etag
        fields[.ifModifiedSince] = metadata.lastModified.map { HTTPDate($0).description }
    }

    /// Whether a status says that there is no such tile.
    static func isAbsence(_ status: Int) -> Bool { status == 204 || status == 404 || status == 410 }

    private static func kept(_ fields: HTTPFields, _ freshness: Freshness) -> [ResponseFields.Header] {
        var kept: [ResponseFields.Header] = []
        func keep(_ name: HTTPField.Name) {
            // Of several lines of Expires the first counts; those of Cache-Control are one list (RFC 9111 §4.2.1).
            let value = name == .expires ? fields[values: name].first : fields[name]
            if let value = bounded(value, 1024) { kept.append(.init(name: name.rawName, value: value)) }
        }
        keep(.cacheControl)
        if let targeted = freshness.targetedField { keep(targeted) }
        // An absolute time differs from tile to tile, so it is kept only where the lifetime hangs on it.
        if freshness.source == .expires { keep(.expires) }
        if fields[.cacheControl] == nil, let pragma = HTTPField.Name("Pragma") { keep(pragma) }
        return kept
    }

    private static func coding(_ fields: HTTPFields) -> String? {
        bounded(ContentCodings.value(in: fields), 64)
    }

    private static func bounded(_ text: String?, _ most: Int) -> String? {
        text.flatMap { $0.utf8.count <= most && !$0.isEmpty ? $0 : nil }
    }
}

extension HTTPDate {
    init(_ time: Timestamp) { self.init(seconds: time.seconds) }
}
