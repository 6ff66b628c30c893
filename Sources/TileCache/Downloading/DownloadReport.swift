/// What a download did, and whether everything is there now.
public struct DownloadReport: Sendable {
    /// The figures.
    public var progress: DownloadProgress
    /// The tiles that could not be had, at most ``failureLimit`` of them.
    public var failures: [TileFailure] = []
    /// Whether it was cancelled before all tiles were settled.
    public var wasCancelled = false
    /// Whether it ended because a budget was used up.
    public var reachedBudget = false
    /// Why it ended early, if it neither was cancelled nor used up a budget.
    ///
    /// The server did not answer for longer than ``DownloadOptions/patience``, the cache was closed, the region was removed or
    /// replaced, by another process too (``TileCacheError/Code/invalidRegion``), nothing could be stored, or the first 100 tiles could not be had, as with a wrong token. The tiles that are left are ``DownloadProgress/pending`` and have not failed; the same download started
    /// again takes them up.
    public var stoppedBy: TileCacheError?
    /// How many of the tiles of a region's download are in the cache, tiles that are known not to exist included.
    ///
    /// Counted in the store when the download was over. `nil` if it was not: for a prefetch or a refresh, which promise no
    /// tile, and for a download that was cancelled or whose cache was closed.
    public var present: Int?
    /// What is missing and why, the most frequent reason first.
    public var shortfalls: [DownloadShortfall] = []

    /// Whether everything is there.
    public var verdict: DownloadVerdict {
        let missing = shortfalls.reduce(0) { $0 + $1.tiles }
        return missing == 0 && progress.isComplete && stoppedBy?.code != .invalidRegion
            ? .complete : .incomplete(missing: missing)
    }

    /// So many failures are kept one by one.
    public static let failureLimit = 10_000
}

/// Whether everything that a download was for is there.
public enum DownloadVerdict: Hashable, Sendable {
    /// Every tile of the download is in the cache, or the server says that it does not exist; a region with a name is pinned.
    case complete
    /// So many tiles are not; ``DownloadReport/shortfalls`` says why.
    ///
    /// 0 where it is not known, because the cache was closed before they were counted, or the download is still under way; and
    /// where all are there, but their region was removed or replaced, so that they may be evicted.
    case incomplete(missing: Int)
}

/// Tiles that are missing for the same reason.
public struct DownloadShortfall: Sendable {
    /// How many.
    public var tiles: Int
    /// The reason, in the words of the first of them.
    public var reason: TileCacheError
}
