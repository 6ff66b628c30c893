package import HTTPTypes

/// What a 304 says about stored responses (RFC 9111 §4.3.3, §4.3.4).
package enum NotModifiedOutcome: Hashable, Sendable {
    /// The stored responses at these indices are still good: update them.
    case confirmed([Int])
    /// It confirms nothing that is stored: ask again without conditions.
    case unrelated
    /// The request had no condition: the server is in error. Ask again, or answer 502.
    case unsolicited
}

extension ConditionalRequest {
    /// What a 304 that answers this request says about the responses that it was made for, by their indices there.
    package func outcome(of notModified: HTTPResponse, now: HTTPDate) -> NotModifiedOutcome {
        let outcome = NotModifiedOutcome(notModified.headerFields, asked: asked, now: now)
        guard case .confirmed(let indices) = outcome else { return outcome }
        return .confirmed(indices.map { places[$0] })
    }
}

extension NotModifiedOutcome {
    /// Finds those of the validators asked about that a 304 confirms, by their indices.
    ///
    /// With a strong entity tag: those that have it, by strong comparison. Else with a weak one: the most recent that
    /// matches weakly. Else by `Last-Modified`: the most recent with the same. Without any validator: the one that was
    /// asked about, if there was only one.
    ///
    /// Where a single response was asked about, the 304 can mean only that one, so a tag that matches it weakly will
    /// do even if it is strong itself: servers weaken the tag of what they compress, and not that of the 304 for it.
    /// That, and a 304 without validators for a response that has some, are wider than the letter of §4.3.4.
    package init(_ response: HTTPFields, asked: [Validators], now: HTTPDate) {
        guard !asked.isEmpty else {
            self = .unsolicited
            return
        }
        let given = Validators(response, now: now)
        func latest(_ matches: (Validators) -> Bool) -> NotModifiedOutcome {
            let found = asked.indices.filter { matches(asked[$0]) }
            let best = found.max { (asked[$0].date?.seconds ?? .min) < (asked[$1].date?.seconds ?? .min) }
            return best.map { .confirmed([$0]) } ?? .unrelated
        }
        if let tag = given.entityTag {
            let same = asked.indices.filter { asked[$0].entityTag?.matchesStrongly(tag) ?? false }
            if !same.isEmpty {
                self = .confirmed(same)
            } else if tag.isWeak || asked.count == 1 {
                self = latest { $0.entityTag?.matchesWeakly(tag) ?? (asked.count == 1 && sameTime($0, given)) }
            } else {
                self = .unrelated
            }
        } else if given.lastModified != nil {
            self = latest { sameTime($0, given) }
        } else {
            self = asked.count == 1 ? .confirmed([0]) : .unrelated
        }
        func sameTime(_ a: Validators, _ b: Validators) -> Bool {
            a.lastModified != nil && a.lastModified == b.lastModified
        }
    }
}

/// A stored response after a 304 or a HEAD has updated it.
package struct FreshenedResponse: Hashable, Sendable {
    /// The response with its fields and numbers brought up to date.
    package var response: StoredResponse
    /// Its freshness in full, with where the lifetime came from.
    package var freshness: Freshness
    /// Whether it may stay stored: the update may have brought a `no-store` or `private`.
    ///
    /// If not, it may still answer the request at hand.
    package var storability: Storability
}

extension CachePolicy {
    /// Updates a stored response from a 304, or from a 200 to HEAD (RFC 9111 §3.2, §4.3.4).
    ///
    /// Each field of the update replaces all of that name that are stored. Never replaced: what ``fieldsToStore(_:)``
    /// leaves out, `Content-Length`, and what the stored bytes depend on: `Content-Encoding`, `Content-Type` (servers put
    /// that of an error page on a 304), `Transfer-Encoding`. No partial response is stored, so no bytes depend on
    /// `Content-Range`. `ETag` is added if there was
    /// none. A missing `Date` becomes the time of receipt: else the update would be as old as what it updates. With a
    /// new `Vary`, the selecting fields are those of this request.
    ///
    /// - Parameters:
    ///   - stored: The response that was confirmed.
    ///   - update: The 304, or the 200 to HEAD.
    ///   - request: The request that it answers; it decides with `Authorization` and `no-store` on storability.
    package func freshen(
        _ stored: StoredResponse, with update: HTTPResponse, to request: HTTPRequest, requestedAt: HTTPDate,
        receivedAt: HTTPDate
    ) -> FreshenedResponse {
        // HTTPTypes traps on more fields than anybody sends; an update as large as that is passed over.
        let sane = update.headerFields.count + stored.fields.count < 60_000
        let brought = sane ? fieldsToStore(update.headerFields) : HTTPFields()
        let hasTag = stored.fields.contains(.eTag)
        let replaced = Set(brought.map(\.name).filter { !dependsOn($0) && !($0 == .eTag && hasTag) })
        var fields = stored.fields.leavingOut(replaced.contains)
        for field in brought where replaced.contains(field.name) { fields.append(field) }
        let isDated = brought.first(.date).flatMap { HTTPDate(parsing: $0, now: receivedAt) } != nil
        if !isDated { fields[.date] = receivedAt.description }
        // Age belongs to the message that brought it, not to what is stored.
        var head = HTTPResponse(status: stored.status, headerFields: fields)
        head.headerFields[.age] = update.headerFields.first(.age)
        let directives = directives(of: head.headerFields)
        var freshness = freshness(of: head, directives, requestedAt: requestedAt, receivedAt: receivedAt)
        // A date of our own making orders nothing: once our clock has been set back, it would keep off every update.
        if !isDated { freshness.date = nil }
        var response = stored
        response.fields = fieldsToStore(fields, directives)
        response.freshness = freshness.stored
        if replaced.contains(.vary) {
            response.selectingFields = Vary(fields).selectingFields(of: request.headerFields)
        }
        let asking = RequestCacheControl(request.headerFields)
        let authorized = request.headerFields.contains(.authorization)
        return FreshenedResponse(
            response: response, freshness: freshness,
            storability: storability(
                of: head, method: .get, authorized: authorized, asking: asking, directives))
    }
}

/// Fields that the stored bytes depend on, and that no update replaces.
private func dependsOn(_ name: HTTPField.Name) -> Bool {
    switch name.canonicalName {
    case "content-encoding", "content-length", "content-type", "transfer-encoding": true
    default: false
    }
}
