import CacheEngine
import HTTPListener
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import ObjectStorage
import OriginClient
import SharedTier
import TileCache
import TileStore

/// The parts of a running proxy, put together.
final class Parts: Sendable {
    let configuration: ProxyConfiguration
    let tiles: TileService
    let admin: AdminService
    let generic: GenericCache
    let statistics: Statistics
    let log: AccessLog?
    /// The threads of all routes.
    let worker: StoreWorker
    /// The certificate that clients see.
    private let serverTLS: ServerTLS?
    private let tls: OriginTLS
    /// The bucket that is shared with other proxies, its clients, and what adds marks.
    private let shared: (bucket: SharedBucket, clients: [S3Client], marks: MarkWriter)?
    private let transport: OriginTransport
    private let group: MultiThreadedEventLoopGroup
    private let logger: Logger
    /// The responder of each loop, to be touched there alone.
    private let responders = Locked<[NIOLoopBound<ProxyResponder>]>([])

    init(
        _ configuration: ProxyConfiguration, _ table: SourceTable, _ store: TileStore,
        _ group: MultiThreadedEventLoopGroup, _ log: AccessLog?, _ serverTLS: ServerTLS?, _ logger: Logger
    ) throws {
        self.configuration = configuration
        self.serverTLS = serverTLS
        self.group = group
        self.log = log
        self.logger = logger
        statistics = Statistics(startedAt: CacheClock.system.now())
        tls = OriginTLS(certificateAuthorities: configuration.certificateAuthorities)
        transport = OriginTransport(
            group: group, connectionsPerHost: configuration.limits.requestsPerHost, tls: tls)
        // Counted on the loops that there are: making others takes descriptors, which may have run out.
        let failures = RepeatedFailures(logger) { pause, body in _ = group.next().scheduleTask(in: pause, body) }
        worker = StoreWorker(store: store)
        do throws(ConfigError) {
            shared = try configuration.shared.map { [tls, worker] wanted throws(ConfigError) in
                try Self.share(wanted, configuration.cache ?? "", group, tls, worker, failures)
            }
        } catch { throw ProxyService.Failure(status: 64, message: error.description) }
        tiles = TileService(
            table, store: store, origins: transport, statistics: statistics, configuration: configuration,
            worker: worker, shared: shared?.bucket, logger: logger, failures: failures)
        admin = AdminService(
            tiles: tiles, figures: CacheFigures(store: store), statistics: statistics, configuration: configuration,
            marks: shared?.marks)
        var settings = GenericSettings()
        settings.logger = logger
        settings.failures = failures
        settings.tls = tls
        let (statistics, tiles) = (statistics, tiles)
        settings.publicURL = { tiles.table.publicURL }
        settings.onNotStored = { statistics.countNotStored() }
        do {
            generic = try GenericCache(
                routes: configuration.routes, store: store, settings: settings, worker: worker)
            try prepare(table)
        } catch {
            throw ProxyService.Failure(status: 74, message: "TLS cannot be set up: \(error)")
        }
    }

    private static func share(
        _ wanted: SharedConfiguration, _ cache: String, _ group: MultiThreadedEventLoopGroup, _ tls: OriginTLS,
        _ worker: StoreWorker,
        _ failures: RepeatedFailures
    ) throws(ConfigError) -> (bucket: SharedBucket, clients: [S3Client], marks: MarkWriter) {
        let parts = try wanted.parts { ConfigError(place: "configuration", key: "shared", $0) }
        let clock = CacheClock.system
        // One that reads and one that writes, each with connections of its own. A map asks for many tiles at once, and a look that
        // waits for a connection is as slow as one of a slow bucket.
        let clients = [(64, 1), (16, 3)].map { connections, seconds in
            var limits = S3Limits()
            (limits.connections, limits.request) = (connections, .seconds(Int64(seconds)))
            return S3Client(
                parts.address.bucket, parts.credentials, limits: limits, group: group, tls: tls, now: clock.now)
        }
        var settings = SharedBucket.Settings()
        (settings.timeout, settings.writes) = (wanted.timeout, wanted.writes)
        let report: @Sendable (String, String) -> Void = { message, reason in
            failures.report(.warning, message, ["reason": "\(reason)"])
        }
        let kept = KeptMarks(cache: cache, bucket: wanted.url)
        let sleep: @Sendable (UInt64) async throws -> Void = { try await Task.sleep(nanoseconds: $0) }
        let marks = MarkWriter(
            clients[0], parts.address.names, on: group.next(), now: clock.now, ticks: clock.ticks, sleep: sleep)
        let bucket = SharedBucket(
            clients[0], writer: clients[1], parts.address.names, settings, known: kept.read(), group: group,
            computing: worker.computing,
            now: clock.now, ticks: clock.ticks, report: report,
            keep: { marks in
                do {
                    try kept.write(marks)
                    return true
                } catch {
                    report("what the index of a fleet's bucket says could not be kept for the next start", "\(error)")
                    return false
                }
            },
            restore: { lost in
                // All proxies see it at once; the first one mends it.
                try await sleep(UInt64.random(in: 0...10_000_000_000))
                try await marks.add { _, _ in lost }
            })
        return (bucket, clients, marks)
    }

    /// Makes ready to ask the servers of some sources.
    ///
    /// Blocks.
    /// - Throws: If the certificate authorities cannot be read.
    private func prepare(_ table: SourceTable) throws {
        // A server with http may redirect to one with https.
        if !table.hosts.isEmpty || shared != nil { try tls.prepare() }
        transport.adopt(table.hosts)
    }

    /// Begins to listen.
    ///
    /// - Parameter connections: How many clients there may be at once.
    func start(connections: Int) async throws -> HTTPServer {
        var server = HTTPServer.Configuration()
        server.addresses = configuration.listen
        server.socketMode = configuration.socketMode
        server.proxyHeaders.addresses = configuration.addressesWithProxyHeader
        let trusted = configuration.trustedProxies
        server.proxyHeaders.isTrusted = { trusted.contains($0) }
        server.tls = serverTLS
        server.logger = logger
        let statistics = statistics
        server.onAcceptFailure = { statistics.countAcceptFailure() }
        server.onHandshakeFailure = { statistics.countHandshakeFailure() }
        server.limits = ServerLimits(configuration.limits)
        server.limits.connections = connections
        let (ownsRoot, tiles) = (admin.ownsRoot, tiles)
        let hasRoutes = !configuration.routes.isEmpty
        // Tile routes count by themselves.
        server.observer = RequestObserver(
            statistics: statistics, log: log, trusted: configuration.trustedProxies,
            wantsAnswered: log != nil || hasRoutes
        ) {
            ProxyResponder.isGeneric($0, hasSources: !tiles.table.sources.isEmpty, ownsRoot: ownsRoot)
        }
        shared?.bucket.start()
        let threads = configuration.threads
        let redirectPort = configuration.redirectsToHTTPS ? configuration.redirectPort : nil
        let makePlainResponder = redirectPort.map { port in
            { @Sendable (secure: any Responder) -> any Responder in SecureRedirect(to: port, of: secure) }
        }
        return try await HTTPServer.start(server, on: group, makePlainResponder: makePlainResponder) {
            [self] loop, time in
            let ready = ReadyAnswers(generic.store, time: time, bytes: ReadyAnswers.budget / threads)
            let responder = ProxyResponder(
                tiles: TileResponder(tiles, loop: loop, time: time, ready: ready),
                admin: AdminResponder(admin, loop: loop, time: time),
                generic: hasRoutes ? GenericProxy(generic, loop: loop, time: time, ready: ready) : nil)
            let bound = NIOLoopBound(responder, eventLoop: loop)
            responders.withLock { $0.append(bound) }
            return responder
        }
    }

    /// Puts other sources in place on every loop.
    ///
    /// Blocks.
    /// - Throws: ``ConfigError``; then nothing has changed.
    func adopt(_ table: SourceTable) throws(ConfigError) {
        do { try prepare(table) } catch {
            throw ConfigError(
                place: "configuration", key: "certificateAuthorities", "TLS cannot be set up: \(error)")
        }
        tiles.adopt(table)
        for responder in responders.withLock({ $0 }) {
            responder.eventLoop.execute { responder.value.adopt(table) }
        }
    }

    /// Shows a certificate to new connections, if there was one before.
    func use(_ identity: ServerTLS.Identity?) {
        guard let serverTLS, let identity else { return }
        serverTLS.use(identity)
    }

    /// Gives up what is being asked for, waits for what is being stored, and closes everything, the store at last.
    ///
    /// For when the clients have gone.
    ///
    /// A disk that hangs is not waited for: after ``ProxyConfiguration/Limits/shutdown`` what it has not taken is given up,
    /// and the store is left open. A cache is whole however the process ends.
    func shutdown() async throws {
        let patience = configuration.limits.shutdown
        let end = ContinuousClock.now + patience
        // The clients are gone: an origin that takes its time is not waited for.
        tiles.giveUpFills()
        for responder in responders.withLock({ $0 }) {
            responder.eventLoop.execute { responder.value.giveUpFills() }
        }
        try await generic.quiesce(grace: TimeAmount(patience))
        await admin.purges?.shutdown(within: max(.seconds(1), end - .now))
        // What was read for the others is on its way to them by now.
        await shared?.bucket.drain(within: max(.seconds(1), end - .now))
        for client in shared?.clients ?? [] { await client.shutdown() }
        let unfinished = await worker.shutdown(within: max(.seconds(1), end - .now))
        await transport.shutdown()
        guard unfinished == StoreWorker.Unfinished() else {
            logger.error(
                "the disk does not answer: what it has not taken is given up",
                metadata: [
                    "puts": "\(unfinished.writes)", "reads": "\(unfinished.others)",
                    "seconds": "\(patience.components.seconds)",
                ])
            return
        }
        // Counting and closing look at the disk as well.
        await admin.figures.shutdown(within: max(.zero, end - .now))
        let closing = BlockingPool(threads: 1)
        let closed = Locked(Result<Void, any Error>.success(()))
        let cache = tiles.cache
        closing.submit {
            let result = Result { () throws in try cache.close() }
            closed.withLock { $0 = result }
        }
        guard await closing.finish(within: max(.seconds(1), end - .now)) == 0 else {
            logger.error(
                "closing the cache takes too long: it is left as it is, without the latest uses",
                metadata: ["seconds": "\(patience.components.seconds)"])
            return
        }
        try closed.withLock { $0 }.get()
    }
}

extension ServerLimits {
    fileprivate init(_ limits: ProxyConfiguration.Limits) {
        self.init()
        connections = limits.connections
        headBytes = limits.headBytes
        bodyBytes = Int64(limits.bodyBytes)
        idle = TimeAmount(limits.idle)
        head = TimeAmount(limits.requestHead)
    }
}

/// Reads the configuration again when asked, and swaps in what can be changed while it runs.
final class Reloader: Sendable {
    private let parts: Parts
    private let current: Locked<ProxyConfiguration>
    private let read: @Sendable () throws(ConfigError) -> ProxyConfiguration
    private let logger: Logger
    /// One change at a time.
    private let changing = Locked(())
    /// Whether the limits of the configuration that was read last could not be set: the next reload tries again.
    private let lacksLimits = Locked(false)

    init(
        _ parts: Parts, _ configuration: ProxyConfiguration,
        _ read: @escaping @Sendable () throws(ConfigError) -> ProxyConfiguration, _ logger: Logger
    ) {
        self.parts = parts
        current = Locked(configuration)
        self.read = read
        self.logger = logger
    }

    /// Opens a source anew whose file was replaced, and swaps it in.
    ///
    /// Blocks.
    /// - Returns: `false` if the sources are other ones by now.
    /// - Throws: ``ConfigError``; then everything is as it was.
    func reopen(_ source: ServedSource) throws -> Bool {
        try changing.withLock { _ in
            let table = parts.tiles.table
            guard table.sources.contains(where: { $0 === source }) else { return false }
            let new = try source.reopened()
            for warning in new.warnings { logger.warning("\(warning)") }
            try parts.adopt(table.replacing(new))
            logger.notice(
                "a source was read anew, as its file was replaced",
                metadata: [
                    "source": "\(new.name)", "version": "\(new.versions.first?.version?.identifier ?? "")",
                ])
            return true
        }
    }

    /// Reads and swaps; on an error everything stays as it was.
    func reload() { changing.withLock { _ in reloadNow() } }

    private func reloadNow() {
        do throws(ConfigError) {
            try parts.log?.reopen()
            let new = try read()
            let table = try SourceTable(new, after: parts.tiles.table)
            let old = current.withLock { $0 }
            for key in new.needingRestart(from: old) {
                logger.warning("a change needs a new start", metadata: ["key": "\(key)"])
            }
            let identity = try new.readTLS()
            let warnings = table.warnings + (new.tls?.warnings ?? [])
            for warning in warnings { logger.warning("\(warning)") }
            try parts.adopt(table)
            parts.use(identity)
            let isLimited = changeLimits(new, old)
            // What needs a new start stays as it is, so that the next reload says it again.
            var kept = old
            kept.sources = new.sources
            kept.publicURL = new.publicURL
            if old.tls != nil, new.tls != nil { kept.tls = new.tls }
            kept.capacity = new.capacity
            kept.entries = new.entries
            current.withLock { $0 = kept }
            parts.statistics.countReload(ok: isLimited)
            logger.notice("configuration read again", metadata: ["sources": "\(new.sources.map(\.name))"])
        } catch {
            parts.statistics.countReload(ok: false)
            logger.error("the configuration stays as it was", metadata: ["error": "\(error)"])
        }
    }

    /// - Returns: Whether the limits are those of the new configuration.
    private func changeLimits(_ new: ProxyConfiguration, _ old: ProxyConfiguration) -> Bool {
        let isChange =
            new.capacity != old.capacity || new.entries != old.entries || new.sourceCapacities != old.sourceCapacities
        guard isChange || lacksLimits.withLock({ $0 }) else { return true }
        do {
            try new.setLimits(of: parts.tiles.store, logger)
            lacksLimits.withLock { $0 = false }
            return true
        } catch {
            lacksLimits.withLock { $0 = true }
            logger.error(
                "the limits could not be set: all else is as configured; the next reload tries again",
                metadata: ["error": "\(error)"])
            return false
        }
    }
}
