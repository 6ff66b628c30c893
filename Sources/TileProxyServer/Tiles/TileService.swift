package import Logging
import NIOCore
package import TileCache
import TileImaging
package import TileStore

/// What the tile routes share over all event loops.
package final class TileService: Sendable {
    let cache: TileCache
    let transport: UpstreamTransport
    let statistics: Statistics
    let logger: Logger
    private let current: Locked<SourceTable>
    let underWay = Locked(0)
    let tasks = LoopTasks()
    let decoder = TileDecoder()
    let failures: RepeatedFailures

    /// Makes the service of some sources over a store.
    ///
    /// - Parameters:
    ///   - base: What carries requests.
    ///   - clock: For the cache, and to time origins by.
    package init(
        _ table: SourceTable, store: TileStore, base: any TileTransport, statistics: Statistics,
        configuration: ProxyConfiguration = ProxyConfiguration(), clock: CacheClock = .system,
        logger: Logger = Logger(label: "tileproxy")
    ) {
        self.statistics = statistics
        self.logger = logger
        let failures = RepeatedFailures(logger)
        self.failures = failures
        current = Locked(table)
        let sizes: @Sendable (TileKey) -> Int = { key in
            // A figure for the page; what cannot be looked up counts as nothing.
            (try? store.entry(for: key))?.size ?? 0
        }
        transport = UpstreamTransport(base: base, statistics: statistics, storedSize: sizes, ticks: clock.ticks)
        transport.adopt(table)
        var settings = TileCacheConfiguration()
        settings.isShared = true
        settings.magnifier = TileImage.magnifier()
        settings.requestsPerHost = configuration.limits.requestsPerHost
        settings.userAgent = configuration.userAgent ?? "tileproxy/\(LibraryVersion.text) swift-tile-cache"
        let tasks = self.tasks
        settings.startTask = { tasks.start($0, $1) }
        settings.onEvent = { event in
            switch event {
            case .notStored(let key, let error):
                statistics.countNotStored()
                failures.report(.error, "a tile could not be stored", ["key": "\(key)", "error": "\(error)"])
            case .notRead(let key, let error):
                failures.report(.error, "a tile could not be read", ["key": "\(key)", "error": "\(error)"])
            case .refreshFailed(let key, let error):
                statistics.countRefreshFailure()
                logger.info("a refresh failed", metadata: ["key": "\(key)", "error": "\(error)"])
            case .dateInFuture(let key, let host, let seconds):
                logger.warning(
                    "a server's Date lies in the future: check its clock and this machine's",
                    metadata: ["key": "\(key)", "host": "\(host)", "seconds": "\(seconds)"])
            }
        }
        cache = TileCache(store: store, transport: transport, configuration: settings, clock: clock)
    }

    /// The sources as they are now.
    package var table: SourceTable { current.withLock { $0 } }

    /// Puts other sources in place; event loops take them over by ``TileResponder/adopt(_:)``.
    package func adopt(_ table: SourceTable) {
        current.withLock { $0 = table }
        transport.adopt(table)
    }
}
