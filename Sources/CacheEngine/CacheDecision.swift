package import HTTPCaching
package import HTTPTypes

/// What to do with a request, given what is stored: a value, decided without a socket, a store or a clock.
package enum CacheDecision: Sendable {
    /// Answer from the store; with a refresh behind the client's back if it is stale.
    case serve(Candidate, age: Int, isStale: Bool, refresh: Bool)
    /// Answer 504: the client wanted a stored response only (RFC 9111 §5.2.1.7).
    case gatewayTimeout
    /// Ask the origin.
    case forward(Forwarding)

    /// Decides.
    package static func decide(_ request: CacheRequest, _ lookup: Lookup, at now: HTTPDate) -> CacheDecision {
        guard request.isForCache else {
            let isRead = request.method == .get || request.method == .head
            if isRead, request.asking.onlyIfCached { return .gatewayTimeout }
            return .forward(Forwarding(request, nil, isRead ? .bypass : .method))
        }
        let candidate: Candidate
        switch lookup {
        case .found(let found): candidate = found
        case .miss, .mustWait, .varyMiss:
            if request.asking.onlyIfCached { return .gatewayTimeout }
            if case .varyMiss = lookup { return .forward(Forwarding(request, nil, .varyMiss)) }
            return .forward(Forwarding(request, nil, .uriMiss))
        }
        let stored = candidate.response
        let outcome = request.conditions.outcome(
            for: stored.validators, status: stored.status.code, method: request.method, now: now)
        if outcome == .forward, !request.asking.onlyIfCached { return .forward(Forwarding(request, nil, .bypass)) }
        switch stored.freshness.decision(asking: request.asking, at: now) {
        case .fresh(let age): return .serve(candidate, age: age, isStale: false, refresh: false)
        case .stale(let age): return .serve(candidate, age: age, isStale: true, refresh: false)
        case .staleWhileRevalidate(let age): return .serve(candidate, age: age, isStale: true, refresh: true)
        case .gatewayTimeout: return .gatewayTimeout
        case .revalidate(let cause, _):
            return .forward(Forwarding(request, candidate, cause == .request ? .request : .stale))
        }
    }
}

/// How a request goes to the origin, and what may be made of the answer.
///
/// A class, for it is handed from state to state and never changes: that costs one count of references each time, and not
/// one for each of its parts.
package final class Forwarding: Sendable {
    /// The stored response that is asked about, if there is one.
    package let candidate: Candidate?
    /// Why, for `Cache-Status`.
    package let cause: CacheStatus.Forward
    /// The question about what is stored; `nil` where the client's own conditions go on as they are.
    package let conditional: ConditionalRequest?
    /// The fields to send.
    package let fields: HTTPFields
    /// Whether others may wait for this answer, or this request for another's.
    ///
    /// Not if the client has conditions, a range or wishes of its own, for then its answer is not everybody's.
    package let mayCollapse: Bool

    package init(_ request: CacheRequest, _ candidate: Candidate?, _ cause: CacheStatus.Forward) {
        self.cause = cause
        guard let candidate else {
            self.candidate = nil
            conditional = nil
            fields = request.fields
            mayCollapse =
                request.isForCache && request.method == .get && request.conditions.isEmpty
                && request.asking == .none && cause != .bypass
            return
        }
        self.candidate = candidate
        let question = ConditionalRequest(
            revalidating: [candidate.response.validators], for: request.httpRequest)
        conditional = question
        fields = question.request.headerFields
        mayCollapse = request.method == .get && !request.asking.noCache && !request.asking.noStore && cause == .stale
    }
}
