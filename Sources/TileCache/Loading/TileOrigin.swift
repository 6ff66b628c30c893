import CacheEngine

/// Where a tile came from.
public enum TileOrigin: Hashable, Sendable {
    /// The memory tier; fresh.
    case memory
    /// The cache's folder, or a local file of the source; fresh.
    case disk
    /// The cache, after the server said that it still holds (304).
    case revalidated
    /// The server.
    case network
    /// The cache, past its expiry.
    case stale(StaleReason)
    /// Made from a tile of a lower zoom.
    case overzoomed
}
