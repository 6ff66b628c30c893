import CacheEngine
import Foundation
import HTTPCaching
import HTTPListener
import NIOCore
import NIOPosix
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// A proxy on the loopback over a store in a temporary folder, with a clock that the test moves.
final class ProxyUnderTest {
    let clock = ManualClock()
    let store: TileStore
    let server: HTTPServer
    let cache: GenericCache
    private let proxies = Locked<[NIOLoopBound<GenericProxy>]>([])
    private let group: MultiThreadedEventLoopGroup
    private let folder: String
    private let files: SimulatedFileSystem?

    /// Starts a proxy for some routes; `ORIGIN` in them stands for the origin.
    ///
    /// - Parameters:
    ///   - folder: Where its cache is; a new one if not given.
    ///   - files: A file system to use instead of the folder.
    init(
        _ origin: ScriptedOrigin?, routes: [String] = ["/=ORIGIN"], threads: Int = 1,
        limits: ServerLimits = ServerLimits(), folder: String? = nil, files: SimulatedFileSystem? = nil,
        observer: (any ExchangeObserver)? = nil, configure: (inout GenericSettings) -> Void = { _ in }
    ) async throws {
        self.folder = folder ?? NSTemporaryDirectory() + "proxy-" + UUID().uuidString
        self.files = files
        store =
            if let files {
                try TileStore(environment: clock.environment(files), configuration: StoreConfiguration())
            } else { try TileStore(at: self.folder) }
        var settings = GenericSettings()
        settings.upstream.connect = .seconds(60)
        settings.upstream.head = .seconds(300)
        settings.upstream.bodyStall = .seconds(300)
        settings.upstream.sweep = .milliseconds(20)
        let ticks = clock
        settings.ticks = { ticks.ticks }
        settings.random = { 0 }
        configure(&settings)
        let base = "http://127.0.0.1:\(origin?.port ?? 1)"
        let parsed = try routes.map { try ProxyRoute($0.replacingOccurrences(of: "ORIGIN", with: base)) }
        let cache = try GenericCache(routes: parsed, store: store, settings: settings)
        self.cache = cache
        group = MultiThreadedEventLoopGroup(numberOfThreads: threads)
        var configuration = HTTPServer.Configuration()
        configuration.addresses = [ListenAddress(port: 0)]
        configuration.limits = limits
        configuration.observer = observer
        let clock = clock
        configuration.clock = { HTTPDate(seconds: clock.now.seconds) }
        let proxies = proxies
        server = try await HTTPServer.start(configuration, on: group) { loop, time in
            let ready = ReadyAnswers(cache.store, time: time)
            let proxy = GenericProxy(cache, loop: loop, time: time, ready: ready)
            proxies.withLock { $0.append(NIOLoopBound(proxy, eventLoop: loop)) }
            return proxy
        }
    }

    /// One of its event loops.
    var loop: any EventLoop { group.any() }

    /// The files in `staging/`.
    var staged: [String] {
        get throws {
            try files?.disk.names("staging") ?? FileManager.default.contentsOfDirectory(atPath: folder + "/staging")
        }
    }

    /// Bytes in them.
    var stagedBytes: Int {
        get throws {
            try staged.reduce(0) { sum, name in
                let path = "staging/" + name
                if let files { return sum + (files.disk.contents(path)?.count ?? 0) }
                let size = try FileManager.default.attributesOfItem(atPath: folder + "/" + path)[.size]
                return sum + (size as? Int ?? 0)
            }
        }
    }

    /// Whether no body is on its way into the store, and no client reads one that is not stored.
    var isBudgetUnused: Bool { cache.budget.isUnused && cache.smallBudget.isUnused && cache.unstored.bytes == 0 }

    /// Waits until no body is on its way into the store any more, and every file of one is stored or gone.
    func untilNothingIsStaged() async throws {
        while try !isBudgetUnused || !staged.isEmpty { await Task.yield() }
    }

    /// What is buffered for each connection to an origin.
    func bufferedForOrigins() async throws -> [Int] {
        var all: [Int] = []
        for proxy in proxies.withLock({ $0 }) {
            all += try await proxy.eventLoop.submit { proxy.value.pools.values.flatMap(\.bufferedBytes) }.get()
        }
        return all
    }

    /// Gives up what is being asked for, as on the way down.
    func giveUpFills() {
        for proxy in proxies.withLock({ $0 }) { proxy.eventLoop.execute { proxy.value.giveUpFills() } }
    }

    /// Goes down in order and takes its folder away.
    func stop() async throws {
        try await server.shutdown(grace: .seconds(2))
        try await cache.shutdown()
        try store.close()
        try await group.shutdownGracefully()
        if FileManager.default.fileExists(atPath: folder) { try FileManager.default.removeItem(atPath: folder) }
    }

    /// The time as `Date` fields write it.
    func date(_ offset: Int = 0) -> String { HTTPDate(seconds: clock.now.seconds).adding(seconds: offset).description }

    func connect() throws -> Wire { try Wire(port: server.port) }

    /// Asks on a connection of its own.
    func ask(
        _ method: String = "GET", _ target: String = "/a", _ fields: [String] = [], body: String = ""
    ) throws -> Answer {
        let wire = try connect()
        let length = body.isEmpty ? [] : ["Content-Length: \(body.utf8.count)"]
        let lines = ["\(method) \(target) HTTP/1.1", "Host: proxy.test"] + fields + length
        wire.send(lines.joined(separator: "\r\n") + "\r\n\r\n" + body)
        guard let answer = wire.answer(to: method) else { throw WireError(what: "no answer to \(method) \(target)") }
        return answer
    }
}

/// Runs a body with a proxy in front of an origin and stops it afterwards, whatever happens.
func withProxy(
    _ origin: ScriptedOrigin?, routes: [String] = ["/=ORIGIN"], threads: Int = 1, limits: ServerLimits = ServerLimits(),
    files: SimulatedFileSystem? = nil, observer: (any ExchangeObserver)? = nil,
    configure: (inout GenericSettings) -> Void = { _ in }, _ body: (ProxyUnderTest) async throws -> Void
) async throws {
    let proxy = try await ProxyUnderTest(
        origin, routes: routes, threads: threads, limits: limits, files: files, observer: observer,
        configure: configure)
    do { try await body(proxy) } catch {
        try await proxy.stop()
        throw error
    }
    try await proxy.stop()
}
