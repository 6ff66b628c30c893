public import TileCache
import TileStore

/// Told of a region's download.
///
/// All of it is optional.
@MainActor
public protocol RegionDownloaderDelegate: AnyObject {
    /// Another step is done; see ``RegionDownloader/percentageStep``.
    ///
    /// 100 is told only when every tile is there, and then last, before
    /// ``regionDownloader(_:didFinish:)-(_,DownloadReport)``.
    func regionDownloader(_ downloader: RegionDownloader, didReach percentage: Double)
    /// It has come further; told at most fifty times a second, the last time with what there is at the end.
    func regionDownloader(_ downloader: RegionDownloader, isAt progress: DownloadProgress)
    /// A tile is settled: it has come, is there already, does not exist, or has failed.
    ///
    /// Called for every tile, those of the same moment one after another, before the steps that they make. Only for
    /// downloads that began when there was a delegate.
    func regionDownloader(_ downloader: RegionDownloader, didSettle tile: TileAddress, as outcome: TileOutcome)
    /// The download waits: the server is away or asks to be left alone, or the network is one that `DownloadOptions.networks`
    /// does not allow.
    ///
    /// What the server said last, or which network it is; called once for each time that it waits.
    func regionDownloader(_ downloader: RegionDownloader, isWaitingBecause reason: TileCacheError)
    /// It is over: `DownloadReport.verdict` tells whether everything is there, and if not, what is missing and why.
    func regionDownloader(_ downloader: RegionDownloader, didFinish report: DownloadReport)
    /// It could not begin: a server whose terms forbid it, a cache that cannot be written.
    func regionDownloader(_ downloader: RegionDownloader, didFail error: any Error)
}

extension RegionDownloaderDelegate {
    /// Does nothing.
    public func regionDownloader(_ downloader: RegionDownloader, didReach percentage: Double) {}
    /// Does nothing.
    public func regionDownloader(_ downloader: RegionDownloader, isAt progress: DownloadProgress) {}
    /// Does nothing.
    public func regionDownloader(
        _ downloader: RegionDownloader, didSettle tile: TileAddress, as outcome: TileOutcome
    ) {}
    /// Does nothing.
    public func regionDownloader(_ downloader: RegionDownloader, isWaitingBecause reason: TileCacheError) {}
    /// Does nothing.
    public func regionDownloader(_ downloader: RegionDownloader, didFinish report: DownloadReport) {}
    /// Does nothing.
    public func regionDownloader(_ downloader: RegionDownloader, didFail error: any Error) {}
}

/// Downloads a region of a map and tells a delegate, on the main actor.
///
/// For those who come from MapCache, or like delegates; ``start()`` returns the `TileDownload` whose `updates()` and
/// `report()` are the same for `await`. Downloading again asks only for what is missing or stale.
@MainActor
public final class RegionDownloader {
    /// The map.
    public let mapCache: MapCache
    /// The tiles.
    public let coverage: TileCoverage
    /// The name under which the region is kept whatever the limits say; `nil` for one that eviction may take.
    public let name: String?
    /// How it is gone about.
    public var options = DownloadOptions()
    /// Told of progress and end.
    public weak var delegate: (any RegionDownloaderDelegate)?
    /// The delegate is told whenever so much more is done.
    public var percentageStep = 5.0

    private var download: TileDownload?
    private var watcher: Task<Void, Never>?
    /// The tiles that were settled and not yet told of; of the download that was begun last.
    private var settled = SettledTiles()
    private var isPaused = false
    /// Counts calls of ``start()``: only what the last one began is this object's.
    private var starts = 0
    /// Whether ``cancel()`` was called since the last of them.
    private var isCancelled = false

    /// Plans the download of a shape.
    ///
    /// - Parameters:
    ///   - shape: A box, polygon or corridor, across the antimeridian too.
    ///   - zooms: Which zooms; those that the map does not have are left out.
    ///   - scale: Pixels per point; `nil` for the most that the map has tiles for (``TileLayout/scales``), which are those
    ///     that screens of today ask for. A screen with fewer pixels is drawn from them too.
    ///   - name: Under which the region is kept; `nil` to keep nothing.
    ///   - mapCache: The map.
    /// - Throws: `TileCacheError` with `TileCacheError.Code.invalidRegion`.
    public init(
        _ shape: RegionShape, zooms: ClosedRange<Int>, scale: Int? = nil, named name: String?, of mapCache: MapCache
    )
        throws
    {
        self.mapCache = mapCache
        self.name = name
        coverage = try mapCache.source.coverage(
            shape, zooms: zooms, scale: scale ?? mapCache.layout.scales.upperBound)
    }

    /// How many tiles there are, known exactly before anything is asked for.
    public var tileCount: Int { coverage.tileCount }

    /// How far it is; `nil` before it has begun.
    public var progress: DownloadProgress? { download?.progress }

    /// How large it will be, from a few of its tiles.
    ///
    /// - Throws: `TileCacheError`.
    public func estimateSize(samples: Int = 48) async throws -> SizeEstimate {
        if let error = mapCache.openingError { throw error }
        return try await mapCache.cache.estimateSize(mapCache.source, coverage, samples: samples)
    }

    /// Begins, or begins again after an end.
    ///
    /// A download that is under way, or about to begin, is cancelled.
    /// - Returns: The download, for those who rather `await` its progress and report.
    /// - Throws: What the delegate is told too.
    @discardableResult
    public func start() async throws -> TileDownload { try await carryOut(begin()) }

    /// The part of ``start()`` that is done at once: from here on ``pause()``, ``cancel()`` and the rest mean the new download.
    ///
    /// - Returns: The number of this start.
    func begin() -> Int {
        watcher?.cancel()
        download?.cancel()
        // Nothing of it is to be tried again.
        download = nil
        starts += 1
        isCancelled = false
        return starts
    }

    /// The rest of ``start()``.
    @discardableResult
    func carryOut(_ mine: Int) async throws -> TileDownload {
        do {
            if let error = mapCache.openingError { throw error }
            let settled = SettledTiles()
            var options = self.options
            options.startsPaused = true
            if delegate != nil { options.onTile = { key, outcome in settled.add(key, outcome) } }
            let download = try await mapCache.cache.download(
                mapCache.source, coverage, named: name, options: options)
            // Any of these may have been called while the region was being pinned.
            guard mine == starts else {
                download.cancel()
                return download
            }
            if isCancelled { download.cancel() } else if !isPaused { download.resume() }
            self.download = download
            self.settled = settled
            watch(download)
            return download
        } catch {
            if mine == starts { delegate?.regionDownloader(self, didFail: error) }
            throw error
        }
    }

    /// Begins no further tiles until ``resume()``.
    public func pause() {
        isPaused = true
        download?.pause()
    }

    /// Goes on after ``pause()``.
    public func resume() {
        isPaused = false
        download?.resume()
    }

    /// Ends it; what has come stays.
    public func cancel() {
        isCancelled = true
        download?.cancel()
    }

    /// Tries again what is missing, as `TileDownload.retryFailed()` does; does nothing before an end.
    public func retryFailed() {
        guard let download, download.isOver else { return }
        let retry = download.retryFailed(startsPaused: isPaused)
        self.download = retry
        watch(retry)
    }

    private func tellSettled() {
        for settled in settled.drain() {
            delegate?.regionDownloader(self, didSettle: settled.tile, as: settled.outcome)
        }
    }

    private func watch(_ download: TileDownload) {
        let step = max(percentageStep, 0.1)
        watcher = Task { [weak self] in
            var steps = PercentageSteps(step: step)
            var wasWaiting = false
            for await progress in download.updates() {
                guard let self, !Task.isCancelled else { return }
                tellSettled()
                delegate?.regionDownloader(self, isAt: progress)
                if progress.isWaiting, !wasWaiting, let reason = download.obstacle {
                    delegate?.regionDownloader(self, isWaitingBecause: reason)
                }
                wasWaiting = progress.isWaiting
                if let reached = steps.reached(progress) { delegate?.regionDownloader(self, didReach: reached) }
            }
            let report = await download.report()
            guard let self, !Task.isCancelled else { return }
            if let reached = steps.reached(report.progress) { delegate?.regionDownloader(self, didReach: reached) }
            delegate?.regionDownloader(self, didFinish: report)
        }
    }
}

/// Tiles that a download has settled, on their way to the main actor.
private final class SettledTiles: Sendable {
    private let tiles = Locked<[(tile: TileAddress, outcome: TileOutcome)]>([])

    func add(_ key: TileKey, _ outcome: TileOutcome) {
        guard let tile = key.tile else { return }
        tiles.withLock { $0.append((tile, outcome)) }
    }

    /// Those that came since the last call.
    func drain() -> [(tile: TileAddress, outcome: TileOutcome)] {
        tiles.withLock { tiles in
            defer { tiles = [] }
            return tiles
        }
    }
}

/// Which percentages are worth telling.
struct PercentageSteps {
    let step: Double
    private var told = 0.0

    init(step: Double) { self.step = step }

    /// The percentage, if it is another step; 100 once, when all is there.
    mutating func reached(_ progress: DownloadProgress) -> Double? {
        let percentage = progress.fraction * 100
        guard percentage >= 100 ? told < 100 : percentage >= told + step else { return nil }
        told = percentage >= 100 ? 100 : (percentage / step).rounded(.down) * step
        return percentage >= 100 ? 100 : percentage
    }
}
