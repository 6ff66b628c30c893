package import HTTPCaching
package import HTTPTypes
package import TileStore

// How a response is kept as an entry of the store, and made a response again: one codec for all uses.
//
// Equal field sets are stored once, so what differs from response to response is taken out of the set: validators and
// times have places of their own, and `Content-Length` follows from the blob. Which other fields are kept is the use's
// choice (``CacheUse/Fields``). Where all are kept, `Date` and `Expires` are distances from the time of receipt, and only
// where the original text can be made again exactly; else they stay verbatim.

/// The names under which `Date` and `Expires` are kept as distances; no field can have them.
package let storedDateName = ":date"
package let storedExpiresName = ":expires"
private let reasonName = ":reason"

/// What an answer becomes when it is stored.
package struct AnswerRecord: Sendable {
    /// The entry, and which request fields chose the answer.
    package var intent: OriginDecision.StoreIntent
    /// The numbers of its freshness, with where its lifetime came from.
    package var freshness: Freshness
    /// Whether it may be stored.
    package var storability: Storability
    /// Whether it sets a cookie and so must not be stored.
    ///
    /// A cookie is mostly one user's. A response that sets one is stored only if the origin itself gives it a lifetime, and
    /// so says that all may have it until then (RFC 9111 §7.3). A guessed lifetime says no such thing, nor does a validator.
    /// Where the field is not kept there is no such obstacle.
    var setsCookie: Bool

    /// Whether it may be stored; not if it sets a cookie that must not be kept.
    package var isStorable: Bool { storability.isStorable && !setsCookie }
}

extension CacheUse {
    /// What is to be stored of an answer to a GET.
    ///
    /// - Parameter request: The request as it was sent.
    package func record(
        _ response: HTTPResponse, to request: HTTPRequest, requestedAt: HTTPDate, receivedAt: HTTPDate
    ) -> AnswerRecord {
        let directives = policy.directives(of: response.headerFields)
        return record(
            response, directives, policy.storability(of: response, to: asJudged(request), directives),
            requestedAt: requestedAt, receivedAt: receivedAt)
    }

    /// The same, or `nil` if the answer must not be stored: then no entry is made.
    package func storableRecord(
        _ response: HTTPResponse, to request: HTTPRequest, requestedAt: HTTPDate, receivedAt: HTTPDate
    ) -> AnswerRecord? {
        let directives = policy.directives(of: response.headerFields)
        let storability = policy.storability(of: response, to: asJudged(request), directives)
        guard storability.isStorable else { return nil }
        let record = record(
            response, directives, storability, requestedAt: requestedAt, receivedAt: receivedAt)
        return record.isStorable ? record : nil
    }

    private func record(
        _ response: HTTPResponse, _ directives: CachePolicy.Directives, _ storability: Storability,
        requestedAt: HTTPDate, receivedAt: HTTPDate
    ) -> AnswerRecord {
        record(
            response.status, policy.fieldsToStore(response.headerFields, directives),
            policy.freshness(of: response, directives, requestedAt: requestedAt, receivedAt: receivedAt), storability)
    }

    /// What is to be stored after an update, a 304 say, has confirmed a stored response (RFC 9111 §4.3.4).
    ///
    /// - Returns: The entry, and the response brought up to date.
    package func refreshed(
        _ stored: StoredResponse, by update: HTTPResponse, to request: HTTPRequest, requestedAt: HTTPDate,
        receivedAt: HTTPDate
    ) -> (record: AnswerRecord, response: StoredResponse) {
        let fresh = policy.freshen(
            stored, with: update, to: asJudged(request), requestedAt: requestedAt, receivedAt: receivedAt)
        let record = record(fresh.response.status, fresh.response.fields, fresh.freshness, fresh.storability)
        return (record, fresh.response)
    }

    /// The source's own credentials are not those of a user that a shared cache would have to protect (RFC 9111 §3.5).
    private func asJudged(_ request: HTTPRequest) -> HTTPRequest {
        guard requests == .fixed else { return request }
        var request = request
        request.headerFields[.authorization] = nil
        return request
    }

    private func record(
        _ status: HTTPResponse.Status, _ fields: HTTPFields, _ freshness: Freshness, _ storability: Storability
    ) -> AnswerRecord {
        let metadata: TileMetadata
        switch self.fields {
        case .all: metadata = wholeEntry(status, fields, freshness)
        case .deciding: metadata = shortEntry(status, fields, freshness)
        }
        // Requests that are the same for everybody select nothing.
        let vary = requests == .fixed ? [] : Vary(fields).names
        return AnswerRecord(
            intent: OriginDecision.StoreIntent(metadata: metadata, vary: vary), freshness: freshness,
            storability: storability,
            setsCookie: self.fields == .all && fields.contains(.setCookie) && !freshness.isExplicit)
    }

    // MARK: All fields

    /// The entry from which the same fields can be made again.
    private func wholeEntry(
        _ status: HTTPResponse.Status, _ fields: HTTPFields, _ freshness: Freshness
    ) -> TileMetadata {
        let receipt = freshness.stored.storedAt
        var fields = fields
        // A recipient with a clock adds what is missing (RFC 9110 §6.6.1).
        if !fields.contains(.date) { fields[.date] = receipt.description }
        var headers: [ResponseFields.Header] = []
        var (tag, mediaType, coding, modified): (String?, String?, String?, HTTPDate?)
        headers.reserveCapacity(fields.count + 1)
        func isOnly(_ name: HTTPField.Name) -> Bool { fields.count { $0.name == name } == 1 }
        for field in fields {
            let name = field.name
            if name == .contentLength { continue }
            let text = latin1(field)
            if name == .eTag, text.utf8.count <= 512, isOnly(name) {
                tag = text
            } else if name == .contentType, isOnly(name) {
                mediaType = text
            } else if name == .contentEncoding, isOnly(name) {
                coding = text
            } else if name == .lastModified, let date = exactDate(text, receipt), isOnly(name) {
                modified = date
            } else if name == .date, let date = exactDate(text, receipt), isOnly(name) {
                headers.append(.init(name: storedDateName, value: String(date.seconds(since: receipt))))
            } else if name == .expires, let date = exactDate(text, receipt), isOnly(name) {
                headers.append(.init(name: storedExpiresName, value: String(date.seconds(since: receipt))))
            } else {
                headers.append(.init(name: name.rawName, value: text))
            }
        }
        if !status.reasonPhrase.isEmpty { headers.append(.init(name: reasonName, value: status.reasonPhrase)) }
        return entry(
            status, mediaType, coding, headers, tag, modified, freshness, expires: freshness.stored.expires)
    }

    // MARK: Few fields

    /// The entry of few fields, the same for most responses: those that decide on freshness when a 304 comes, and what
    /// the body is.
    private func shortEntry(
        _ status: HTTPResponse.Status, _ fields: HTTPFields, _ freshness: Freshness
    ) -> TileMetadata {
        let receipt = freshness.stored.storedAt
        var expires = freshness.stored.expires
        if let absentLifetime, isAbsence(status.code), freshness.source == .none, !freshness.stored.noCache {
            expires = receipt.adding(seconds: absentLifetime)
        }
        var headers: [ResponseFields.Header] = []
        func keep(_ name: HTTPField.Name) {
            // Of several lines of Expires the first counts; those of Cache-Control are one list (RFC 9111 §4.2.1).
            let value = name == .expires ? fields[values: name].first : fields.combined(name)
            if let value = bounded(value, 1024) { headers.append(.init(name: name.rawName, value: value)) }
        }
        keep(.cacheControl)
        if let targeted = freshness.targetedField { keep(targeted) }
        // An absolute time differs from tile to tile, so it is kept only where the lifetime hangs on it.
        if freshness.source == .expires { keep(.expires) }
        if !fields.contains(.cacheControl), let pragma = HTTPField.Name("Pragma") { keep(pragma) }
        return entry(
            status, bounded(fields.combined(.contentType), 256), bounded(ContentCodings.value(in: fields), 64), headers,
            EntityTag(of: fields).flatMap { $0.text.utf8.count <= 512 ? $0.text : nil },
            fields.combined(.lastModified).flatMap { HTTPDate(parsing: $0, now: receipt) }, freshness, expires: expires)
    }

    /// - Parameter expires: When it turns stale.
    private func entry(
        _ status: HTTPResponse.Status, _ mediaType: String?, _ coding: String?, _ headers: [ResponseFields.Header],
        _ tag: String?, _ modified: HTTPDate?, _ freshness: Freshness, expires: HTTPDate
    ) -> TileMetadata {
        let numbers = freshness.stored
        let response = ResponseFields(
            status: status.code, mediaType: mediaType, contentEncoding: coding,
            staleWhileRevalidate: numbers.staleWhileRevalidate, staleIfError: numbers.staleIfError,
            mustRevalidate: numbers.mustRevalidate, noCache: numbers.noCache, headers: headers)
        return TileMetadata(
            response: response, etag: tag, lastModified: modified.map { Timestamp($0) },
            storedAt: Timestamp(numbers.storedAt), date: freshness.date.map { Timestamp($0) },
            initialAge: numbers.initialAge, expires: Timestamp(expires))
    }
}

/// Whether a status says that there is no such resource, and that only.
package func isAbsence(_ status: Int) -> Bool { status == 204 || status == 404 || status == 410 }

extension StoredFreshness {
    /// The numbers of an entry's freshness; all but whether it is `immutable`, which only its text tells.
    package init(of metadata: TileMetadata) {
        self.init(
            storedAt: HTTPDate(seconds: metadata.storedAt.seconds), initialAge: metadata.initialAge,
            expires: HTTPDate(seconds: metadata.expires.seconds),
            staleWhileRevalidate: metadata.response.staleWhileRevalidate,
            staleIfError: metadata.response.staleIfError, mustRevalidate: metadata.response.mustRevalidate,
            noCache: metadata.response.noCache)
    }
}

/// The response that an entry was made from, with the fields that were kept.
package func storedResponse(of metadata: TileMetadata) -> StoredResponse {
    let receipt = HTTPDate(metadata.storedAt)
    var fields = HTTPFields()
    var reason = ""
    var immutable = false
    // Only where all fields are kept there is a `Date` among them. Its values are kept byte by byte; others are text.
    let isWhole = metadata.response.headers.contains { $0.name == storedDateName || $0.name.lowercased() == "date" }
    func value(_ text: String) -> [UInt8] { isWhole ? bytes(text) : Array(text.utf8) }
    func distance(_ text: String) -> String { receipt.adding(seconds: Int(text) ?? 0).description }
    for header in metadata.response.headers {
        switch header.name {
        case storedDateName: fields[.date] = distance(header.value)
        case storedExpiresName: fields[.expires] = distance(header.value)
        case reasonName: reason = header.value
        default:
            guard let name = HTTPField.Name(header.name) else { continue }
            if name == .cacheControl, header.value.contains("immutable") { immutable = true }
            fields.append(HTTPField(name: name, value: value(header.value)))
        }
    }
    func add(_ name: HTTPField.Name, _ text: String?) {
        if let text, !fields.contains(name) { fields.append(HTTPField(name: name, value: value(text))) }
    }
    add(.contentType, metadata.response.mediaType)
    add(.contentEncoding, metadata.response.contentEncoding)
    add(.eTag, metadata.etag)
    add(.lastModified, metadata.lastModified.map { HTTPDate($0).description })
    if !isWhole { add(.date, metadata.date.map { HTTPDate($0).description }) }
    var numbers = StoredFreshness(of: metadata)
    numbers.immutable = immutable && (CacheControl(fields)?.immutable ?? false)
    let code = min(max(metadata.response.status, 100), 999)
    return StoredResponse(
        status: .init(code: code, reasonPhrase: reason), fields: fields, freshness: numbers)
}

extension TileMetadata {
    /// What orders responses for the same URL: the origin's `Date`, where it sent one, then the receipt (RFC 9111 §4).
    ///
    /// A `Date` counts as no later than its receipt.
    var order: (date: Int64, receipt: Int64) {
        (min(date?.seconds ?? .max, storedAt.seconds), storedAt.seconds)
    }

    /// The entry as it would be written today, if it was written when every response counted as made at its receipt.
    ///
    /// - Returns: `nil` if it says the origin's `Date` already.
    var withOriginsDate: TileMetadata? {
        guard date == storedAt, let stated = storedResponse(of: self).validators.date, Timestamp(stated) < storedAt
        else { return nil }
        var metadata = self
        metadata.date = Timestamp(stated)
        return metadata
    }
}

extension HTTPDate {
    /// A time of the store.
    package init(_ time: Timestamp) { self.init(seconds: time.seconds) }
}

extension Timestamp {
    /// A time of HTTP.
    package init(_ date: HTTPDate) { self.init(seconds: date.seconds) }
}

private func bounded(_ text: String?, _ most: Int) -> String? {
    text.flatMap { $0.utf8.count <= most && !$0.isEmpty ? $0 : nil }
}

/// A value's bytes, each as the character with its number: the same text for ASCII, and lossless for anything else.
private func latin1(_ field: HTTPField) -> String {
    field.withUnsafeBytesOfValue { bytes in
        if bytes.allSatisfy({ $0 < 128 }) { return field.value }
        var text = String.UnicodeScalarView()
        for byte in bytes { text.append(Unicode.Scalar(byte)) }
        return String(text)
    }
}

private func bytes(_ text: String) -> [UInt8] { text.unicodeScalars.map { UInt8(truncatingIfNeeded: $0.value) } }

/// The date of a text that is exactly how that date is written, and lies where the store can keep it.
private func exactDate(_ text: String, _ now: HTTPDate) -> HTTPDate? {
    guard let date = HTTPDate(parsing: text, now: now), date.description == text, date.seconds > 0,
        date.seconds < 4_000_000_000
    else { return nil }
    return date
}
