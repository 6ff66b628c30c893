/// What to do with a stored response that matches a request (RFC 9111 §4).
package enum ReuseDecision: Hashable, Sendable {
    /// Serve it; it is fresh. `age` is the `Age` to send.
    case fresh(age: Int)
    /// Serve it though it is stale, because the client's `max-stale` takes it (§5.2.1.2).
    case stale(age: Int)
    /// Serve it though it is stale, and refresh it meanwhile (RFC 5861 §3).
    case staleWhileRevalidate(age: Int)
    /// Ask the origin first; if it fails, ``StaleUse`` says what is left.
    case revalidate(Cause, ifOriginFails: StaleUse)
    /// The client asked for a stored response only, and this one will not do: answer 504 (§5.2.1.7).
    case gatewayTimeout

    /// Why a stored response cannot be used as it is.
    package enum Cause: Hashable, Sendable {
        /// It is stale.
        case stale
        /// The response's `no-cache` (§5.2.2.4).
        case noCache
        /// The request's `no-cache`, `max-age` or `min-fresh` wants something newer (§5.2.1).
        case request
    }

    /// When a response that could not be revalidated may be served all the same (§4.2.4).
    package enum StaleUse: Hashable, Sendable {
        /// Never.
        case never
        /// If the origin cannot be reached; not if it answers with an error.
        case ifUnreachable
        /// Also if it answers 500, 502, 503 or 504 (RFC 5861 §4).
        case ifError
    }
}

/// How an origin failed to answer.
package enum OriginFailure: Hashable, Sendable {
    /// No connection, no answer in time, or an answer that broke off.
    case unreachable
    /// An answer with this status.
    case status(Int)
}

extension StoredFreshness {
    /// Decides on the reuse of a stored response that matches the request.
    ///
    /// Allocates nothing and reads no text: for the path of a hit. Pass ``RequestCacheControl/none`` where clients have
    /// no say.
    ///
    /// A stale response is not served while it is refreshed if it must be revalidated, or if the request asks for
    /// something newer.
    package func decision(asking request: RequestCacheControl = .none, at now: HTTPDate) -> ReuseDecision {
        let fresh = isFresh(at: now)
        if !noCache {
            if fresh, isNewEnough(request, at: now) { return .fresh(age: age(at: now)) }
            if !fresh, !mustRevalidate, takesStale(request, at: now) {
                let staleness = staleness(at: now)
                if staleness < staleWhileRevalidate { return .staleWhileRevalidate(age: age(at: now)) }
                if let most = request.maxStale, staleness <= most, staleness != .max {
                    return .stale(age: age(at: now))
                }
            }
        }
        if request.onlyIfCached { return .gatewayTimeout }
        let cause: ReuseDecision.Cause = noCache ? .noCache : fresh ? .request : .stale
        return .revalidate(cause, ifOriginFails: staleUse(asking: request, at: now))
    }

    /// When the response may be served although the origin could not confirm it, as things are at a time.
    ///
    /// `stale-if-error`, of the response or the request, permits it on errors too. Without it, or past it, a cache may
    /// serve stale only while it is disconnected, whatever the age (RFC 9111 §4.2.4). `must-revalidate` and `no-cache`
    /// forbid both; so does a request's `no-cache`, whose client wants the origin's word.
    package func staleUse(asking request: RequestCacheControl = .none, at now: HTTPDate) -> ReuseDecision.StaleUse {
        let fresh = isFresh(at: now)
        // While it is fresh, must-revalidate is satisfied.
        if noCache || (mustRevalidate && !fresh) || request.noCache { return .never }
        if fresh { return .ifError }
        let window = max(staleIfError, request.staleIfError ?? 0)
        return staleness(at: now) < window ? .ifError : .ifUnreachable
    }

    /// Whether the response may be served after the origin failed in a certain way.
    package func mayServe(
        after failure: OriginFailure, asking request: RequestCacheControl = .none, at now: HTTPDate
    ) -> Bool {
        switch (staleUse(asking: request, at: now), failure) {
        case (.never, _): false
        case (_, .unreachable): true
        case (.ifError, .status(500)), (.ifError, .status(502)), (.ifError, .status(503)), (.ifError, .status(504)):
            true
        default: false
        }
    }

    private func isNewEnough(_ request: RequestCacheControl, at now: HTTPDate) -> Bool {
        if request.noCache { return false }
        if let least = request.minFresh, expires.seconds(since: now) < least { return false }
        // A reload of what is immutable is not worth a question while it is fresh (RFC 8246 §2). A forced reload is
        // `no-cache`, and is.
        return isYoungEnough(request, at: now) || (immutable && request.maxAge == 0)
    }

    /// Who gives a `max-age` wants nothing stale unless there is a `max-stale` too (§5.2.1.1).
    private func takesStale(_ request: RequestCacheControl, at now: HTTPDate) -> Bool {
        !request.noCache && request.minFresh == nil && (request.maxAge == nil || request.maxStale != nil)
            && isYoungEnough(request, at: now)
    }

    private func isYoungEnough(_ request: RequestCacheControl, at now: HTTPDate) -> Bool {
        request.maxAge.map { age(at: now) <= $0 } ?? true
    }
}
