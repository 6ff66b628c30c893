package import HTTPTypes

/// A request that revalidates what is stored, and the client's own conditions kept apart from it.
///
/// https://www.rfc-editor.org/rfc/rfc9111.html#section-4.3.1
package struct ConditionalRequest: Hashable, Sendable {
    /// The request to send: without the client's preconditions and `Range`, with the cache's own.
    package var request: HTTPRequest
    /// The validators that it asks about, in the order given; empty if nothing stored has any.
    ///
    /// An empty list means that the request is unconditional, and that a 304 to it makes no sense.
    package let asked: [Validators]
    /// For each of ``asked``, its index among the responses that the request was made for.
    let places: [Int]
    /// What the client asked for, to be answered from the response once it is complete and fresh.
    package var client: ClientPreconditions

    /// Whether a 304 is a possible answer.
    package var isConditional: Bool { !asked.isEmpty }

    /// Makes the request that revalidates stored responses for its URI.
    ///
    /// The entity tags of all of them go into `If-None-Match`. For one response alone, its `Last-Modified` goes into
    /// `If-Modified-Since`. At most 32 tags are sent.
    ///
    /// - Parameters:
    ///   - request: The client's request. Fields for one connection are for the caller to leave out.
    ///   - stored: What is stored, best first.
    ///   - usesDate: Whether a sole response without validators is asked about by its `Date`, as clients may (RFC 9110
    ///     §13.1.3). Off by default: not every server compares.
    package init(revalidating stored: [Validators], for request: HTTPRequest, usesDate: Bool = false) {
        client = ClientPreconditions(request.headerFields)
        var fields = request.headerFields.leavingOut { isPrecondition($0) || $0 == .range }
        var asked: [Validators] = []
        var places: [Int] = []
        var tags: [EntityTag] = []
        for (place, validators) in stored.enumerated() {
            guard tags.count < 32, let tag = validators.entityTag else { continue }
            asked.append(validators)
            places.append(place)
            if !tags.contains(tag) { tags.append(tag) }
        }
        if !tags.isEmpty {
            let list = Array(tags.map(\.bytes).joined(separator: Array(", ".utf8)))
            fields.append(HTTPField(name: .ifNoneMatch, value: list))
        }
        if stored.count == 1, let only = stored.first {
            if let time = only.lastModified ?? (usesDate && only.entityTag == nil ? only.date : nil) {
                fields[.ifModifiedSince] = time.description
                (asked, places) = ([only], [0])
            }
        }
        self.asked = asked
        self.places = places
        self.request = request
        self.request.headerFields = fields
    }
}

/// Whether a field makes a request conditional (RFC 9110 §13.1).
func isPrecondition(_ name: HTTPField.Name) -> Bool {
    switch name.canonicalName {
    case "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range": true
    default: false
    }
}
