package import HTTPCaching
package import HTTPTypes

/// What to do with the head of an origin's answer: a value, decided without a socket, a store or a clock.
package enum OriginDecision: Sendable {
    /// Hand it on, and store it if there is an intent to.
    case pass(StoreIntent?)
    /// It confirms what is stored: answer from that, brought up to date.
    case confirmed(StoredResponse, Update)
    /// Answer from what is stored though it is stale (RFC 5861 §4).
    case serveStale
    /// A 304 about nothing that is stored: ask again without conditions.
    case askAgain
    /// A 304 that nobody asked for.
    case badGateway

    /// What becomes of a stored response that was confirmed.
    package enum Update: Hashable, Sendable {
        /// It is brought up to date.
        case refresh
        /// It stays as it is: the confirmation was for one client alone.
        case leave
        /// It must not stay.
        case remove

        package init(_ fresh: FreshenedResponse, of candidate: Candidate) {
            switch fresh.storability {
            case .store where mustNotKeepCookies(of: fresh.response.fields, fresh.freshness):
                // The cookie is for the client that brought the confirmation, and takes nothing from others.
                self = candidate.response.fields.contains(.setCookie) ? .remove : .leave
            case .store: self = .refresh
            // A client's wish and a client's credentials are no reason to take from others what they may have.
            case .doNotStore(.requestNoStore), .doNotStore(.authorization): self = .leave
            case .doNotStore: self = .remove
            }
        }
    }

    /// What is to be stored of an answer.
    package struct StoreIntent: Hashable, Sendable {
        /// The fields to keep.
        package var fields: HTTPFields
        /// The numbers of its freshness.
        package var freshness: StoredFreshness
        /// Which request fields chose it.
        package var vary: [HTTPField.Name]
    }

    /// Decides.
    package static func decide(
        _ response: HTTPResponse, to request: CacheRequest, _ forwarding: Forwarding, policy: CachePolicy,
        requestedAt: HTTPDate, receivedAt: HTTPDate
    ) -> OriginDecision {
        let status = response.status.code
        if status == 304 { return notModified(response, request, forwarding, policy, requestedAt, receivedAt) }
        if let candidate = forwarding.candidate,
            candidate.response.freshness.mayServe(after: .status(status), asking: request.asking, at: receivedAt)
        {
            return .serveStale
        }
        guard request.isForCache else { return .pass(nil) }
        return .pass(intent(response, to: request, policy, requestedAt, receivedAt))
    }

    private static func notModified(
        _ response: HTTPResponse, _ request: CacheRequest, _ forwarding: Forwarding, _ policy: CachePolicy,
        _ requestedAt: HTTPDate, _ receivedAt: HTTPDate
    ) -> OriginDecision {
        guard let candidate = forwarding.candidate, let question = forwarding.conditional else {
            // The client's own conditions went on: the 304 is for it.
            return request.conditions.isEmpty ? .badGateway : .pass(nil)
        }
        switch NotModifiedOutcome(response.headerFields, asked: question.asked, now: receivedAt) {
        case .unrelated: return .askAgain
        case .unsolicited: return .badGateway
        case .confirmed:
            let fresh = policy.freshen(
                candidate.response, with: response, to: request.httpRequest, requestedAt: requestedAt,
                receivedAt: receivedAt)
            return .confirmed(fresh.response, Update(fresh, of: candidate))
        }
    }

    private static func intent(
        _ response: HTTPResponse, to request: CacheRequest, _ policy: CachePolicy, _ requestedAt: HTTPDate,
        _ receivedAt: HTTPDate
    ) -> StoreIntent? {
        guard policy.storability(of: response, to: request.httpRequest).isStorable else { return nil }
        let names = Vary(response.headerFields).names
        let found = policy.freshness(of: response, requestedAt: requestedAt, receivedAt: receivedAt)
        var fields = policy.fieldsToStore(response.headerFields)
        guard !mustNotKeepCookies(of: fields, found) else { return nil }
        let freshness = found.stored
        // What is stale at once and cannot be asked about would be written for nothing.
        let isAskable = !Validators(response.headerFields, now: receivedAt).isEmpty
        let isUsableStale =
            !freshness.noCache && !freshness.mustRevalidate
            && (freshness.staleWhileRevalidate > 0 || freshness.staleIfError > 0)
        guard isAskable || freshness.expires > receivedAt || isUsableStale else { return nil }
        // A recipient with a clock adds what is missing (RFC 9110 §6.6.1).
        if !fields.contains(.date) { fields[.date] = receivedAt.description }
        return StoreIntent(fields: fields, freshness: freshness, vary: names)
    }
}

/// Whether a response with these fields to store sets a cookie and so must not be stored.
///
/// A cookie is mostly one user's. A response that sets one is stored only if the origin itself gives it a lifetime, and so
/// says that all may have it until then (RFC 9111 §7.3). A guessed lifetime says no such thing, nor does a validator.
private func mustNotKeepCookies(of fields: HTTPFields, _ freshness: Freshness) -> Bool {
    fields.contains(.setCookie) && !freshness.isExplicit
}

extension OriginDecision.StoreIntent {
    /// Whether the response, once stored, may answer others without asking the origin.
    package func isReusable(at now: HTTPDate) -> Bool { !freshness.noCache && freshness.isFresh(at: now) }
}
