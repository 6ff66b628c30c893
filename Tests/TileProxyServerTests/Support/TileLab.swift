import CacheEngine
import Foundation
import HTTPCaching
import HTTPListener
import HTTPTypes
import Logging
import NIOCore
import NIOPosix
import ObjectStorage
import OriginClient
import SharedTier
import TileCache
import TileCacheNIO
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// The tile routes behind a real socket, with an origin in memory and clocks that stand still.
final class TileLab: Sendable {
    struct Answer: Sendable {
        var status = 200
        var fields: HTTPFields = [:]
        var body = Data()
    }

    /// An origin that answers as a closure says.
    final class Origin: TileOrigins {
        let asked = Locked<[HTTPRequest]>([])
        let timeouts = Locked<[Duration]>([])
        /// Whether requests that wait for their answer have got a byte of it.
        let isAnswering = Locked(false)
        private let answer: Locked<@Sendable (HTTPRequest) async throws -> Answer>

        init(_ answer: @escaping @Sendable (HTTPRequest) async throws -> Answer) { self.answer = Locked(answer) }

        func become(_ answer: @escaping @Sendable (HTTPRequest) async throws -> Answer) {
            self.answer.withLock { $0 = answer }
        }

        func send(
            _ request: TileQuestion, on loop: any EventLoop,
            _ finish: @escaping (Result<TransportResponse, TransportError>) -> Void
        ) -> (any TileCall)? {
            let head = request.head
            asked.withLock { $0.append(head) }
            timeouts.withLock { $0.append(request.timeout) }
            let finish = NIOLoopBound(finish, eventLoop: loop)
            let answer = self.answer.withLock { $0 }
            // Not on Swift's own pool, where hundreds of tests may stand in line.
            let task = Task(executorPreference: OwnThreads.waiting) {
                let result: Result<TransportResponse, TransportError>
                do {
                    let answer = try await answer(head)
                    result = .success(
                        TransportResponse(
                            head: HTTPResponse(status: .init(code: answer.status), headerFields: answer.fields),
                            body: answer.body))
                } catch { result = .failure(error as? TransportError ?? TransportError(.connection, "\(error)")) }
                let isCancelled = Task.isCancelled
                loop.execute { if !isCancelled { finish.value(result) } }
            }
            return Call(task, isAnswering)
        }

        /// A request that an answer of the closure is awaited for.
        private final class Call: TileCall {
            private let task: Task<Void, Never>
            private let isAnswering: Locked<Bool>

            init(_ task: Task<Void, Never>, _ isAnswering: Locked<Bool>) {
                (self.task, self.isAnswering) = (task, isAnswering)
            }

            var hasBegun: Bool { isAnswering.withLock { $0 } }
            func cancel() { task.cancel() }
        }

        var count: Int { asked.withLock { $0.count } }
        var hosts: [String] { asked.withLock { $0.map { "\($0.scheme ?? "")://\($0.authority ?? "")" } } }
    }

    let clock = ManualClock()
    let origin: Origin
    let folder: String
    let store: TileStore
    let service: TileService
    let admin: AdminService
    let statistics: Statistics
    let server: HTTPServer
    /// What it shares with others; its index is read when a test says so.
    let shared: SharedBucket?
    private let client: AsyncHTTPClientTransport
    private let responders: Locked<[NIOLoopBound<ProxyResponder>]>

    /// Eight bytes of PNG and a text, which is enough to be believed.
    static func png(_ text: String) -> Data {
        Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) + Data(text.utf8)
    }

    init(
        _ sources: [SourceConfiguration], loops: Int = 1, files: SimulatedFileSystem? = nil,
        logger: Logger = Logger(label: "test"), transport: (any TileOrigins)? = nil,
        publicURL: String? = nil, lonePatience: TimeAmount = .hours(1), bucket: (any SharedObjects)? = nil,
        timeout: Duration = .seconds(3600), purgeToken: String? = nil, upstreams: [String] = [],
        origin answer: @escaping @Sendable (HTTPRequest) async throws -> Answer
    ) async throws {
        origin = Origin(answer)
        folder = FileManager.default.temporaryDirectory.appendingPathComponent("tiles-\(UUID())").path
        store =
            if let files {
                try TileStore(environment: clock.environment(files), configuration: StoreConfiguration())
            } else { try TileStore(at: folder) }
        var configuration = ProxyConfiguration()
        configuration.sources = sources
        configuration.leaflet = "network"
        configuration.publicURL = publicURL
        configuration.purgeToken = purgeToken.flatMap { PurgeToken($0) }
        configuration.routes = try upstreams.map { try ProxyRoute($0) }
        let manual = clock
        let times = CacheClock(
            now: { manual.now }, ticks: { manual.ticks },
            sleep: { manual.advance(nanoseconds: UInt64($0 / .nanoseconds(1))) },
            random: { 7 })
        statistics = Statistics(startedAt: manual.now)
        shared = bucket.map { bucket in
            var settings = SharedBucket.Settings()
            settings.timeout = timeout
            return SharedBucket(
                bucket, ObjectNames(prefix: ""), settings, group: MultiThreadedEventLoopGroup.singleton,
                computing: BlockingPool(threads: 1), now: { manual.now }, ticks: { manual.ticks })
        }
        service = TileService(
            try SourceTable(configuration), store: store, origins: transport ?? origin, statistics: statistics,
            configuration: configuration, clock: times, lonePatience: lonePatience, shared: shared, logger: logger)
        let marks = bucket.map { bucket in
            MarkWriter(
                bucket, ObjectNames(prefix: ""), on: MultiThreadedEventLoopGroup.singleton.next(),
                now: { manual.now }, ticks: { manual.ticks },
                sleep: {
                    try Task.checkCancellation()
                    manual.advance(nanoseconds: $0)
                    await Task.yield()
                })
        }
        admin = AdminService(
            tiles: service, figures: CacheFigures(store: store), statistics: statistics, configuration: configuration,
            marks: marks)
        var settings = HTTPServer.Configuration()
        settings.addresses = [ListenAddress(port: 0)]
        settings.clock = { HTTPDate(seconds: manual.now.seconds) }
        let (service, admin) = (service, admin)
        let responders = Locked<[NIOLoopBound<ProxyResponder>]>([])
        self.responders = responders
        server = try await HTTPServer.start(settings, on: (transport as? OriginTransport)?.group ?? .singleton) {
            loop, time in
            let ready = ReadyAnswers(service.store, time: time)
            let responder = ProxyResponder(
                tiles: TileResponder(service, loop: loop, time: time, ready: ready),
                admin: AdminResponder(admin, loop: loop, time: time), generic: nil)
            responders.withLock { $0.append(NIOLoopBound(responder, eventLoop: loop)) }
            return responder
        }
        client = AsyncHTTPClientTransport(configuration: Self.patient)
    }

    /// A client that waits for a connection for as long as it takes: on a busy machine a hundred clients wait for the same few.
    static let patient: AsyncHTTPClientTransport.Configuration = {
        var configuration = AsyncHTTPClientTransport.Configuration()
        configuration.connectTimeout = .seconds(3600)
        return configuration
    }()

    /// Sends a request and waits for the answer.
    func get(_ path: String, _ fields: HTTPFields = [:], method: HTTPRequest.Method = .get) async throws
        -> TransportResponse
    {
        try await client.send(
            TransportRequest(
                head: HTTPRequest(
                    method: method, scheme: "http", authority: "127.0.0.1:\(server.port)", path: path,
                    headerFields: fields), timeout: .seconds(3600)))
    }

    /// What requests for a tile of the first source share.
    func flight(_ key: TileKey) -> TileFlight { TileFlight(key: key, generation: service.table.sources[0].generation) }

    /// Changes the sources as a reload does.
    func adopt(_ sources: [SourceConfiguration]) async throws {
        var configuration = ProxyConfiguration()
        configuration.sources = sources
        try await adopt(try SourceTable(configuration, after: service.table))
    }

    /// Puts other sources in place.
    func adopt(_ table: SourceTable) async throws {
        service.adopt(table)
        for responder in responders.withLock({ $0 }) {
            try await responder.eventLoop.submit { responder.value.adopt(table) }.get()
        }
    }

    func end() async throws {
        await client.shutdown()
        try await server.shutdown()
        await admin.purges?.shutdown()
        await admin.figures.shutdown()
        try await service.shutdown()
        if FileManager.default.fileExists(atPath: folder) { try FileManager.default.removeItem(atPath: folder) }
    }

    /// Runs a test in a lab and cleans up after it.
    static func with(
        _ source: String = "osm=https://tiles.example/{z}/{x}/{y}.png",
        _ change: (inout SourceConfiguration) -> Void = { _ in }, files: SimulatedFileSystem? = nil,
        logger: Logger = Logger(label: "test"), transport: (any TileOrigins)? = nil, publicURL: String? = nil,
        lonePatience: TimeAmount = .hours(1),
        origin: @escaping @Sendable (HTTPRequest) async throws -> Answer = { _ in
            Answer(fields: [.cacheControl: "max-age=60", .eTag: "\"v1\"", .contentType: "image/png"], body: png("sea"))
        },
        _ body: (TileLab) async throws -> Void
    ) async throws {
        var configuration = try SourceConfiguration(argument: source)
        change(&configuration)
        let lab = try await TileLab(
            [configuration], files: files, logger: logger, transport: transport, publicURL: publicURL,
            lonePatience: lonePatience, origin: origin)
        do { try await body(lab) } catch {
            try await lab.end()
            throw error
        }
        try await lab.end()
    }
}

extension TransportResponse {
    subscript(_ name: HTTPField.Name) -> String? { head.headerFields[name] }
    var status: Int { head.status.code }
    var text: String { String(decoding: body, as: UTF8.self) }
}

extension TileQuestion {
    /// The request as a server would see it.
    var head: HTTPRequest {
        HTTPRequest(
            method: HTTPRequest.Method(rawValue: request.method) ?? .get, scheme: isSecure ? "https" : "http",
            authority: authority, path: request.target, headerFields: request.fields)
    }

    init(_ request: TransportRequest) throws(TransportError) {
        try self.init(
            request.head, bodyLimit: request.bodyLimit, timeout: request.timeout, isRedirected: request.isRedirected)
    }
}
