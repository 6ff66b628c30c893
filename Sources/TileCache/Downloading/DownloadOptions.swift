import CacheEngine

/// How a download goes about it.
public struct DownloadOptions: Sendable {
    /// So many tiles at a time, 1 to 1000; the cache's limit for each host holds too.
    public var concurrency = 4
    /// No more requests are started in a second; `nil` for no limit.
    ///
    /// At least one an hour: 0 is refused.
    public var requestsPerSecond: Double?
    /// Whether tiles that are fresh in the cache are asked for too, with a conditional request.
    public var revalidatesFresh = false
    /// How urgent the requests are.
    public var priority = FetchPriority.prefetch
    /// How often one tile is tried before it counts as failed.
    ///
    /// Tries that fail because the server is away, or asks to be left alone, do not count: see ``patience``. Whether it is
    /// away, other tiles tell; when all others have come, one of them is asked for again. A tile for which it has asked for a
    /// pause a hundred times, and answered about others between, has failed too.
    public var attempts = 4
    /// How long it waits for a server that is away: one that does not answer, or asks to be left alone.
    ///
    /// Counted from its last answer; time during which the download is paused does not count. Meanwhile one tile is tried
    /// now and then, and the others are pending. When it is over, or when the server asks for more than what is left of
    /// it, the download ends with ``DownloadReport/stoppedBy``, and what is pending stays pending.
    public var patience = Duration.seconds(86_400)
    /// How long it waits for the server's first answer; `nil` for ``patience``.
    public var firstPatience: Duration?
    /// Stops when so many bytes have been received; what is under way then is finished.
    public var byteBudget: Int?
    /// Stops when so many requests have been sent, tries that failed included.
    ///
    /// Beyond it lead redirections, and the further attempts at a tile that somebody looks at while the download asks for it: it is
    /// asked for once for both, as often as the one who looks allows (``TileSource/attempts``).
    public var requestBudget: Int?
    /// Which networks it may use: by default neither expensive ones (cellular, hotspots) nor those in Low Data Mode.
    ///
    /// On any other it waits, which ``TileDownload/obstacle`` says, and goes on by itself; that costs no ``patience``. Requests that
    /// are under way when the network changes are finished, or on Apple platforms fail and are tried again. Which kind of network
    /// it is, ``TileCacheConfiguration/network`` tells: on Linux nothing is known to be expensive.
    public var networks = NetworkUse.unmetered
    /// Whether the system carries its requests, also while the app is suspended or was ended by the system.
    ///
    /// For downloads of one source's regions with a name, not of maps by their styles, on Apple platforms: elsewhere, where no
    /// process is suspended, it changes nothing.
    /// ``TileCache/handleEvents(ofBackgroundSession:from:)`` goes on when the system has started the app again. The system has
    /// ``concurrency`` tasks at a time while the app sleeps, so more than the 4 are of use here: 64, say; it decides when it is a
    /// good time for them, starts an app again the later the more often it had to, and cancels them when a person ends the app,
    /// which costs their requests. ``networks`` is heeded for each task. A source's own time-out does not count. The system
    /// follows redirects by itself: what comes from another host counts as no answer. It keeps the requests, tokens in their URLs
    /// and fields included, until they are done. A hook that makes each request a new one (a time in a signature) makes those
    /// useless that were under way when the process ended.
    public var inBackground = false
    /// Whether hosts are left out whose terms forbid asking for more than somebody looks at.
    var isBulk = true
    /// Told of every tile when it is settled, before its progress is; called on any thread, and must not block.
    package var onTile: (@Sendable (TileKey, TileOutcome) -> Void)?
    /// Told, before anything is written about a tile, the name of the bytes that it will have; `nil` if it will have none.
    ///
    /// Called on threads that may wait. If it throws, nothing is written, and the tile has failed, for all who wait for it. It is not told of
    /// what another request brings that was under way: it is for programs that ask for nothing else meanwhile.
    package var beforeStoring: (@Sendable (TileKey, BlobDigest?) throws -> Void)?
    /// Whether it waits for a network that it may use; else it ends.
    var waitsForNetwork = true
    /// Whether nothing is begun before ``TileDownload/resume()``.
    package var startsPaused = false

    /// The defaults.
    public init() {}

    /// Refuses what makes no sense.
    ///
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidOptions``.
    package func check() throws {
        func refuse(_ what: String) -> TileCacheError { TileCacheError(.invalidOptions, "download options: \(what)") }
        guard (1...1000).contains(concurrency) else {
            throw refuse("concurrency \(concurrency); expected 1 to 1000")
        }
        if let rate = requestsPerSecond, !(rate.isFinite && rate >= Self.lowestRate) {
            throw refuse(
                "\(rate) requests a second; expected at least one an hour (1/3600), or no rate for no limit")
        }
        guard attempts >= 1 else { throw refuse("\(attempts) attempts; expected 1 or more") }
        guard patience >= .zero, firstPatience ?? .zero >= .zero else {
            throw refuse("a negative patience; expected zero or more")
        }
        for budget in [byteBudget, requestBudget] {
            if let budget, budget < 0 { throw refuse("a budget of \(budget); expected 0 or more") }
        }
    }

    private static let lowestRate = 1.0 / 3600
}

extension DownloadOptions {
    /// For refreshing in idle time: after everything else, and without insisting.
    ///
    /// Where the network is one that it may not use it ends at once, with ``DownloadReport/stoppedBy``.
    public static let refreshing: DownloadOptions = {
        var options = DownloadOptions()
        options.priority = .refresh
        options.concurrency = 2
        options.attempts = 1
        options.patience = .seconds(60)
        options.waitsForNetwork = false
        return options
    }()
}
