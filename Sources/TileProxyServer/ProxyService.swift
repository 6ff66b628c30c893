import Dispatch
import Logging
import NIOCore
import NIOPosix
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

    package let cache: String
    package let capacity: Int?
    package let memory: Int
    package let host: String
    package let port: Int
    package let threads: Int
    package let routes: [ProxyRoute]

    package init(
        cache: String, capacity: Int?, memory: Int, host: String, port: Int, threads: Int, routes: [ProxyRoute]
    ) {
        self.cache = cache
        self.capacity = capacity
        self.memory = memory
        self.host = host
        self.port = port
        self.threads = threads
        self.routes = routes
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// - Throws: ``Failure`` if it cannot start, or cannot close the cache.
    package func run() async throws {
        raiseDescriptorLimit()
        let logger = Logger(label: "tileproxy")
        var configuration = StoreConfiguration()
        configuration.capacity = capacity
        configuration.memoryTierBytes = memory
        let store: TileStore
        do { store = try TileStore(at: cache, configuration: configuration) } catch let error as StoreError {
            let isNoCache = [.noSuchCache, .notACache, .unknownFormat].contains(error.code)
            throw Failure(status: isNoCache ? 66 : 74, message: error.message)
        }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: threads)
        var settings = GenericSettings()
        settings.logger = logger
        let generic: GenericCache
        do { generic = try GenericCache(routes: routes, store: store, settings: settings) } catch {
            throw Failure(status: 74, message: "TLS cannot be set up: \(error)")
        }
        var server = HTTPServer.Configuration()
        server.host = host
        server.port = port
        server.logger = logger
        let running: HTTPServer
        do {
            running = try await HTTPServer.start(server, on: group) { loop, time in
                GenericProxy(generic, loop: loop, time: time)
            }
        } catch {
            throw Failure(status: 74, message: "cannot listen on \(host):\(port): \(error)")
        }
        logger.notice("listening", metadata: ["address": "\(running.address)", "cache": "\(cache)"])
        await untilAskedToStop()
        logger.notice("stopping")
        try await running.shutdown()
        try await generic.shutdown()
        do { try store.close() } catch let error as StoreError { throw Failure(status: 74, message: error.message) }
        try await group.shutdownGracefully()
    }

    /// Waits for SIGTERM or SIGINT; a second one ends the process at once.
    private func untilAskedToStop() async {
        let signals = [SIGTERM, SIGINT]
        for number in signals { signal(number, SIG_IGN) }
        let queue = DispatchQueue(label: "signals")
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            let sources = signals.map { DispatchSource.makeSignalSource(signal: $0, queue: queue) }
            let first = Locked<CheckedContinuation<Void, Never>?>(continuation)
            for source in sources {
                source.setEventHandler {
                    let waiting = first.withLock { waiting in
                        defer { waiting = nil }
                        return waiting
                    }
                    for source in sources { source.cancel() }
                    for number in signals { signal(number, SIG_DFL) }
                    waiting?.resume()
                }
                source.resume()
            }
        }
    }

    /// Takes as many descriptors as the system lets it have: each connection is one.
    private func raiseDescriptorLimit() {
        var limit = rlimit()
        #if canImport(Glibc)
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        #else
        let resource = RLIMIT_NOFILE
        #endif
        guard getrlimit(resource, &limit) == 0, limit.rlim_cur < limit.rlim_max else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(resource, &limit)
    }
}
