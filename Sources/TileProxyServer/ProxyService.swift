import CacheEngine
import Dispatch
import HTTPListener
package import Logging
import NIOCore
import NIOPosix
import TileCache
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The whole proxy as one runs it: opens the cache, serves until a signal, and goes down in order.
package struct ProxyService: Sendable {
    /// Why it could not run, with the exit status that says so.
    package struct Failure: Error {
        package let status: Int32
        package let message: String
    }

    private let configuration: ProxyConfiguration
    private let read: @Sendable () throws(ConfigError) -> ProxyConfiguration
    private let logger: Logger

    /// - Parameters:
    ///   - configuration: What to begin with.
    ///   - logger: For what an operator should know.
    ///   - read: Reads the configuration again, on SIGHUP.
    package init(
        _ configuration: ProxyConfiguration, logger: Logger,
        rereading read: @escaping @Sendable () throws(ConfigError) -> ProxyConfiguration
    ) {
        self.configuration = configuration
        self.logger = logger
        self.read = read
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// - Throws: ``Failure`` if it cannot start, or cannot close the cache.
    package func run() async throws {
        // While it starts, SIGHUP is ignored and does not end it: the configuration has just been read.
        signal(SIGHUP, SIG_IGN)
        let descriptors = OpenFileLimit.raise()
        // For the cache, certificates, an origin or two; and for each event loop, which has three.
        if let shortage = OpenFileLimit.shortage(of: 32 + 3 * configuration.threads) {
            throw Failure(status: 74, message: shortage)
        }
        let table: SourceTable
        let log: AccessLog?
        let tls: ServerTLS?
        do throws(ConfigError) {
            table = try SourceTable(configuration)
            try configuration.checkCertificateAuthorities()
            try configuration.checkLeaflet()
            tls = try configuration.readTLS().map { ServerTLS($0) }
            log = try configuration.accessLog.map { wanted throws(ConfigError) in try AccessLog(wanted) }
        } catch { throw Failure(status: 64, message: error.description) }
        for warning in table.warnings + (configuration.tls?.warnings ?? []) { logger.warning("\(warning)") }
        let store = try openStore()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: configuration.threads)
        let parts = try Parts(configuration, table, store, group, log, tls, logger)
        let reloader = Reloader(parts, configuration, read, logger)
        // Before it listens: whoever finds that it does may stop it.
        let early = EarlyReload()
        let untilAskedToStop = await signalsToStop { if early.mayReload() { reloader.reload() } }
        let running: HTTPServer
        do { running = try await parts.start(connections: connectionLimit(descriptors)) } catch {
            guard let error = error as? HTTPServer.ListenFailure else { throw error }
            throw Failure(
                status: 74, message: "cannot listen on \(error.address): \(Self.reason(of: error.cause))")
        }
        if early.end() { await reload(reloader) }
        logger.notice(
            "listening",
            metadata: [
                "address": "\(Self.description(of: running, configuration))",
                "cache": "\(configuration.cache ?? "")",
                "sources": "\(configuration.sources.map(\.name))", "upstreams": "\(configuration.routes.map(\.prefix))",
                "leaflet": "\(parts.admin.leaflet == nil ? "from unpkg.com" : "local")",
            ])
        let watching = watch(parts, reloader)
        for await _ in untilAskedToStop {}
        watching.cancel()
        logger.notice("stopping")
        parts.admin.isStopping()
        try await running.shutdown(grace: TimeAmount(configuration.limits.shutdown))
        do { try await parts.shutdown() } catch let error as StoreError {
            throw Failure(status: 74, message: error.message)
        }
        try await group.shutdownGracefully()
        log?.close()
    }

    /// Looks now and then whether files of sources were replaced, on a thread of its own.
    private func watch(_ parts: Parts, _ reloader: Reloader) -> Task<Void, Never> {
        let failures = parts.tiles.failures
        let watch = SourceWatch(
            { parts.tiles.table }, replace: { try reloader.reopen($0) },
            report: { source, reason in
                failures.report(
                    .error, "a source whose file was replaced goes on with the old one", kind: source,
                    ["source": "\(source)", "reason": "\(reason)"])
            })
        return Task {
            let pool = BlockingPool(threads: 1)
            while true {
                do { try await Task.sleep(for: SourceWatch.pause) } catch { return }
                await withCheckedContinuation { continuation in
                    pool.submit {
                        watch.look()
                        continuation.resume()
                    }
                }
            }
        }
    }

    /// Where it listens: ports as they are, and which addresses speak TLS and the PROXY protocol.
    private static func description(of server: HTTPServer, _ configuration: ProxyConfiguration) -> String {
        let withHeader = configuration.addressesWithProxyHeader
        return zip(server.addresses, configuration.listen).map { address, wanted in
            let place = wanted.socketPath.map { "unix:\($0)" } ?? "\(address)"
            return place + (withHeader.contains(wanted) ? " (PROXY)" : "") + (wanted.isSecure ? " (TLS)" : "")
        }
        .joined(separator: ", ")
    }

    private func openStore() throws -> TileStore {
        var settings = StoreConfiguration()
        settings.memoryTierBytes = configuration.memoryBytes
        settings.durability = configuration.isDurable ? .durable : .relaxed
        // Here they are counted before anybody reads.
        settings.sourceCapacities = configuration.sourceCapacities
        do {
            let store = try TileStore(at: configuration.cache ?? "", configuration: settings)
            try configuration.setLimits(of: store, logger)
            if store.isReadOnly {
                logger.warning(
                    "the cache can only be read: what is in it is served, and nothing is stored; see its disk, owner and mode",
                    metadata: ["cache": "\(configuration.cache ?? "")"])
            }
            if try store.hasLosses {
                logger.warning(
                    "part of the manifest was lost, and entries with it: they are fetched anew; see 'tilegc verify'",
                    metadata: ["cache": "\(configuration.cache ?? "")"])
            }
            return store
        } catch {
            guard let error = error as? StoreError else { throw error }
            let isNoCache = [.noSuchCache, .notACache, .unknownFormat].contains(error.code)
            throw Failure(status: isNoCache ? 66 : 74, message: error.message)
        }
    }

    private func reload(_ reloader: Reloader) async {
        await withCheckedContinuation { continuation in
            DispatchQueue(label: "reload").async {
                reloader.reload()
                continuation.resume()
            }
        }
    }

    /// Takes SIGTERM, SIGINT and SIGHUP from now on, and calls the body on SIGHUP.
    ///
    /// Not by ignoring them first: what comes between would be lost.
    ///
    /// - Returns: What ends at SIGTERM or SIGINT; a second one ends the process at once.
    private func signalsToStop(reload: @escaping @Sendable () -> Void) async -> AsyncStream<Void> {
        let numbers = [SIGTERM, SIGINT, SIGHUP]
        let queue = DispatchQueue(label: "signals")
        let sources = numbers.map { DispatchSource.makeSignalSource(signal: $0, queue: queue) }
        let (asked, ask) = AsyncStream.makeStream(of: Void.self)
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            let missing = Locked(sources.count)
            // By the last registration, or by the first signal to stop, which ends the others before they are registered.
            let waiting = Locked(CheckedContinuation<Void, Never>?(continuation))
            let goOn = { @Sendable in
                let waiting = waiting.withLock { waiting in
                    defer { waiting = nil }
                    return waiting
                }
                waiting?.resume()
            }
            for (number, source) in zip(numbers, sources) {
                source.setRegistrationHandler {
                    let isLast = missing.withLock { missing in
                        missing -= 1
                        return missing == 0
                    }
                    if isLast { goOn() }
                }
                source.setEventHandler {
                    guard number != SIGHUP else {
                        reload()
                        return
                    }
                    for source in sources { source.cancel() }
                    for number in numbers { signal(number, number == SIGHUP ? SIG_IGN : SIG_DFL) }
                    ask.finish()
                    goOn()
                }
                source.resume()
            }
        }
        return asked
    }

    /// Why the system does not let it listen.
    private static func reason(of error: any Error) -> String {
        switch error {
        case let error as IOError where error.errnoCode == EADDRINUSE:
            "another program listens there; choose another port, or 0 for any that is free"
        case let error as IOError: String(cString: strerror(error.errnoCode))
        case is SocketAddressError.UnknownHost: "there is no such host"
        default: "\(error)"
        }
    }

    /// How many clients may be connected, so that descriptors are left for files and for origins.
    private func connectionLimit(_ descriptors: Int) -> Int {
        let wanted = configuration.limits.connections
        let most = max(16, descriptors - max(64, descriptors / 4))
        if wanted > most {
            logger.notice(
                "fewer connections than limits.connections says, for want of file descriptors",
                metadata: ["connections": "\(most)", "descriptors": "\(descriptors)"])
        }
        return min(wanted, most)
    }
}

/// SIGHUP while the proxy starts: the configuration is read again when it has.
private final class EarlyReload: Sendable {
    private let state = Locked((isOver: false, isAsked: false))

    /// Asks for a reload: whether it may begin now; if not, it is noted.
    func mayReload() -> Bool {
        state.withLock { state in
            if !state.isOver { state.isAsked = true }
            return state.isOver
        }
    }

    /// Ends the start; whether a reload was asked for.
    func end() -> Bool {
        state.withLock { state in
            state.isOver = true
            return state.isAsked
        }
    }
}
