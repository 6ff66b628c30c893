package import HTTPCaching
package import HTTPTypes
package import TileStore

// How a response is kept as an entry of the store, and made a response again.
//
// Equal field sets are stored once, so what differs from response to response is taken out of the set: validators and
// times have places of their own, `Content-Length` follows from the blob, and `Date` and `Expires` are kept as distances
// from the time of receipt. All of that only where the original text can be made again exactly; else it stays verbatim.

/// The names under which `Date` and `Expires` are kept as distances; no field can have them.
package let storedDateName = ":date"
package let storedExpiresName = ":expires"
private let reasonName = ":reason"

/// The entry of a response that may be stored.
///
/// - Parameters:
///   - fields: Those of ``CachePolicy/fieldsToStore(_:)``.
///   - freshness: Its numbers; `storedAt` is the time of receipt.
package func storedEntry(status: HTTPResponse.Status, fields: HTTPFields, freshness: StoredFreshness) -> TileMetadata {
    let receipt = freshness.storedAt
    var headers: [ResponseFields.Header] = []
    var (tag, mediaType, coding, modified): (String?, String?, String?, HTTPDate?)
    for field in fields {
        let text = latin1(field)
        let isOnly = fields[fields: field.name].count == 1
        switch field.name {
        case .contentLength: continue
        case .eTag where isOnly && text.utf8.count <= 512: tag = text
        case .contentType where isOnly: mediaType = text
        case .contentEncoding where isOnly: coding = text
        case .lastModified where isOnly && exactDate(text, receipt) != nil: modified = exactDate(text, receipt)
        case .date where isOnly && exactDate(text, receipt) != nil: add(storedDateName, text)
        case .expires where isOnly && exactDate(text, receipt) != nil: add(storedExpiresName, text)
        default: headers.append(.init(name: field.name.rawName, value: text))
        }
    }
    func add(_ name: String, _ text: String) {
        guard let date = exactDate(text, receipt) else { return }
        headers.append(.init(name: name, value: String(date.seconds(since: receipt))))
    }
    if !status.reasonPhrase.isEmpty { headers.append(.init(name: reasonName, value: status.reasonPhrase)) }
    let response = ResponseFields(
        status: status.code, mediaType: mediaType, contentEncoding: coding,
        staleWhileRevalidate: freshness.staleWhileRevalidate, staleIfError: freshness.staleIfError,
        mustRevalidate: freshness.mustRevalidate, noCache: freshness.noCache, headers: headers)
    return TileMetadata(
        response: response, etag: tag, lastModified: modified.map { Timestamp(seconds: $0.seconds) },
        storedAt: Timestamp(seconds: receipt.seconds), date: Timestamp(seconds: receipt.seconds),
        initialAge: freshness.initialAge, expires: Timestamp(seconds: freshness.expires.seconds))
}

/// The numbers of an entry's freshness; all but whether it is `immutable`, which only its text tells.
package func storedFreshness(of metadata: TileMetadata) -> StoredFreshness {
    StoredFreshness(
        storedAt: HTTPDate(seconds: metadata.storedAt.seconds), initialAge: metadata.initialAge,
        expires: HTTPDate(seconds: metadata.expires.seconds),
        staleWhileRevalidate: metadata.response.staleWhileRevalidate, staleIfError: metadata.response.staleIfError,
        mustRevalidate: metadata.response.mustRevalidate, noCache: metadata.response.noCache)
}

/// The response that an entry was made from.
package func storedResponse(of metadata: TileMetadata) -> StoredResponse {
    let receipt = HTTPDate(seconds: metadata.storedAt.seconds)
    var fields = HTTPFields()
    var reason = ""
    var immutable = false
    func distance(_ text: String) -> String { receipt.adding(seconds: Int(text) ?? 0).description }
    for header in metadata.response.headers {
        switch header.name {
        case storedDateName: fields[.date] = distance(header.value)
        case storedExpiresName: fields[.expires] = distance(header.value)
        case reasonName: reason = header.value
        default:
            guard let name = HTTPField.Name(header.name) else { continue }
            if name == .cacheControl, header.value.contains("immutable") { immutable = true }
            fields.append(HTTPField(name: name, value: bytes(header.value)))
        }
    }
    func add(_ name: HTTPField.Name, _ text: String?) {
        if let text, !fields.contains(name) { fields.append(HTTPField(name: name, value: bytes(text))) }
    }
    add(.contentType, metadata.response.mediaType)
    add(.contentEncoding, metadata.response.contentEncoding)
    add(.eTag, metadata.etag)
    add(.lastModified, metadata.lastModified.map { HTTPDate(seconds: $0.seconds).description })
    var numbers = storedFreshness(of: metadata)
    numbers.immutable = immutable && (CacheControl(fields)?.immutable ?? false)
    let code = min(max(metadata.response.status, 100), 999)
    return StoredResponse(
        status: .init(code: code, reasonPhrase: reason), fields: fields, freshness: numbers)
}

/// A value's bytes, each as the character with its number: the same text for ASCII, and lossless for anything else.
private func latin1(_ field: HTTPField) -> String {
    field.withUnsafeBytesOfValue { bytes in
        if bytes.allSatisfy({ $0 < 128 }) { return String(decoding: bytes, as: UTF8.self) }
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
