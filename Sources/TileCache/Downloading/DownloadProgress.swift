public import TileStore

/// How far a download is, in tiles; every tile is counted exactly once.
public struct DownloadProgress: Hashable, Sendable {
    /// How many tiles there are in all, known before the first is asked for.
    public var total: Int
    /// Tiles that came with a body.
    public var fetched = 0
    /// Tiles that the server said still hold (304).
    public var revalidated = 0
    /// Tiles that are fresh in the cache and were not asked for.
    public var unchanged = 0
    /// Tiles that the server says do not exist.
    public var absent = 0
    /// Tiles that could not be had.
    public var failed = 0
    /// Bytes of bodies that were received.
    public var bytes = 0

    /// Nothing done of so many tiles.
    public init(total: Int) { self.total = total }

    /// Tiles that are settled, in whichever way.
    public var done: Int { fetched + revalidated + unchanged + absent + failed }
    /// From 0 to 1; 1 exactly when all tiles are settled.
    public var fraction: Double { done >= total ? 1 : min(Double(done) / Double(max(total, 1)), 0.999_999) }
    /// Whether all tiles are settled.
    public var isComplete: Bool { done >= total }
}

/// A tile that could not be had.
public struct TileFailure: Sendable {
    /// Which.
    public let key: TileKey
    /// Why.
    public let error: TileCacheError
}

/// What a download did.
public struct DownloadReport: Sendable {
    /// The figures; complete unless the download was cancelled or its budget used up.
    public var progress: DownloadProgress
    /// The tiles that could not be had, at most ``failureLimit`` of them.
    public var failures: [TileFailure] = []
    /// Whether it was cancelled before all tiles were settled.
    public var wasCancelled = false
    /// Whether it ended because a budget was used up.
    public var reachedBudget = false
    /// Why it was given up early, if the server could not be reached at all any more; the rest counts as failed.
    public var stoppedBy: TileCacheError?

    /// So many failures are kept one by one.
    public static let failureLimit = 10_000
}

/// How a download goes about it.
public struct DownloadOptions: Sendable {
    /// So many tiles at a time; the cache's limit for each host holds too.
    public var concurrency = 4
    /// No more requests are started in a second; `nil` for no limit.
    public var requestsPerSecond: Double?
    /// Whether tiles that are fresh in the cache are asked for too, with a conditional request.
    public var revalidatesFresh = false
    /// How urgent the requests are.
    public var priority = FetchPriority.prefetch
    /// How often one tile is tried.
    public var attempts = 4
    /// The longest wait between two tries of one tile.
    public var longestWait = Duration.seconds(60)
    /// After so many tiles in a row that could not be had because nobody answers, the rest is given up.
    public var unreachableLimit = 16
    /// Stops when so many bytes have been received.
    public var byteBudget: Int?
    /// Stops when so many requests have been sent.
    public var requestBudget: Int?
    /// Whether hosts are left out whose terms forbid asking for more than somebody looks at.
    var isBulk = true
    /// Whether nothing is begun before ``TileDownload/resume()``.
    package var startsPaused = false

    /// The defaults.
    public init() {}
}
