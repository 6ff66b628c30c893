import TileStore

/// What the cache has of a tile, reduced to what decides about its use.
struct CacheState: Hashable, Sendable {
    /// Seconds since it turned stale; negative while it is fresh.
    var staleFor: Int64
    /// Whether it was stored in the future: a clock has gone back, and its times mean nothing.
    var isFromTheFuture = false
    var noCache = false
    var mustRevalidate = false
    var staleWhileRevalidate: Int64 = 0
    var staleIfError: Int64 = 0
    /// Whether the server has said so itself, be it 0; read from the header only when a fetch has failed.
    var statesStaleIfError = false
    var isPinned = false

    init(_ entry: TileEntry, now: Timestamp) {
        let metadata = entry.metadata
        let response = metadata.response
        staleFor = now.seconds &- metadata.expires.seconds
        isFromTheFuture = metadata.storedAt > now.adding(seconds: 60)
        noCache = response.noCache
        mustRevalidate = response.mustRevalidate
        staleWhileRevalidate = Int64(response.staleWhileRevalidate)
        staleIfError = Int64(response.staleIfError)
        isPinned = entry.isPinned
    }

    init(staleFor: Int64) { self.staleFor = staleFor }

    /// Whether it may be used without asking (RFC 9111 §4.2).
    var isFresh: Bool { staleFor < 0 && !isFromTheFuture && !noCache }
}

/// Why a fetch brought nothing, as far as it decides about stale tiles.
enum FetchSetback: Hashable, Sendable {
    /// No answer: offline, time-out, a host that is left alone because it gave none.
    case unreachable
    /// An answer that is an error.
    case refused
}

/// The rules of the load modes, as values.
enum LoadDecision: Hashable, Sendable {
    /// Served as it is; `nil` for a reason if it is fresh.
    case serve(StaleReason?)
    /// Served, and refreshed in the background.
    case serveAndRefresh
    /// The server is asked, with the validators of what is there.
    case ask
    /// There is nothing, and nobody may be asked.
    case nothing

    /// What to do first.
    static func first(_ mode: LoadMode, _ state: CacheState?) -> LoadDecision {
        guard let state else { return mode == .cacheOnly ? .nothing : .ask }
        switch mode {
        case .serverOnly, .serverThenCache:
            return .ask
        case .cacheOnly, .cacheThenServer:
            return .serve(state.isFresh ? nil : .offline)
        case .standard:
            if state.isFresh { return .serve(nil) }
            let mayWait = !state.noCache && !state.mustRevalidate && !state.isFromTheFuture
            return mayWait && state.staleFor < state.staleWhileRevalidate ? .serveAndRefresh : .ask
        }
    }

    /// What to do with a tile that is there after the server could not be asked.
    ///
    /// - Returns: ``serve(_:)``, or ``nothing``: then the failure is the answer.
    static func afterSetback(
        _ setback: FetchSetback, _ mode: LoadMode, _ state: CacheState, _ lifetimes: LifetimeRules,
        _ offlineUse: OfflineUse
    ) -> LoadDecision {
        if mode == .serverOnly { return .nothing }
        if state.isFresh { return .serve(nil) }
        guard mode == .standard else { return .serve(.error) }
        if offlineUse == .always || state.isPinned { return .serve(.offline) }
        if state.noCache || state.mustRevalidate { return .nothing }
        switch setback {
        case .unreachable:
            return .serve(.error)
        case .refused:
            // The server's own word counts, where it has given one.
            let stated = state.staleIfError
            let isStated = stated > 0 || state.statesStaleIfError
            let allowed = isStated ? stated : lifetimes.staleOnError.components.seconds
            // Of what was stored in the future nobody knows how stale it is.
            return !state.isFromTheFuture && state.staleFor < allowed ? .serve(.error) : .nothing
        }
    }
}
