package import HTTPCaching
package import HTTPTypes
package import TileStore

/// What to do with the head of an origin's answer: a value, decided without a socket, a store or a clock.
package enum OriginDecision: Sendable {
    /// Hand it on, and store it if there is an intent to.
    case pass(StoreIntent?)
    /// It confirms what is stored: answer from that, brought up to date.
    case confirmed(StoredResponse, StoreIntent, Update)
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

        package init(_ fresh: AnswerRecord, of candidate: Candidate) {
            switch fresh.storability {
            case .store where fresh.setsCookie:
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
        /// The entry.
        package var metadata: TileMetadata
        /// Which request fields chose it.
        package var vary: [HTTPField.Name]

        /// The status of the answer.
        package var status: Int { metadata.response.status }
    }

    /// Decides.
    package static func decide(
        _ response: HTTPResponse, to request: CacheRequest, _ forwarding: Forwarding, _ use: CacheUse,
        requestedAt: HTTPDate, receivedAt: HTTPDate
    ) -> OriginDecision {
        let status = response.status.code
        if status == 304 { return notModified(response, request, forwarding, use, requestedAt, receivedAt) }
        if let candidate = forwarding.candidate,
            use.mayServe(candidate.response, after: .status(status), asking: request.asking, at: receivedAt)
        {
            return .serveStale
        }
        guard request.isForCache else { return .pass(nil) }
        return .pass(intent(response, to: request, use, requestedAt, receivedAt))
    }

    private static func notModified(
        _ response: HTTPResponse, _ request: CacheRequest, _ forwarding: Forwarding, _ use: CacheUse,
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
            let fresh = use.refreshed(
                candidate.response, by: response, to: request.httpRequest, requestedAt: requestedAt,
                receivedAt: receivedAt)
            return .confirmed(fresh.response, fresh.record.intent, Update(fresh.record, of: candidate))
        }
    }

    private static func intent(
        _ response: HTTPResponse, to request: CacheRequest, _ use: CacheUse, _ requestedAt: HTTPDate,
        _ receivedAt: HTTPDate
    ) -> StoreIntent? {
        // A query may hold a secret, and is never written down: not by a redirect either that repeats it.
        if let mark = request.target.utf8.firstIndex(of: UInt8(ascii: "?")),
            case let query = request.target[mark...].dropFirst(), !query.isEmpty,
            response.headerFields[.location]?.contains(query) ?? false
        {
            return nil
        }
        guard
            let record = use.storableRecord(
                response, to: request.httpRequest, requestedAt: requestedAt, receivedAt: receivedAt)
        else { return nil }
        let freshness = record.freshness.stored
        // Not worth a write: stale at once, not to be confirmed, and never meant to be served without asking. If other
        // caches have used its lifetime up (`Age`), `max-stale` or an origin that is away may still find a use for it.
        let isUsableStale =
            !freshness.noCache && !freshness.mustRevalidate
            && (freshness.staleWhileRevalidate > 0 || freshness.staleIfError > 0 || record.freshness.lifetime > 0)
        guard
            freshness.expires > receivedAt || isUsableStale
                || !Validators(response.headerFields, now: receivedAt).isEmpty
        else { return nil }
        return record.intent
    }
}

extension OriginDecision.StoreIntent {
    /// Whether the response, once stored, may answer others without asking the origin.
    package func isReusable(at now: HTTPDate) -> Bool {
        !metadata.response.noCache && StoredFreshness(of: metadata).isFresh(at: now)
    }
}
