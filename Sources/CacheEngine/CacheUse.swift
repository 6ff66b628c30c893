package import HTTPCaching
package import TileStore

/// What differs between the uses of the engine: a value that both machines are given.
package struct CacheUse: Sendable {
    /// Whose requests reach the origin.
    package enum Requests: Hashable, Sendable {
        /// Those of clients, with their fields: `Vary` chooses by them, and their credentials are theirs.
        case clients
        /// The cache's own, the same for each key: nothing of a client's reaches the origin, `Vary` has nothing to choose
        /// by, and credentials are those of the cache's owner.
        case fixed
    }

    /// Which fields of a response its entry keeps.
    package enum Fields: Hashable, Sendable {
        /// All that ``CachePolicy/fieldsToStore(_:)`` leaves, exactly as they were.
        case all
        /// The validators, the body's type and coding, and what decides about freshness: few fields, equal for most
        /// responses of a source, so that a million entries share one set.
        case deciding
    }

    /// The rules of storing and reusing: private or shared, with or without a lifetime that is guessed.
    package var policy: CachePolicy
    /// Whose requests reach the origin.
    package var requests: Requests
    /// Which fields an entry keeps.
    package var fields: Fields
    /// How many seconds an absence (204, 404, 410) is remembered that has no lifetime of its own; `nil` for as long as the
    /// policy says.
    package var absentLifetime: Int?
    /// How many seconds past its expiry a response may be served after an error that does not say so (`stale-if-error`).
    package var staleOnError = 0
    /// Whether every answer that is not what was asked for is an error in the sense of RFC 5861 §4: 401, 403, 429 and all
    /// others.
    ///
    /// Where clients' requests are handed on so are such answers, and only 500, 502, 503 and 504 are errors. Where nothing is
    /// handed on there is nothing better than what is stored.
    package var countsRefusals = false
    /// Whether what is stored is served whenever the origin fails, though its directives forbid it: the owner's choice.
    package var servesStaleAlways = false
    /// Whether those who wait for another's request take what becomes of it for their own, also where that cannot be stored
    /// for others: a failure, or an answer that must be confirmed before each further use.
    ///
    /// So it is where all who ask are one app; the clients of a proxy are not. What a fill of the fixed use brings is always
    /// everybody's, and is not asked about here.
    package var sharesOutcomes = false
    /// The largest body that is stored.
    package var storedBodyBytes: Int
    /// The name of the cache in `Cache-Status` (RFC 9211 §2).
    package var name: String

    /// The use of a proxy: the clients' own requests, and responses as the origin sent them.
    package init(policy: CachePolicy, storedBodyBytes: Int, name: String) {
        self.policy = policy
        requests = .clients
        fields = .all
        self.storedBodyBytes = storedBodyBytes
        self.name = name
    }

    /// The use of map tiles: one request for each tile, and entries that share their fields.
    ///
    /// - Parameters:
    ///   - absent: How many seconds the absence of a tile is remembered where the origin does not say.
    ///   - staleOnError: How many seconds past its expiry a tile may be served after an error, where the origin does not say.
    package init(
        tiles policy: CachePolicy, absent: Int, staleOnError: Int, storedBodyBytes: Int, name: String
    ) {
        self.policy = policy
        requests = .fixed
        fields = .deciding
        absentLifetime = absent
        self.staleOnError = staleOnError
        countsRefusals = true
        self.storedBodyBytes = storedBodyBytes
        self.name = name
    }
}

/// Which other URLs of an origin have keys in the cache: those that an answer to a change may name.
package struct ResourceScope: Sendable {
    /// Scheme and authority of the origin, such as `https://host:8443`.
    package let origin: String
    /// The key of a path and query at the origin; `nil` if the cache has none for it.
    package let key: @Sendable (_ path: String, _ query: String?) -> TileKey?
    /// The names that clients have for the same resources; only a change needs them.
    package var aliases: [Alias]

    /// A name that clients have for the request's URL, and by which an origin behind a proxy may name others.
    package struct Alias: Sendable {
        /// The request's URL, with scheme and authority.
        package let target: URIReference
        /// The key of a path and query in these terms; `nil` if the cache has none for it.
        package let key: @Sendable (_ path: String, _ query: String?) -> TileKey?

        package init(target: URIReference, key: @escaping @Sendable (_ path: String, _ query: String?) -> TileKey?) {
            self.target = target
            self.key = key
        }
    }

    package init(
        origin: String, aliases: [Alias] = [],
        key: @escaping @Sendable (_ path: String, _ query: String?) -> TileKey?
    ) {
        self.origin = origin
        self.key = key
        self.aliases = aliases
    }
}
