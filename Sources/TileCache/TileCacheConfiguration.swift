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
    /// Called when something went wrong that no caller was told of: a tile that could not be stored, a refresh that failed.
    ///
    /// Called on any thread; must return soon.
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

    /// The defaults.
    public init() {}
}

/// What went wrong, or was noticed, without being anybody's answer.
public enum TileCacheEvent: Sendable {
    /// A tile was fetched and returned, but could not be stored: a full disk, a cache that another process holds, a tile
    /// larger than the whole capacity.
    ///
    /// It is kept in memory for five minutes at most, 16 MiB of such tiles in all, so that not every look is a request.
    case notStored(TileKey, any Error)
    /// A stored tile could not be read, and the server was asked instead: a failing disk.
    case notRead(TileKey, any Error)
    /// A refresh in the background failed; the stale tile stays.
    case refreshFailed(TileKey, any Error)
    /// A server's `Date` lies more than a minute after the time of this machine: one of the two clocks is wrong.
    ///
    /// The answer counts as made when it was received. Reported once an hour for each host.
    case dateInFuture(TileKey, host: String, seconds: Int)
    /// What is kept of a region's download cannot be read: a damaged file, or one of a newer program.
    ///
    /// The file in `downloads/` is left alone; ``TileCache/downloads()`` passes it over.
    case planNotRead(file: String, any Error)
    /// A region is complete, and what was kept of its download could not be removed; the next download removes it.
    case planNotRemoved(region: String, any Error)
}
