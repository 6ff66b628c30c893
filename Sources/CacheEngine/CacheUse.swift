package import HTTPCaching
package import TileStore

/// What differs between the uses of the engine: a value that both machines are given.
package struct CacheUse: Sendable {
    /// The rules of storing and reusing: private or shared, with or without a lifetime that is guessed.
    package var policy: CachePolicy
    /// The largest body that is stored.
    package var storedBodyBytes: Int
    /// The name of the cache in `Cache-Status` (RFC 9211 §2).
    package var name: String

    package init(policy: CachePolicy, storedBodyBytes: Int, name: String) {
        self.policy = policy
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

    package init(origin: String, key: @escaping @Sendable (_ path: String, _ query: String?) -> TileKey?) {
        self.origin = origin
        self.key = key
    }
}
