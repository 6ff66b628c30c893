public import TileCache

/// Where a region's download stands, for a view that shows it.
public struct DownloadStatus: Sendable {
    /// What it is doing.
    public enum Phase: Sendable {
        /// It has not been started.
        case idle
        /// Tiles are coming.
        case running
        /// Somebody paused it.
        case paused
        /// Its server is away, or asks to be left alone; it goes on by itself.
        case waiting(TileCacheError)
        /// It is over: `DownloadReport.verdict` tells whether everything is there.
        case finished(DownloadReport)
        /// It could not begin.
        case failed(any Error)
    }

    /// How far it is, in tiles and bytes.
    public private(set) var progress: DownloadProgress
    private var isStarted = false
    private var isPaused = false
    private var obstacle: TileCacheError?
    private var end: Phase?

    /// Nothing done of so many tiles.
    init(tiles: Int) { progress = DownloadProgress(total: tiles) }

    /// What it is doing.
    public var phase: Phase {
        if let end { return end }
        guard isStarted else { return .idle }
        if isPaused { return .paused }
        return obstacle.map { .waiting($0) } ?? .running
    }

    /// The share of tiles that are there, from 0 to 1, for a `ProgressView`; 1 exactly when all are.
    public var fraction: Double { progress.fraction }

    /// Whether it is under way, paused and waiting included.
    public var isUnderWay: Bool { isStarted && end == nil }

    // MARK: What happens to it

    mutating func start() {
        (isStarted, obstacle, end) = (true, nil, nil)
        progress = DownloadProgress(total: progress.total)
    }

    mutating func pause() { isPaused = true }

    mutating func resume() { isPaused = false }

    mutating func advance(to progress: DownloadProgress) {
        self.progress = progress
        if !progress.isWaiting { obstacle = nil }
    }

    mutating func wait(_ reason: TileCacheError) { obstacle = reason }

    mutating func finish(_ report: DownloadReport) {
        progress = report.progress
        end = .finished(report)
    }

    mutating func fail(_ error: any Error) { end = .failed(error) }
}
