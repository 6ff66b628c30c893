import CacheEngine
public import TileStore

/// Something that a cache did or noticed; ``TileCacheConfiguration/onEvent`` is told of it.
///
/// More may be added. None of them holds a query, a header field or a password: ``description`` may be logged, but for what its keys
/// say of the places that somebody looked at.
public enum TileCacheEvent: Sendable {
    /// A tile or a resource was served from the cache, and nobody waited for a server.
    case hit(TileKey, isStale: Bool)
    /// A tile or a resource was not there, or too stale to be used before its server was asked.
    case miss(TileKey)
    /// A request is sent.
    case requestBegan(RequestEvent)
    /// A request has ended, and how long it took.
    case requestEnded(RequestEvent, RequestOutcome, after: Duration)
    /// Tiles had to go, for the sake of the limits: what this process has evicted since the last such event.
    case evicted(RemovalReport)
    /// A download has begun: of a region, a prefetch or a refresh.
    case downloadBegan(DownloadEvent)
    /// A download is over.
    case downloadEnded(DownloadEvent, DownloadReport)

    /// A tile was fetched and returned, but could not be stored: a full disk, a cache that another process holds, a tile
    /// larger than the whole capacity or than its source's.
    ///
    /// It is kept in memory for five minutes at most, 16 MiB of such tiles in all, so that not every look is a request. One that is
    /// larger than its source's own capacity is not.
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

    /// Whether something went wrong, or is to be looked at, that no caller was told of.
    public var isTrouble: Bool {
        switch self {
        case .hit, .miss, .requestBegan, .requestEnded, .evicted, .downloadBegan, .downloadEnded: false
        case .notStored, .notRead, .refreshFailed, .dateInFuture, .planNotRead, .planNotRemoved: true
        }
    }
}

/// A request to a server, as events tell of it.
public struct RequestEvent: Hashable, Sendable {
    /// Tells it from the other requests of this process; never 0.
    public let number: UInt64
    /// What it is for; `nil` for what is never stored.
    public let key: TileKey?
    /// Host and port; nothing else of its URL.
    public let host: String
}

/// How a request ended.
public enum RequestOutcome: Hashable, Sendable {
    /// With a whole answer.
    case answered(status: Int, bytes: Int)
    /// Without one.
    case failed(TransportError.Code)
}

/// A download, as events tell of it.
public struct DownloadEvent: Hashable, Sendable {
    /// Tells it from the other downloads of its cache.
    public let number: UInt64
    /// The source's name.
    public let source: SourceName
    /// The region's name, for one that is kept.
    public let region: String?
    /// How many tiles there are.
    public let tiles: Int
}

extension TileCacheEvent: CustomStringConvertible {
    /// What happened, in one line.
    public var description: String {
        switch self {
        case .hit(let key, let isStale): "\(isStale ? "stale hit" : "hit"): \(key)"
        case .miss(let key): "miss: \(key)"
        case .requestBegan(let request): "request \(request)"
        case .requestEnded(let request, let outcome, let time):
            "request \(request): \(outcome) after \(time.milliseconds) ms"
        case .evicted(let report): "evicted: \(report.removedBlobs) blobs, \(report.freedBytes) B"
        case .downloadBegan(let download): "download \(download) began"
        case .downloadEnded(let download, let report):
            "download \(download) ended: \(report.progress.done - report.progress.failed) tiles are there, "
                + "\(report.progress.failed) failed, \(report.progress.pending) are pending, \(report.progress.bytes) B received"
                + (report.stoppedBy.map { "; \($0)" } ?? "")
        case .notStored(let key, let error): "not stored: \(key): \(error)"
        case .notRead(let key, let error): "not read: \(key): \(error)"
        case .refreshFailed(let key, let error): "refresh failed: \(key): \(error)"
        case .dateInFuture(let key, let host, let seconds): "clock: \(key): the Date of \(host) is \(seconds) s ahead"
        case .planNotRead(let file, let error): "plan not read: \(file): \(error)"
        case .planNotRemoved(let region, let error): "plan not removed: \(region): \(error)"
        }
    }
}

extension RequestEvent: CustomStringConvertible {
    /// Number, host and key.
    public var description: String { "\(number) to \(host)" + (key.map { " for \($0)" } ?? "") }
}

extension RequestOutcome: CustomStringConvertible {
    /// Status and size, or why there was no answer.
    public var description: String {
        switch self {
        case .answered(let status, let bytes): "\(status), \(bytes) B"
        case .failed(let code): "no answer (\(code))"
        }
    }
}

extension DownloadEvent: CustomStringConvertible {
    /// Number, region and size.
    public var description: String {
        "\(number) of \(source)" + (region.map { ", region \($0)" } ?? "") + ", \(tiles) tiles"
    }
}

extension Duration {
    fileprivate var milliseconds: Int64 { Int64(clamping: nanoseconds / 1_000_000) }
}
