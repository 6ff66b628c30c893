import CacheEngine
public import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Map tiles from servers, kept on disk: fresh by the rules of HTTP, there when offline, within a budget.
///
/// ```swift
/// let cache = try TileCache(at: folder)
/// let source = try TileSource("osm", template: "https://tile.openstreetmap.org/{z}/{x}/{y}.png")
/// let tile = try await cache.tile(source, z: 3, x: 4, y: 2)
/// ```
///
/// One object for each folder and process is enough, and safe from any thread; other processes may have the same folder
/// open. A fresh tile costs a few microseconds and no suspension. Everything that may block runs on threads of its own.
public final class TileCache: Sendable {
    /// The store underneath: keys, blobs, limits, regions, verification.
    ///
    /// Its functions that change something block.
    public let store: TileStore
    let transport: any TileTransport
    let configuration: TileCacheConfiguration
    let clock: CacheClock
    let pool: BlockingPool
    /// For tiles that are files or in archives of this machine.
    let localPool: BlockingPool
    let slots: OriginSlots
    /// What failed lately: hosts, and single tiles.
    let health: OriginHealth
    /// Tiles that could not be stored.
    let held: HeldTiles
    let flights: SingleFlight<FlightKey, CachedTile>
    /// Draws tiles that are made from others, so that files do not wait for it.
    let drawing: BlockingPool
    let magnifications: SingleFlight<MagnificationKey, Data>
    let userAgent: String
    /// For what is no tile.
    let resources: ResourceParts
    let running = DownloadRegistry()
    /// The background sessions of its downloads, by their identifiers.
    let backgrounds = Locked<[String: BackgroundTransport]>([:])
    /// What events have told of evictions.
    let toldEvictions: Locked<RemovalReport>
    /// Shut while it is suspended: downloads begin nothing.
    let suspension = PauseGate()
    private let pressure: MemoryPressure
    /// What no other cache of the process has, nor had.
    let number = TileCache.numbers.withLock { last in
        last += 1
        return last
    }
    private static let numbers = Locked<UInt64>(0)

    /// Opens the cache in a folder; makes it if it is missing.
    ///
    /// Blocks for the time that reading the manifest takes: about a third of a second for a million entries.
    /// - Parameters:
    ///   - path: The cache's folder.
    ///   - transport: What carries the requests. On Linux the one of the product TileCacheNIO is the better choice:
    ///     ``URLSessionTransport`` says what is missing there.
    ///   - configuration: Limits and manners.
    /// - Throws: `StoreError`.
    public convenience init(
        at path: String, transport: any TileTransport = URLSessionTransport(),
        configuration: TileCacheConfiguration = TileCacheConfiguration()
    ) throws {
        let store = try TileStore(at: path, configuration: configuration.store)
        self.init(store: store, transport: transport, configuration: configuration)
    }

    /// Opens the cache in a folder, as ``init(at:transport:configuration:)-(String,_,_)`` does.
    ///
    /// - Parameters:
    ///   - folder: The cache's folder; a file URL.
    ///   - transport: What carries the requests.
    ///   - configuration: Limits and manners.
    /// - Throws: `StoreError`.
    public convenience init(
        at folder: URL, transport: any TileTransport = URLSessionTransport(),
        configuration: TileCacheConfiguration = TileCacheConfiguration()
    ) throws {
        guard folder.isFileURL else {
            throw StoreError(
                .invalidValue,
                "a cache lies in a folder; the URL's scheme is \(folder.scheme ?? "missing"), expected file")
        }
        try self.init(at: folder.path, transport: transport, configuration: configuration)
    }

    /// Uses a store that is open already.
    public convenience init(
        store: TileStore, transport: any TileTransport = URLSessionTransport(),
        configuration: TileCacheConfiguration = TileCacheConfiguration()
    ) {
        self.init(store: store, transport: transport, configuration: configuration, clock: .system)
    }

    package init(
        store: TileStore, transport: any TileTransport, configuration: TileCacheConfiguration, clock: CacheClock
    ) {
        self.store = store
        self.transport = transport
        self.configuration = configuration
        self.clock = clock
        pool = BlockingPool(threads: configuration.fileThreads)
        localPool = BlockingPool(threads: configuration.fileThreads)
        drawing = BlockingPool(threads: configuration.magnifierThreads)
        slots = OriginSlots(
            perOrigin: min(configuration.requestsPerHost, transport.requestsPerHost ?? .max),
            forVisible: configuration.requestsForVisible)
        flights = SingleFlight()
        magnifications = SingleFlight()
        held = HeldTiles(ticks: clock.ticks)
        health = OriginHealth(.tiles(configuration.backoff), ticks: clock.ticks, random: clock.random)
        resources = ResourceParts(isShared: configuration.isShared)
        userAgent = configuration.userAgent ?? UserAgent.standard
        toldEvictions = Locked(store.evictedHere)
        pressure = MemoryPressure { [weak store] in store?.trimMemory() }
    }

    /// Gives up what is under way and closes the store.
    ///
    /// Blocks. Downloads end, paused ones too; what they have not settled stays pending. Those who wait for tiles get an
    /// error with ``TileCacheError/Code/closed`` at once; later calls throw.
    public func close() throws {
        // Before the flights: their end must not look like a failure of the tiles.
        running.close()
        flights.close()
        backgrounds.withLock { $0 = [:] }
        magnifications.close()
        resources.drivers.close()
        drawing.close()
        pool.close()
        localPool.close()
        try store.close()
    }

    /// Whether it has been closed.
    var isClosed: Bool { flights.isClosed }

    /// The time of day by the cache's own clock.
    package func now() -> Timestamp { clock.now() }

    /// Runs what may block on one of the cache's own threads.
    package func onFileThread<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
        try await pool.run(body)
    }

    /// Gives up the tiles' bytes that are kept in memory; they are read from the disk when they are wanted again.
    ///
    /// On Apple platforms it is done by itself when the system says that memory is short. Tiles that could not be stored are kept:
    /// see ``TileCacheEvent/notStored(_:_:)``.
    public func trimMemory() { store.trimMemory() }

    /// Gives up the cache's file locks, and takes none before ``resume()``.
    ///
    /// For an app whose cache lies in a container that it shares with its extensions (``folder(inAppGroup:named:in:)``): the system
    /// ends an app that holds a file's lock there when it is suspended. Blocks for as long as something is being stored, some
    /// milliseconds. Downloads begin no further tiles. Tiles are loaded and served as ever. What comes meanwhile is not stored, which
    /// ``TileCacheEvent/notStored(_:_:)`` tells, and kept in memory; a download asks for it again afterwards. Other functions that
    /// change something throw `StoreError` with the code `locked` at once. A cache may be closed while it is suspended. Locks of
    /// MBTiles files are not the cache's.
    public func suspend() {
        suspension.close()
        store.suspendRefusing()
    }

    /// Goes on after ``suspend()``; does nothing if it is not suspended.
    public func resume() {
        store.resume()
        // Nobody was asked meanwhile: that costs no patience.
        for download in running.all { download.forgetWait() }
        suspension.open()
    }

    /// Lets everything that failed lately be tried again at once.
    ///
    /// For a person who asks for it, or an app that has learnt that the network is back. It is never needed: what failed
    /// is tried again by itself, after a while.
    public func forgetFailures() { health.forget() }
}

/// What makes two fetches the same: then whoever asks later waits for the answer to who asked before.
struct FlightKey: Hashable, Sendable {
    var key: TileKey
    var isStored: Bool
    /// The background session that carries it: its answers may take hours, which nobody who looks at a map waits for.
    var background: String?
    /// The version of the file that a part has to be of: who asks for a tile of another one waits for an answer of their own.
    var version: String?
    /// Whether the server is asked whatever is stored: one under way may have been asked before what is looked for was there.
    var isReload = false
}
