package import HTTPTypes

/// A stored response as the rules see it: its head, its numbers, and what chose it; not its bytes.
package struct StoredResponse: Hashable, Sendable {
    /// The status.
    package var status: HTTPResponse.Status
    /// The fields as stored: those of ``CachePolicy/fieldsToStore(_:)``.
    package var fields: HTTPFields
    /// The numbers of its freshness.
    package var freshness: StoredFreshness
    /// The request fields that `Vary` names, as they were in the request that it answered.
    package var selectingFields: HTTPFields

    /// Puts one together.
    @inlinable
    package init(
        status: HTTPResponse.Status, fields: HTTPFields, freshness: StoredFreshness,
        selectingFields: HTTPFields = HTTPFields()
    ) {
        self.status = status
        self.fields = fields
        self.freshness = freshness
        self.selectingFields = selectingFields
    }

    /// Its validators and `Date`; a `Date` later than its receipt counts as the time of receipt.
    @inlinable
    package var validators: Validators {
        var validators = Validators(fields, now: freshness.storedAt)
        validators.date = validators.date.map { min($0, freshness.storedAt) }
        return validators
    }

    /// The head of the answer that reuses it: the stored fields, with an `Age` made anew (RFC 9111 §4, §5.1).
    package func response(age: Int) -> HTTPResponse {
        var fields = fields
        fields[.age] = String(DeltaSeconds.clamp(age))
        return HTTPResponse(status: status, headerFields: fields)
    }
}

/// What identifies a version of a representation: its entity tag and its time of modification.
package struct Validators: Hashable, Sendable {
    /// The `ETag`.
    package var entityTag: EntityTag?
    /// The `Last-Modified`.
    package var lastModified: HTTPDate?
    /// The `Date`: not a validator, but what tells a strong `Last-Modified` from a weak one.
    package var date: HTTPDate?

    /// Makes validators.
    package init(entityTag: EntityTag? = nil, lastModified: HTTPDate? = nil, date: HTTPDate? = nil) {
        self.entityTag = entityTag
        self.lastModified = lastModified
        self.date = date
    }

    /// Reads them from a response; what is invalid counts as missing.
    ///
    /// - Parameter now: For two-digit years, see ``HTTPDate/init(parsing:now:)``.
    package init(_ fields: HTTPFields, now: HTTPDate) {
        entityTag = fields.firstField(.eTag).flatMap { EntityTag($0) }
        lastModified = fields.first(.lastModified).flatMap { HTTPDate(parsing: $0, now: now) }
        date = fields.first(.date).flatMap { HTTPDate(parsing: $0, now: now) }
    }

    /// Whether there is anything to revalidate with.
    package var isEmpty: Bool { entityTag == nil && lastModified == nil }

    /// The `Last-Modified`, if two versions cannot share it: it is at least a second before `Date` (RFC 9110 §8.8.2.2).
    package var strongLastModified: HTTPDate? {
        guard let lastModified, let date, lastModified.adding(seconds: 1) <= date else { return nil }
        return lastModified
    }
}

extension CachePolicy {
    /// Picks the stored response that answers a request, of those stored for its URI: its index, or `nil`.
    ///
    /// Only those count whose `Vary` matches; of these the one with the latest `Date` (RFC 9111 §4, §4.1).
    package func selection(from stored: [StoredResponse], for request: HTTPFields) -> Int? {
        var best: (index: Int, date: HTTPDate)?
        for (index, response) in stored.enumerated() {
            guard Vary(response.fields).matches(response.selectingFields, request) else { continue }
            let date = response.validators.date ?? response.freshness.storedAt
            if best.map({ date > $0.date || (date == $0.date && isNewer(index, $0.index, in: stored)) }) ?? true {
                best = (index, date)
            }
        }
        return best?.index
    }

    private func isNewer(_ a: Int, _ b: Int, in stored: [StoredResponse]) -> Bool {
        stored[a].freshness.storedAt > stored[b].freshness.storedAt
    }
}
