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
    /// Tiles that could not be had, or not be stored.
    public var failed = 0
    /// Of the tiles above that did not fail, those that the cache did not have any more at the end: evicted or removed.
    public var lost = 0
    /// Bytes of bodies that were received, those of answers that were refused included.
    public var bytes = 0
    /// Whether it waits for a server that is away, or for a network that it may use; ``TileDownload/obstacle`` says why.
    public var isWaiting = false
    /// Whether what is there is known: of a region only when it was counted at the end, since tiles that came may be gone by then.
    package var isCounted = true

    /// Nothing done of so many tiles.
    public init(total: Int) { self.total = total }

    /// Tiles that are settled, in whichever way.
    public var done: Int { fetched + revalidated + unchanged + absent + failed }
    /// Tiles that are not settled: they are still to come, or were left when the download ended early.
    public var pending: Int { max(0, total - done) }
    /// Tiles that are there, or that the server says do not exist.
    private var there: Int { done - failed - lost }
    /// The share of tiles that are there, from 0 to 1; 1 exactly when all are.
    public var fraction: Double { isComplete ? 1 : min(Double(max(0, there)) / Double(max(total, 1)), 0.999_999) }
    /// Whether all tiles are there: none is pending, failed or lost.
    ///
    /// Of a region's download that is told at its end, when it was counted.
    public var isComplete: Bool { isCounted && there >= total }
    /// Whether all tiles are settled, failed ones included.
    public var isSettled: Bool { done >= total }
}

/// A tile that could not be had.
public struct TileFailure: Sendable {
    /// Which.
    public let key: TileKey
    /// Why.
    public let error: TileCacheError
}
