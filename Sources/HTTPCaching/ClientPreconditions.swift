package import HTTPTypes

/// The conditions that a client put on its request, and the range that it asks for.
///
/// https://www.rfc-editor.org/rfc/rfc9110.html#section-13
package struct ClientPreconditions: Hashable, Sendable {
    /// Who answers the request.
    package enum Role: Hashable, Sendable {
        /// A cache: `If-Match` and `If-Unmodified-Since` are for the origin alone (RFC 9111 §4.3.2).
        case cache
        /// Who answers for the resource itself, such as a tile route whose tiles have no other origin for its clients.
        case origin
    }

    /// How to answer.
    package enum Outcome: Hashable, Sendable {
        /// As if there had been no condition.
        case proceed
        /// 304: the client has it already.
        case notModified
        /// 412: the condition is not met.
        case failed
        /// Not from the cache: only the origin can decide this; forward the request with its conditions.
        case forward
    }

    /// `If-Match`.
    package var ifMatch: EntityTagList?
    /// `If-None-Match`.
    package var ifNoneMatch: EntityTagList?
    /// `If-Unmodified-Since`, verbatim.
    package var ifUnmodifiedSince: String?
    /// `If-Modified-Since`, verbatim.
    package var ifModifiedSince: String?
    /// `If-Range`, verbatim; its bytes need not be UTF-8.
    package var ifRange: HTTPField?
    /// `Range`, verbatim.
    package var range: String?

    /// No conditions.
    package init() {}

    /// Reads the conditions of a request.
    ///
    /// Cheap when there are none: it looks at names only.
    package init(_ fields: HTTPFields) {
        for field in fields {
            switch field.name {
            case .ifMatch: ifMatch = ifMatch ?? EntityTagList(.ifMatch, in: fields)
            case .ifNoneMatch: ifNoneMatch = ifNoneMatch ?? EntityTagList(.ifNoneMatch, in: fields)
            // Singletons that were sent twice are invalid, and an invalid date is ignored (§13.1.3, §13.1.4).
            case .ifUnmodifiedSince: ifUnmodifiedSince = ifUnmodifiedSince == nil ? field.value : ""
            case .ifModifiedSince: ifModifiedSince = ifModifiedSince == nil ? field.value : ""
            case .ifRange: ifRange = ifRange == nil ? field : HTTPField(name: .ifRange, value: "")
            case .range: range = range == nil ? field.value : ""
            default: break
            }
        }
    }

    /// Whether there is no condition and no range.
    package var isEmpty: Bool { self == ClientPreconditions() }

    /// Decides on the conditions in the order of RFC 9110 §13.2.2, except `If-Range`, which ``ByteRanges`` looks at.
    ///
    /// Conditions are looked at only where the answer without them would be a success (§13.2.1); a stored 404 is given
    /// as it is.
    ///
    /// - Parameters:
    ///   - stored: The stored response's validators.
    ///   - status: Its status.
    ///   - method: The request's method. For others than GET and HEAD, a matching `If-None-Match` is 412.
    ///   - role: Who answers.
    ///   - now: For two-digit years.
    package func outcome(
        for stored: Validators, status: Int = 200, method: HTTPRequest.Method = .get, role: Role = .cache, now: HTTPDate
    ) -> Outcome {
        if role == .cache, ifMatch != nil || ifUnmodifiedSince != nil { return .forward }
        guard (200...299).contains(status) else { return .proceed }
        func date(_ text: String?) -> HTTPDate? { text.flatMap { HTTPDate(parsing: $0, now: now) } }
        if let ifMatch {
            if !ifMatch.matchesStrongly(stored.entityTag) { return .failed }
        } else if let since = date(ifUnmodifiedSince), let modified = stored.lastModified, modified > since {
            return .failed
        }
        let reads = method == .get || method == .head
        if let ifNoneMatch {
            if ifNoneMatch.matchesWeakly(stored.entityTag) { return reads ? .notModified : .failed }
        } else if reads, let since = date(ifModifiedSince) {
            // Without a Last-Modified a cache compares with the Date it was received with (RFC 9111 §4.3.2).
            if let modified = stored.lastModified ?? (role == .cache ? stored.date : nil), modified <= since {
                return .notModified
            }
        }
        return .proceed
    }
}

extension StoredResponse {
    /// The head of a 304 that says this response is still good (RFC 9110 §15.4.5).
    ///
    /// It carries what a client updates its own copy with: all stored fields except those that describe the bytes
    /// (`Content-*` other than `Content-Location` and policies, and `Last-Modified` where there is an `ETag`).
    package func notModified(age: Int) -> HTTPResponse {
        let tagged = fields.contains(.eTag)
        var kept = fields.leavingOut { name in
            if name == .lastModified { return tagged }
            if name == .contentLocation { return false }
            let text = name.canonicalName
            return text.hasPrefix("content-") && !text.hasPrefix("content-security-policy") || text == "accept-ranges"
        }
        kept[.age] = String(DeltaSeconds.clamp(age))
        return HTTPResponse(status: .notModified, headerFields: kept)
    }
}
