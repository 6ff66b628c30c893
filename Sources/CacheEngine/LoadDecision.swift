package import HTTPCaching

/// What a load mode makes of what is stored: the rules of a cache that is asked by its owner and not by HTTP.
package enum LoadDecision: Hashable, Sendable {
    /// Served as it is; `nil` for a reason if it is fresh.
    case serve(StaleReason?)
    /// Served, and refreshed in the background.
    case serveAndRefresh
    /// The origin is asked, with the validators of what is there.
    case ask
    /// There is nothing, and nobody may be asked.
    case nothing

    /// What to do first.
    ///
    /// - Parameter stored: The numbers of what is stored, if there is something.
    package static func first(_ mode: LoadMode, _ stored: StoredFreshness?, at now: HTTPDate) -> LoadDecision {
        guard let stored else { return mode == .cacheOnly ? .nothing : .ask }
        switch mode {
        case .serverOnly, .serverThenCache: return .ask
        case .cacheOnly, .cacheThenServer: return .serve(isFresh(stored, at: now) ? nil : .offline)
        case .standard:
            switch stored.decision(at: now) {
            case .fresh: return .serve(nil)
            case .staleWhileRevalidate: return .serveAndRefresh
            case .stale, .revalidate, .gatewayTimeout: return .ask
            }
        }
    }

    /// What to do with what is stored after the origin could not be asked, or its answer was of no use.
    ///
    /// - Parameter isPinned: Whether somebody relies on it, who asked for it to be kept.
    /// - Returns: ``serve(_:)``, or ``nothing``: then the failure is the answer.
    package static func after(
        _ failure: OriginFailure, _ mode: LoadMode, _ stored: StoredResponse, isPinned: Bool, _ use: CacheUse,
        at now: HTTPDate
    ) -> LoadDecision {
        if mode == .serverOnly { return .nothing }
        if isFresh(stored.freshness, at: now) { return .serve(nil) }
        guard mode == .standard else { return .serve(.error) }
        if use.servesStaleAlways || isPinned { return .serve(.offline) }
        return use.mayServe(stored, after: failure, at: now) ? .serve(.error) : .nothing
    }

    /// Whether it may be used without asking (RFC 9111 §4.2).
    private static func isFresh(_ stored: StoredFreshness, at now: HTTPDate) -> Bool {
        stored.isFresh(at: now) && !stored.noCache
    }
}

extension CacheUse {
    /// Whether a stored response may stand in for an answer after the origin has failed so (RFC 9111 §4.2.4, RFC 5861 §4).
    ///
    /// The one rule of all uses; what differs is ``staleOnError`` and ``countsRefusals``.
    package func mayServe(
        _ stored: StoredResponse, after failure: OriginFailure, asking: RequestCacheControl = .none, at now: HTTPDate
    ) -> Bool {
        var freshness = stored.freshness
        // The origin's own word counts, where it has given one, be it 0.
        if staleOnError > 0, freshness.staleIfError == 0,
            policy.directives(of: stored.fields).cacheControl.staleIfError == nil
        {
            freshness.staleIfError = staleOnError
        }
        var failure = failure
        if countsRefusals, failure != .unreachable { failure = .status(503) }
        return freshness.mayServe(after: failure, asking: asking, at: now)
    }
}
