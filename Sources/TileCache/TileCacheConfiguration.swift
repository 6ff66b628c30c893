import CacheEngine
public import TileStore

/// How a cache is opened, and how it treats servers.
public struct TileCacheConfiguration: Sendable {
    /// Limits and modes of the store on disk.
    public var store = StoreConfiguration()
    /// So many requests at most are under way to one host at a time.
    ///
    /// Never more than the transport has connections for (``TileTransport/requestsPerHost``): what waits inside the
    /// transport already spends its ``TileSource/timeout``. Raise both, if more are wanted.
    public var requestsPerHost = 6
    /// So many of ``requestsPerHost`` are only for tiles that somebody looks at (`FetchPriority.visible`); `nil` for a
    /// third of them.
    ///
    /// Without any, a download or a prefetch that has all its requests under way makes a visible tile wait for one of
    /// them to end. At least one request is always left to downloads.
    public var requestsForVisible: Int?
    /// How long what has failed is left alone.
    public var backoff = Backoff()
    /// Sent with every request, unless the source has one of its own; `nil` for the program's name and this library's.
    ///
    /// Many tile services, OpenStreetMap's among them, block clients that do not say who they are: name your app and a
    /// way to reach you.
    public var userAgent: String?
    /// Hosts that may be asked for whole regions although their terms forbid it to the public, because yours allow it.
    public var bulkAllowedHosts: Set<String> = []
    /// Told of everything that the cache does: hits, misses, requests, evictions, downloads, and what went wrong without being
    /// anybody's answer (``TileCacheEvent/isTrouble``).
    ///
    /// Called on any thread, within what it tells of; must return soon. On Apple platforms `TileCacheLog` writes it to the system's
    /// log.
    public var onEvent: (@Sendable (TileCacheEvent) -> Void)?
    /// Tells downloads of the network: which kind it is (``DownloadOptions/networks``), and that it is back.
    public var network: any NetworkMonitor = SystemNetworkMonitor()
    /// Threads for file operations that may block.
    public var fileThreads = 4

    /// Makes pictures of tiles past a source's last zoom, for sources whose ``TileSource/overzoom`` asks for it.
    ///
    /// `nil` makes none: a program that draws maps itself can cut them out of the ancestor's picture as it draws, which
    /// `Overzoom` says how to.
    public var magnifier: TileMagnifier?
    /// Threads for ``magnifier``.
    public var magnifierThreads = 2

    package var isShared = false
    /// What opens the sessions of downloads in the background; `nil` where the system suspends no process.
    package var backgroundSessions: (any BackgroundSessions)? = systemBackgroundSessions

    /// The defaults.
    public init() {}
}
