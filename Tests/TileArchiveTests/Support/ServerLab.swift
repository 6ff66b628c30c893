import Foundation
import HTTPTypes
import TileArchiveTesting
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileCache

/// A cache on a simulated disk before a server in memory, with a clock that stands still but for who sleeps.
final class ServerLab: Sendable {
    let clock = ManualClock()
    let transport: SiteTransport
    let disk: SimulatedDisk
    private let files: SimulatedFileSystem
    private let told = Locked<[TileCacheEvent]>([])
    private let current: Locked<TileCache>
    private let capacity: Int?

    init(capacity: Int? = nil, _ answer: @escaping @Sendable (HTTPRequest) throws -> SiteAnswer) throws {
        transport = SiteTransport(answer)
        disk = SimulatedDisk(clock: clock)
        files = SimulatedFileSystem(disk)
        self.capacity = capacity
        current = Locked(try Self.cache(clock, files, transport, told, capacity))
    }

    var cache: TileCache { current.withLock { $0 } }

    /// What went wrong.
    var events: [TileCacheEvent] { told.withLock { $0 } }

    /// Opens the same folder again, as a new process would.
    func reopen() throws {
        try cache.close()
        let anew = try Self.cache(clock, files, transport, told, capacity)
        current.withLock { $0 = anew }
    }

    private static func cache(
        _ clock: ManualClock, _ files: SimulatedFileSystem, _ transport: SiteTransport,
        _ told: Locked<[TileCacheEvent]>,
        _ capacity: Int?
    ) throws -> TileCache {
        let random = Locked(SplitMix64(seed: 7))
        var configuration = TileCacheConfiguration()
        configuration.store.capacity = capacity
        configuration.onEvent = { event in if event.isTrouble { told.withLock { $0.append(event) } } }
        return TileCache(
            store: try TileStore(environment: clock.environment(files), configuration: configuration.store),
            transport: transport, configuration: configuration,
            clock: CacheClock(
                now: { clock.now }, ticks: { clock.ticks },
                sleep: { pause in
                    try Task.checkCancellation()
                    clock.advance(nanoseconds: pause.nanoseconds)
                    await Task.yield()
                }, random: { random.withLock { $0.next() } }))
    }

    /// A tile of zoom 2, row 1, or of any other place.
    func tile(
        _ source: TileSource, _ x: Int, z: Int = 2, y: Int = 1, _ mode: LoadMode = .standard
    ) async throws -> CachedTile? {
        try await cache.tile(source, z: z, x: x, y: y, mode: mode)
    }

    /// Begins something whose first request is answered at once, but whose answer is on its way until the gate is opened.
    func slowly<T: Sendable>(
        _ work: @escaping @Sendable () async throws -> T
    ) async -> (task: Task<T, any Error>, gate: Gate) {
        let gate = Gate()
        transport.holdFirst { await gate.wait() }
        _ = transport.requests()
        let task = Task { try await work() }
        while transport.asked == 0 { await Task.yield() }
        return (task, gate)
    }

    /// The error that a load ends with.
    func failure(_ source: TileSource, _ x: Int, z: Int = 2, y: Int = 1, _ mode: LoadMode = .standard) async
        -> TileCacheError?
    {
        do {
            _ = try await tile(source, x, z: z, y: y, mode)
            return nil
        } catch { return error as? TileCacheError }
    }

    /// All keys of the cache.
    func keys() throws -> [String] {
        var keys: [String] = []
        try cache.store.forEachEntry { keys.append("\($0.key)") }
        return keys
    }

    /// Everything that is on the disk, as text.
    func textOnDisk() -> String {
        var text = ""
        func walk(_ folder: String) {
            for name in disk.names(folder) {
                let path = folder.isEmpty ? name : folder + "/" + name
                text += path + "\n"
                if disk.kind(path) == .folder {
                    walk(path)
                } else {
                    text += String(decoding: disk.contents(path) ?? [], as: UTF8.self)
                }
            }
        }
        walk("")
        return text
    }
}

/// Carries requests to a server in memory, and remembers them.
final class SiteTransport: TileTransport {
    private let answer: @Sendable (HTTPRequest) throws -> SiteAnswer
    private let log = Locked<[HTTPRequest]>([])
    private let held = Locked<(@Sendable () async -> Void)?>(nil)

    init(_ answer: @escaping @Sendable (HTTPRequest) throws -> SiteAnswer) { self.answer = answer }

    /// Has the next answer wait on its way, once the server has given it.
    func holdFirst(_ wait: @escaping @Sendable () async -> Void) { held.withLock { $0 = wait } }

    /// The requests, which it forgets.
    func requests() -> [HTTPRequest] {
        log.withLock { log in
            defer { log = [] }
            return log
        }
    }

    /// How many they are.
    var asked: Int { log.withLock { $0.count } }
    /// Their paths, and forgets them.
    func paths() -> [String] { requests().map { $0.path ?? "" } }
    /// Their ranges, and forgets them.
    func ranges() -> [String] { requests().map { $0.headerFields[.range] ?? "all" } }

    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        log.withLock { $0.append(request.head) }
        await Task.yield()
        let answer: SiteAnswer
        do { answer = try self.answer(request.head) } catch {
            throw TransportError(.connection, "\(request.head.host): there is no server")
        }
        let wait = held.withLock { held in
            defer { held = nil }
            return held
        }
        await wait?()
        guard answer.body.count <= request.bodyLimit else {
            throw TransportError(.bodyTooLarge, "\(request.head.host): the body is larger than \(request.bodyLimit)")
        }
        return TransportResponse(
            head: HTTPResponse(status: .init(code: answer.status), headerFields: answer.fields), body: answer.body)
    }
}
