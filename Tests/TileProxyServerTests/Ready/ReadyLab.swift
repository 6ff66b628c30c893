import ContentCoding
import Foundation
import HTTPCaching
import HTTPListener
import HTTPTypes
import Logging
import NIOCore
import NIOPosix
import OriginClient
import TileCache
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// Both kinds of routes over one store behind two ports: one answers what is ready at once, the other takes the long way
/// for everything.
///
/// The clock stands still, so both must say the same, byte for byte.
final class ReadyLab: Sendable {
    enum Way: Int, CaseIterable { case ready, long }

    /// Takes requests to tile or generic routes, and counts what was answered at once.
    private final class Both: Responder {
        let tiles: TileResponder
        let generic: GenericProxy
        let counted: Locked<Int>

        init(_ tiles: TileResponder, _ generic: GenericProxy, _ counted: Locked<Int>) {
            (self.tiles, self.generic, self.counted) = (tiles, generic, counted)
        }

        func answer(
            _ request: RequestHead, _ answering: borrowing Answering, into buffer: inout ByteBuffer
        ) -> Answered? {
            let start = buffer.writerIndex
            let answered =
                tiles.owns(request)
                ? tiles.answer(request, answering, into: &buffer) : generic.answer(request, answering, into: &buffer)
            if answered != nil { counted.withLock { $0 += 1 } }
            if answered == nil, buffer.writerIndex != start { counted.withLock { $0 = .min } }
            return answered
        }

        func respond(_ exchange: Exchange) {
            if tiles.owns(exchange.head) { tiles.respond(exchange) } else { generic.respond(exchange) }
        }
    }

    let clock = ManualClock()
    let disk: SimulatedDisk
    let store: TileStore
    let origin: TileLab.Origin
    let tiles: TileService
    let generic: GenericCache
    /// How many requests were answered at once, by the way that they came.
    let answeredAtOnce = Locked(0)
    private let servers: [HTTPServer]
    private let responders: Locked<[NIOLoopBound<TileResponder>]>
    private let configuration: Locked<[SourceConfiguration]>

    /// - Parameter bytes: What the table of ready answers may take.
    init(
        _ sources: [String], generic scripted: ScriptedOrigin, memory: Int = 64 << 20, bytes: Int = ReadyAnswers.budget,
        viaName: String = "lab", _ answer: @escaping @Sendable (HTTPRequest) async throws -> TileLab.Answer
    ) async throws {
        let clock = clock
        disk = SimulatedDisk(clock: clock)
        var settings = StoreConfiguration()
        settings.memoryTierBytes = memory
        store = try TileStore(environment: clock.environment(SimulatedFileSystem(disk)), configuration: settings)
        origin = TileLab.Origin(answer)
        let described = try sources.map { try SourceConfiguration(argument: $0) }
        configuration = Locked(described)
        var proxy = ProxyConfiguration()
        proxy.sources = described
        let times = CacheClock(
            now: { clock.now }, ticks: { clock.ticks },
            sleep: { clock.advance(nanoseconds: UInt64($0 / .nanoseconds(1))) }, random: { 7 })
        let tiles = TileService(
            try SourceTable(proxy), store: store, origins: origin, statistics: Statistics(startedAt: clock.now),
            configuration: proxy, clock: times, logger: Logger(label: "test"))
        self.tiles = tiles
        var rules = GenericSettings()
        rules.ticks = { clock.ticks }
        rules.random = { 0 }
        rules.viaName = viaName
        let generic = try GenericCache(
            routes: [try ProxyRoute("/=http://127.0.0.1:\(scripted.port)")], store: store, settings: rules)
        self.generic = generic
        let responders = Locked<[NIOLoopBound<TileResponder>]>([])
        self.responders = responders
        var servers: [HTTPServer] = []
        let (store, counted) = (store, answeredAtOnce)
        for way in Way.allCases {
            var server = HTTPServer.Configuration()
            server.addresses = [ListenAddress(port: 0)]
            server.clock = { HTTPDate(seconds: clock.now.seconds) }
            servers.append(
                try await HTTPServer.start(server, on: MultiThreadedEventLoopGroup.singleton) { loop, time in
                    let ready = ReadyAnswers(store, time: time, bytes: way == .ready ? bytes : 0)
                    let responder = TileResponder(tiles, loop: loop, time: time, ready: ready)
                    responders.withLock { $0.append(NIOLoopBound(responder, eventLoop: loop)) }
                    return Both(responder, GenericProxy(generic, loop: loop, time: time, ready: ready), counted)
                })
        }
        self.servers = servers
    }

    func end() async throws {
        for server in servers { try await server.shutdown(grace: .seconds(2)) }
        try await generic.shutdown()
        try await tiles.shutdown()
    }

    /// Reads the sources again as a reload does.
    ///
    /// Blocks.
    func reload(_ change: (inout [SourceConfiguration]) throws -> Void = { _ in }) throws {
        var proxy = ProxyConfiguration()
        proxy.sources = try configuration.withLock { sources throws in
            try change(&sources)
            return sources
        }
        let table = try SourceTable(proxy)
        tiles.adopt(table)
        for responder in responders.withLock({ $0 }) {
            try responder.eventLoop.submit { responder.value.adopt(table) }.wait()
        }
    }

    /// Another process changes the manifest so much that the store has to load it anew.
    func replaceTables() throws {
        let other = try TileStore(
            environment: clock.environment(SimulatedFileSystem(disk), seed: clock.ticks),
            configuration: StoreConfiguration())
        for _ in 0..<2 {
            try other.put(Data("other".utf8), for: TileKey("other:\(clock.ticks)"), metadata: metadata())
            _ = try other.compact()
        }
        try other.close()
        // Long enough for the next look to ask for news.
        clock.advance(nanoseconds: 10_000_000_000)
    }

    func metadata(_ change: (inout TileMetadata) -> Void = { _ in }) -> TileMetadata {
        var metadata = TileMetadata(
            response: ResponseFields(status: 200, mediaType: "image/png"), storedAt: clock.now, date: clock.now,
            expires: clock.now.adding(seconds: 60))
        change(&metadata)
        return metadata
    }

    func key(of path: String) throws -> TileKey {
        let parts = path.split(separator: "/").map(String.init)
        let table = tiles.table
        guard parts.count == 5, let source = table.source(named: parts[1]), let z = Int(parts[2]),
            let x = Int(parts[3]),
            let y = Int(parts[4].prefix { $0 != "." })
        else { throw WireError(what: "no tile's path: \(path)") }
        return try source.tiles.key(z: z, x: x, y: y)
    }

    /// Both connections, opened anew where an answer closed one.
    final class Client {
        private let lab: ReadyLab
        private var wires: [Way: Wire] = [:]

        init(_ lab: ReadyLab) { self.lab = lab }

        /// An answer as it came: its head as text, and its body.
        struct Raw: Equatable, CustomStringConvertible {
            var head = ""
            var body: [UInt8] = []

            var status: Int { Int(head.split(separator: " ").dropFirst().first ?? "") ?? 0 }
            subscript(_ name: String) -> String? {
                for line in head.split(separator: "\r\n").dropFirst() {
                    let parts = line.split(separator: ":", maxSplits: 1)
                    if parts[0].lowercased() == name.lowercased() { return String(parts[1].drop { $0 == " " }) }
                }
                return nil
            }
            var isHit: Bool { self["Cache-Status"]?.contains("tileproxy; hit") ?? false }
            var text: String { String(decoding: body, as: UTF8.self) }
            var description: String { head + "[\(body.count) bytes] " + text.prefix(40) }
        }

        func ask(
            _ way: Way, _ target: String, _ fields: [String] = [], method: String = "GET", version: String = "1.1"
        ) throws -> Raw {
            let wire = try wires[way] ?? Wire(port: lab.servers[way.rawValue].port)
            let lines = ["\(method) \(target) HTTP/\(version)", "Host: lab.test"] + fields
            wire.send(lines.joined(separator: "\r\n") + "\r\n\r\n")
            guard let head = wire.take(through: "\r\n\r\n") else { throw WireError(what: "no answer: \(lines)") }
            var answer = Raw(head: head)
            wires[way] = wire
            if method != "HEAD", ![204, 304].contains(answer.status) {
                guard let length = answer["Content-Length"].flatMap(Int.init) else {
                    // Framed otherwise, which no stored answer is.
                    answer.body = wire.takeRest(isChunked: answer["Transfer-Encoding"] != nil)
                    if answer["Transfer-Encoding"] == nil { wires[way] = nil }
                    return answer
                }
                answer.body = wire.take(length)
            }
            let isOpen = version == "1.1" ? answer["Connection"] != "close" : answer["Connection"] == "keep-alive"
            if !isOpen { wires[way] = nil }
            return answer
        }
    }

    /// Runs a test in a lab and cleans up after it.
    static func with(
        _ sources: [String] = ["osm=https://tiles.example/{z}/{x}/{y}.png"], memory: Int = 64 << 20,
        bytes: Int = ReadyAnswers.budget, viaName: String = "lab",
        generic: ScriptedOrigin,
        tiles: @escaping @Sendable (HTTPRequest) async throws -> TileLab.Answer = { _ in
            TileLab.Answer(
                fields: [.cacheControl: "max-age=60", .eTag: "\"v1\"", .contentType: "image/png"],
                body: TileLab.png("sea"))
        },
        _ body: (ReadyLab, Client) async throws -> Void
    ) async throws {
        let lab = try await ReadyLab(
            sources, generic: generic, memory: memory, bytes: bytes, viaName: viaName, tiles)
        do { try await body(lab, Client(lab)) } catch {
            try await lab.end()
            throw error
        }
        try await lab.end()
    }
}

extension Wire {
    /// The rest of a body: up to its last chunk, or up to the end.
    fileprivate func takeRest(isChunked: Bool) -> [UInt8] {
        guard isChunked else { return takeAll() }
        var body: [UInt8] = []
        while let line = take(through: "\r\n"), let size = Int(line.dropLast(2), radix: 16), size > 0 {
            body += take(size)
            _ = take(2)
        }
        _ = take(through: "\r\n")
        return body
    }
}
