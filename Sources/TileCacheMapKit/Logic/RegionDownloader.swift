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
        try await mapCache.cache.estimateSize(mapCache.source, coverage, samples: samples)
    }

    /// Begins, or begins again after an end.
    ///
    /// A download that is under way, or about to begin, is cancelled.
    /// - Returns: The download, for those who rather `await` its progress and report.
    /// - Throws: What the delegate is told too.
    @discardableResult
    public func start() async throws -> TileDownload {
        watcher?.cancel()
        download?.cancel()
        starts += 1
        isCancelled = false
        let mine = starts
        do {
            var options = self.options
            options.startsPaused = true
            let download = try await mapCache.cache.download(
                mapCache.source, coverage, named: name, options: options)
            // Any of these may have been called while the region was being pinned.
            guard mine == starts else {
                download.cancel()
                return download
            }
            if isCancelled { download.cancel() } else if !isPaused { download.resume() }
            self.download = download
            watch(download)
            return download
        } catch {
            delegate?.regionDownloader(self, didFail: error)
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

    private func watch(_ download: TileDownload) {
        let step = max(percentageStep, 0.1)
        watcher = Task { [weak self] in
            var steps = PercentageSteps(step: step)
            var wasWaiting = false
            for await progress in download.updates() {
                guard let self, !Task.isCancelled else { return }
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
