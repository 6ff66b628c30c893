import CacheEngine
import Logging
import NIOCore
import SharedTier
import TileCache
import TileImaging
package import TileStore

/// What the tile routes share over all event loops.
package final class TileService: Sendable {
    package let store: TileStore
    /// For files, archives, and tiles that are made from others.
    ///
    /// Servers are asked by ``TileAsking``.
    let cache: TileCache
    let worker: StoreWorker
    let origins: any TileOrigins
    let flights = TileFlights()
    /// Fills that go on though nobody waits for them, by the hosts that they wait for.
    let loneFills: LoneFills
    /// How long such a fill may go on.
    let lonePatience: TimeAmount
    let slots: OriginSlots
    /// What failed lately: servers, and single tiles.
    let health: OriginHealth
    /// The bucket that is shared with other proxies, if there is one.
    let shared: SharedBucket?
    /// Tiles that could not be stored: at least four of the largest that a source allows by default.
    let held: HeldTiles
    let clock: CacheClock
    let userAgent: String
    let statistics: Statistics
    let logger: Logger
    private let current: Locked<SourceTable>
    let decoder: TileDecoder
    /// For large tiles that are in memory while clients read them: not stored, or read whole to be looked at.
    let budget = StagingBudget(limit: 256 << 20)
    /// How many bytes the tiles that could not be stored may take.
    static let heldBytes = 65 << 20
    let failures: RepeatedFailures

    /// Makes the service of some sources over a store.
    ///
    /// - Parameters:
    ///   - origins: What carries requests.
    ///   - clock: For the cache, and to time origins by.
    ///   - lonePatience: How long a fill may go on that nobody waits for.
    ///   - worker: The threads of the proxy; `nil` for some of its own.
    ///   - shared: The tier that it asks before origins.
    init(
        _ table: SourceTable, store: TileStore, origins: any TileOrigins, statistics: Statistics,
        configuration: ProxyConfiguration = ProxyConfiguration(), clock: CacheClock = .system,
        lonePatience: TimeAmount = .seconds(30), worker: StoreWorker? = nil, shared: SharedBucket? = nil,
        logger: Logger = Logger(label: "tileproxy"), failures: RepeatedFailures? = nil
    ) {
        self.store = store
        self.origins = origins
        self.statistics = statistics
        self.logger = logger
        self.clock = clock
        self.shared = shared
        current = Locked(table)
        let worker = worker ?? StoreWorker(store: store)
        self.worker = worker
        decoder = TileDecoder(on: worker.computing)
        loneFills = LoneFills(most: max(1, configuration.limits.requestsPerHost / 4))
        self.lonePatience = lonePatience
        slots = OriginSlots(perOrigin: configuration.limits.requestsPerHost)
        health = OriginHealth(.tiles(Backoff()), ticks: clock.ticks, random: clock.random)
        held = HeldTiles(mostBytes: Self.heldBytes, ticks: clock.ticks)
        userAgent = configuration.userAgent ?? "tileproxy/\(LibraryVersion.text) swift-tile-cache"
        let failures = failures ?? RepeatedFailures(logger)
        self.failures = failures
        var settings = TileCacheConfiguration()
        settings.isShared = true
        settings.magnifier = TileImage.magnifier()
        settings.onEvent = { event in
            switch event {
            case .notStored(let key, let error): Self.notStored(key, error, statistics, failures)
            case .notRead(let key, let error): Self.notRead(key, error, failures)
            // Its own log and figures tell the rest.
            default: break
            }
        }
        cache = TileCache(store: store, transport: NoTransport(), configuration: settings, clock: clock)
    }

    /// The sources as they are now.
    package var table: SourceTable { current.withLock { $0 } }

    /// Puts other sources in place; event loops take them over by ``TileResponder/adopt(_:)``.
    package func adopt(_ table: SourceTable) {
        current.withLock { $0 = table }
        health.forgetMirrors()
    }

    /// Gives up what is being asked for, for good.
    func giveUpFills() { flights.close(.again) }

    // MARK: What an operator should know

    func notRead(_ key: TileKey, _ error: any Error) { Self.notRead(key, error, failures) }

    func notStored(_ key: TileKey, _ error: any Error) { Self.notStored(key, error, statistics, failures) }

    func notRemoved(_ key: TileKey, _ error: any Error) {
        failures.report(
            .error, "a tile that must not be kept could not be removed", ["key": "\(key)", "error": "\(error)"])
    }

    private static func notRead(_ key: TileKey, _ error: any Error, _ failures: RepeatedFailures) {
        failures.report(.error, "a tile could not be read", ["key": "\(key)", "error": "\(error)"])
    }

    private static func notStored(
        _ key: TileKey, _ error: any Error, _ statistics: Statistics, _ failures: RepeatedFailures
    ) {
        statistics.countNotStored()
        failures.report(.error, "a tile could not be stored", ["key": "\(key)", "error": "\(error)"])
    }

    func clockIsAhead(_ key: TileKey, _ host: String, seconds: Int) {
        logger.warning(
            "a server's Date lies in the future: check its clock and this machine's",
            metadata: ["key": "\(key)", "host": "\(host)", "seconds": "\(seconds)"])
    }

    /// A server was asked for a tile, or left alone, and there is none.
    func noTile(_ key: TileKey, _ error: TileCacheError, isRefresh: Bool) {
        // Those that only wait for a server that has failed say nothing new, and may be many.
        let isNews = error.code != .waiting
        if isRefresh, isNews { statistics.countRefreshFailure() }
        logger.log(
            level: isNews ? .info : .debug, isRefresh ? "a refresh failed" : "no tile",
            metadata: ["key": "\(key)", "code": "\(error.code)", "error": "\(error.message)"])
    }
}

/// In the place of a transport: the proxy's loops ask for tiles themselves.
private struct NoTransport: TileTransport {
    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        throw TransportError(.unsupported, "\(request.head.host): tiles are asked for on the proxy's event loops")
    }
}
