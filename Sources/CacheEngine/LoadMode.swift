/// Whether the cache or the server is asked for a tile, and in which order.
public enum LoadMode: Hashable, Sendable, CaseIterable {
    /// What HTTP says: a fresh tile from the cache, a stale one after asking the server whether it still holds.
    ///
    /// Within `stale-while-revalidate` a stale tile is served at once and refreshed meanwhile; where the server fails, a
    /// stale tile is served if the server's directives allow it.
    case standard
    /// What the cache has, however old; the server only for what it lacks.
    case cacheThenServer
    /// The server's word, by a conditional request where that is possible; what the cache has, however old, if it fails.
    case serverThenCache
    /// What the cache has, however old, and nothing else: no request is ever sent.
    case cacheOnly
    /// The server alone: nothing is read from the cache and nothing is stored.
    case serverOnly
}

/// Why a tile is served although it is stale.
public enum StaleReason: Hashable, Sendable {
    /// It is being refreshed at this moment (RFC 5861 §3).
    case whileRevalidating
    /// The server could not be reached or failed (RFC 5861 §4, RFC 9111 §4.2.4).
    case error
    /// No request was allowed: the mode, or the source's own rule, says that the cached tile is good enough.
    case offline
}
