import HTTPCaching
import HTTPTypes

/// What to do with the head of an origin's answer: a value, decided without a socket, a store or a clock.
enum OriginDecision: Sendable {
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
    enum Update: Hashable, Sendable {
        /// It is brought up to date.
        case refresh
        /// It stays as it is: the confirmation was for one client alone.
        case leave
        /// It must not stay.
        case remove

        init(_ storability: Storability) {
            switch storability {
            case .store: self = .refresh
            // A client's wish and a client's credentials are no reason to take from others what they may have.
            case .doNotStore(.requestNoStore), .doNotStore(.authorization): self = .leave
            case .doNotStore: self = .remove
            }
        }
    }

    /// What is to be stored of an answer.
    struct StoreIntent: Hashable, Sendable {
        /// The fields to keep.
        var fields: HTTPFields
        /// The numbers of its freshness.
        var freshness: StoredFreshness
        /// Which request fields chose it.
        var vary: [HTTPField.Name]
    }

    /// Decides.
    static func decide(
        _ response: HTTPResponse, to request: ProxyRequest, _ forwarding: Forwarding, policy: CachePolicy,
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
        _ response: HTTPResponse, _ request: ProxyRequest, _ forwarding: Forwarding, _ policy: CachePolicy,
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
            return .confirmed(fresh.response, Update(fresh.storability))
        }
    }

    private static func intent(
        _ response: HTTPResponse, to request: ProxyRequest, _ policy: CachePolicy, _ requestedAt: HTTPDate,
        _ receivedAt: HTTPDate
    ) -> StoreIntent? {
        guard policy.storability(of: response, to: request.httpRequest).isStorable else { return nil }
        var names: [HTTPField.Name] = []
        if case .fields(let found) = Vary(response.headerFields) { names = found }
        let freshness = policy.freshness(of: response, requestedAt: requestedAt, receivedAt: receivedAt).stored
        // What is stale at once and cannot be asked about would be written for nothing.
        let isAskable = !Validators(response.headerFields, now: receivedAt).isEmpty
        let isUsableStale =
            !freshness.noCache && !freshness.mustRevalidate
            && (freshness.staleWhileRevalidate > 0 || freshness.staleIfError > 0)
        guard isAskable || freshness.expires > receivedAt || isUsableStale else { return nil }
        var fields = policy.fieldsToStore(response.headerFields)
        // A recipient with a clock adds what is missing (RFC 9110 §6.6.1).
        if !fields.contains(.date) { fields[.date] = receivedAt.description }
        return StoreIntent(fields: fields, freshness: freshness, vary: names)
    }
}

extension OriginDecision.StoreIntent {
    /// Whether the response, once stored, may answer others without asking the origin.
    func isReusable(at now: HTTPDate) -> Bool { !freshness.noCache && freshness.isFresh(at: now) }
}
