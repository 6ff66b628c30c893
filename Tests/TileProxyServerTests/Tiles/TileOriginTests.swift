import Foundation
import HTTPCaching
import HTTPTypes
import Logging
import NIOCore
import NIOPosix
import Testing
import TileCache
import TileCacheNIO
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// What tile routes make of what origins do, over `http` and `https`.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct TileOriginTests {
    /// What an origin does, and what the client gets: the status, the body of a 200, and whether it is stored.
    struct Row: Sendable, CustomTestStringConvertible {
        let name: String
        let steps: [RawStep]
        let expected: String
        /// Over TLS, if that is something else.
        let securely: String?
        let isKept: Bool

        init(_ name: String, _ expected: String, securely: String? = nil, kept: Bool = false, _ steps: RawStep...) {
            self.name = name
            self.steps = steps
            self.expected = expected
            self.securely = securely
            isKept = kept
        }

        var testDescription: String { name }
    }

    private static let head = "HTTP/1.1 200 OK\nCache-Control: max-age=60\n"
    private static let chunked = head + "Transfer-Encoding: chunked\n\n"

    private static let rows = [
        Row("a length", "200 hello stored", kept: true, .text(head + "Content-Length: 5\n\nhello")),
        Row("chunks", "200 hello stored", kept: true, .text(chunked + "5\nhello\n0\n\n")),
        Row("an orderly end", "200 whole stored", .text(head + "\nwhole"), .close),
        Row("an end without close_notify", "200 half stored", securely: "502", .text(head + "\nhalf"), .cut),
        Row("a reset in the body", "502", .text(head + "\nhalf"), .reset),
        Row("a length, an orderly end before it", "502", .text(head + "Content-Length: 10\n\nhalf"), .close),
        Row("a length, a cut before it", "502", .text(head + "Content-Length: 10\n\nhalf"), .cut),
        Row("a length, a reset before it", "502", .text(head + "Content-Length: 10\n\nhalf"), .reset),
        Row("a length that is too short", "200 hel stored", .text(head + "Content-Length: 3\n\nhello")),
        Row("two lengths", "502", .text(head + "Content-Length: 3\nContent-Length: 4\n\nhell")),
        Row("chunks, an orderly end in one", "502", .text(chunked + "8\nhalf"), .close),
        Row("chunks, an orderly end before the last", "502", .text(chunked + "4\nhalf\n"), .close),
        Row("chunks, a size that is none", "502", .text(chunked + "4\nhalf\nxx\n")),
        Row(
            "an interim response before", "200 hello stored", kept: true,
            .text("HTTP/1.1 103 Early Hints\nLink: </a>\n\n" + head + "Content-Length: 5\n\nhello")),
        Row("nothing but an end", "502", .close),
        Row("no HTTP", "502", .text("hello\n\n")),
        Row("an endless head", "502", .text("HTTP/1.1 200 OK\nX: "), .endless([UInt8](repeating: 97, count: 8192))),
        Row("a length over the limit", "502", .text(head + "Content-Length: 101\n\n"), .hang),
        Row("chunks over the limit", "502", .text(chunked), .endless(Array("10\r\n0123456789abcdef\r\n".utf8))),
        Row("a body without end", "502", .text(head + "\n"), .endless(Array("0123456789abcdef".utf8))),
        Row("404", "404 stored", kept: true, .text("HTTP/1.1 404 Not Found\nContent-Length: 0\n\n")),
        Row("204", "204 stored", kept: true, .text("HTTP/1.1 204 No Content\n\n")),
        Row("503", "502", kept: true, .text("HTTP/1.1 503 Down\nContent-Length: 5\n\nhello")),
        Row("a redirect that leads nowhere", "502", kept: true, .text("HTTP/1.1 302 Found\nContent-Length: 0\n\n")),
    ]

    /// A lab whose only source is an origin on the loopback.
    private func with(
        isSecure: Bool, template: String = "/{z}/{x}/{y}", _ answer: @escaping LocalOrigin.Answer,
        source change: (inout SourceConfiguration) -> Void = { _ in }, lonePatience: TimeAmount = .hours(1),
        _ body: (TileLab, LocalOrigin) async throws -> Void
    ) async throws {
        if isSecure, originCertificate == nil { return print("no openssl command: not tested over https") }
        let origin = try await LocalOrigin.start(certificate: isSecure ? originCertificate : nil, answer: answer)
        try await withTransport { transport in
            try await TileLab.with(
                "a=\(origin.url)\(template)",
                {
                    $0.kind = .any
                    ($0.attempts, $0.timeout, $0.bodyLimit) = (1, .seconds(3600), 100)
                    change(&$0)
                }, transport: transport, lonePatience: lonePatience
            ) { lab async throws in try await body(lab, origin) }
        }
    }

    @Test(arguments: rows, [false, true])
    func whatAnOriginDoesIsAnsweredAndStoredAsItIs(row: Row, isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { request in
            request.path == "/0/0/0" ? LocalAnswer(.ok, text: "next") : .raw(row.steps)
        } _: { lab, origin async throws in
            let answer = try await lab.get("/tiles/a/1/0/0")
            var said = "\(answer.status)"
            if answer.status == 200 { said += " " + answer.text }
            if try lab.store.entry(for: TileKey("a/1/0/0")) != nil { said += " stored" }
            #expect(said == (isSecure ? row.securely ?? row.expected : row.expected))
            guard said != "502" || row.isKept else { return }
            // The connection is used again, or another one is made; what was left on it is not taken for the next answer.
            lab.clock.advance(seconds: 3600)
            let next = try await lab.get("/tiles/a/0/0/0")
            #expect(next.status == 200 && next.text == "next")
            #expect(origin.connectionsMade == (row.isKept ? 1 : 2))
        }
    }

    @Test(arguments: [false, true])
    func whatIsStaleIsConfirmedByA304(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { request in
            LocalAnswer(.ok, [.eTag: "\"v\"", .cacheControl: "max-age=60"], text: "hello").conditional(to: request)
        } _: { lab, origin async throws in
            for i in 1...3 {
                let answer = try await lab.get("/tiles/a/1/0/0")
                #expect(answer.status == 200 && answer.text == "hello" && origin.requests.count == i)
                if i > 1 { #expect(answer[.cacheStatus]?.contains("fwd-status=304") == true) }
                lab.clock.advance(seconds: 100)
            }
            #expect(origin.connectionsMade == 1)
        }
    }

    @Test(arguments: [false, true])
    func whatIsCompressedStaysSo(isSecure: Bool) async throws {
        let gzip = try #require(Data(base64Encoded: "H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAA=="))
        try await with(isSecure: isSecure) { _ in
            LocalAnswer(.ok, [.contentEncoding: "gzip", .cacheControl: "max-age=60"], body: gzip)
        } _: { lab, _ async throws in
            let packed = try await lab.get("/tiles/a/1/0/0", [.acceptEncoding: "gzip"])
            #expect(packed[.contentEncoding] == "gzip" && packed.body == gzip)
        }
    }

    @Test(arguments: [false, true])
    func aRedirectOnTheSameHostTakesTheSameConnection(isSecure: Bool) async throws {
        try await with(isSecure: isSecure) { request in
            request.path == "/there//1?a=[b]|c"
                ? LocalAnswer(.ok, text: "hello") : LocalAnswer(.found, [.location: "/there//1?a=[b]|c#top"])
        } _: { lab, origin async throws in
            let answer = try await lab.get("/tiles/a/1/0/0")
            #expect(answer.status == 200 && answer.text == "hello" && origin.connectionsMade == 1)
        }
    }

    @Test
    func aTLSHandshakeThatHangsIsATimeout() async throws {
        let silent = try ScriptedOrigin { _, _ in true }
        try await withTransport { transport in
            try await TileLab.with(
                "a=https://localhost:\(silent.port)/{z}/{x}/{y}",
                {
                    $0.kind = .any
                    ($0.attempts, $0.timeout) = (1, .milliseconds(100))
                }, transport: transport
            ) { lab async throws in
                #expect(try await lab.get("/tiles/a/1/0/0").status == 504)
            }
        }
    }

    @Test(arguments: [false, true])
    func whereTheClientLeavesTheOriginIsLeftAfterAWhile(isSecure: Bool) async throws {
        let answer: LocalOrigin.Answer = { _ in
            .raw(.text("HTTP/1.1 200 OK\nContent-Length: 10\n\nhalf"), .hang)
        }
        try await with(isSecure: isSecure, answer, lonePatience: .milliseconds(20)) { lab, origin async throws in
            try await askAndLeave(lab, origin)
            await origin.connectionsClosed()
        }
    }

    /// Not even half of a tile that was paid for is thrown away.
    @Test(arguments: [false, true])
    func whereTheClientLeavesWhileABodyArrivesTheTileIsStored(isSecure: Bool) async throws {
        let gate = TileCacheTesting.Gate()
        try await with(isSecure: isSecure) { _ in
            .raw(.text(Self.head + "Content-Length: 10\n\nhalf "), .wait(gate), .text("whole"))
        } _: { lab, origin async throws in
            try await askAndLeave(lab, origin)
            while lab.service.loneFills.count == 0 { await Task.yield() }
            gate.open()
            while lab.service.flights.count > 0 { await Task.yield() }
            #expect(try lab.store.read(TileKey("a/1/0/0"))?.data == Data("half whole".utf8))
            #expect(origin.requests.count == 1 && lab.service.loneFills.count == 0)
        }
    }

    private func askAndLeave(_ lab: TileLab, _ origin: LocalOrigin) async throws {
        let wire = try Wire(port: lab.server.port)
        wire.resetsAtItsEnd()
        wire.send("GET /tiles/a/1/0/0 HTTP/1.1\r\nHost: a\r\n\r\n")
        await origin.arrivals(1)
    }

    @Test(arguments: [(false, true), (true, false)])
    func aMirrorOfTheOtherSchemeIsAskedWhereTheFirstIsAway(ownIsSecure: Bool, mirrorIsSecure: Bool) async throws {
        guard let certificate = originCertificate else { return print("no openssl command: not tested") }
        let mirror = try await LocalOrigin.start(certificate: mirrorIsSecure ? certificate : nil) { request in
            LocalAnswer(.ok, text: request.path)
        }
        try await with(isSecure: ownIsSecure) { _ in
            LocalAnswer(.ok, text: "own")
        } source: {
            $0.mirrors = [mirror.url]
        } _: { lab, origin async throws in
            try await origin.stop()
            for column in 0..<2 {
                let answer = try await lab.get("/tiles/a/1/\(column)/0")
                #expect(answer.status == 200 && answer.text == "/1/\(column)/0")
            }
            #expect(lab.statistics.snapshot.sources.first?.upstream.failovers == 1, "then it rests")
        }
    }

    @Test(arguments: [
        ("//{z}/{x}/{y}.png", "//1/0/1.png"), ("/a//{z}/{x}/{y}", "/a//1/0/1"),
        ("/{z}/{x}/{y}?layers=[0]&a=b|c", "/1/0/1?layers=%5B0%5D&a=b%7Cc"),
        ("/straße/{z}/{x}/{y}", "/stra%C3%9Fe/1/0/1"),
        ("/{z}/{x}/{y}?full=100%25&q=%7B%7D", "/1/0/1?full=100%25&q=%7B%7D"), ("?x={x}&y={y}&z={z}", "/?x=0&y=1&z=1"),
        ("/wms?bbox={bbox-epsg-3857}&crs=EPSG:3857&f=image/png;mode=8bit", nil),
    ])
    func whatPeopleWriteInTemplatesIsAskedFor(template: String, target: String?) async throws {
        try await with(isSecure: false, template: template) { request in
            LocalAnswer(.ok, text: request.path)
        } _: { lab, origin async throws in
            #expect(try await lab.get("/tiles/a/1/0/1").status == 200)
            if let target { #expect(origin.requests.first?.path == target) }
        }
    }

    /// The parts of the proxy as they run, on loops of their own: requests to origins go out on the loop that has the client.
    @Test
    func aProxyWithoutServersAsksOneOverHTTPSAfterAReload() async throws {
        guard let certificate = originCertificate else { return print("no openssl command: not tested") }
        let origin = try await LocalOrigin.start(certificate: certificate) { LocalAnswer(.ok, text: $0.path) }
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("proxy-\(UUID())").path
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let store = try TileStore(at: folder)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        var configuration = ProxyConfiguration()
        (configuration.listen, configuration.threads) = ([ListenAddress(port: 0)], 2)
        configuration.certificateAuthorities = certificate.path
        configuration.sources = [try SourceConfiguration(argument: "a=\(folder)/{z}/{x}/{y}.png")]
        let parts = try Parts(
            configuration, try SourceTable(configuration), store, group, nil, nil, Logger(label: "test"))
        let server = try await parts.start(connections: 100)
        // Each over a connection of its own, so that both loops are asked.
        let get = { (path: String) async throws -> TransportResponse in
            let client = AsyncHTTPClientTransport(configuration: TileLab.patient)
            let head = HTTPRequest(method: .get, scheme: "http", authority: "127.0.0.1:\(server.port)", path: path)
            let answer: Result<TransportResponse, TransportError>
            do throws(TransportError) {
                answer = .success(try await client.send(TransportRequest(head: head, timeout: .seconds(3600))))
            } catch { answer = .failure(error) }
            await client.shutdown()
            return try answer.get()
        }
        #expect(try await get("/tiles/a/1/0/0").status == 404)

        configuration.sources = [try SourceConfiguration(argument: "a=\(origin.url)/{z}/{x}/{y}")]
        configuration.sources[0].kind = .any
        try parts.adopt(try SourceTable(configuration))
        // The loops take the sources over one after the other.
        while try await get("/tiles/a/1/0/0").status == 404 {}
        for zoom in 2..<10 {
            let answer = try await get("/tiles/a/\(zoom)/0/0")
            #expect(answer.status == 200 && answer.text == "/\(zoom)/0/0")
        }
        // One for each loop; on a machine that is so busy that half a minute goes by between two, some more.
        #expect(origin.connectionsMade < 8, "they are kept")
        try await server.shutdown()
        try await parts.shutdown()
        try await group.shutdownGracefully()
    }

    /// What a disk that hangs does not take is given up and told of; else a stop would take until somebody kills the proxy.
    @Test
    func aDiskThatHangsIsNotWaitedForAtTheEnd() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("proxy-\(UUID())").path
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let store = try TileStore(at: folder)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var configuration = ProxyConfiguration()
        configuration.limits.shutdown = .milliseconds(50)
        let messages = Messages()
        let parts = try Parts(
            configuration, try SourceTable(configuration), store, group, nil, nil, messages.logger)
        let gate = Monitor(false)
        let (begun, ended) = (Locked(0), Locked(0))
        for _ in 0..<6 {
            parts.worker.run(on: group.next()) { _ in
                begun.withLock { $0 += 1 }
                return gate.wait { $0 ? true : nil }
            } then: { (_: Result<Bool, any Error>) in
                ended.withLock { $0 += 1 }
            }
        }
        parts.worker.read(on: group.next()) { _ in
            gate.wait { $0 ? true : nil }
        } then: { (_: Result<Bool, any Error>) in
        }
        while begun.withLock({ $0 }) < 4 { await Task.yield() }
        try await parts.shutdown()
        #expect(messages.errors.count == 1)
        let said = messages.errors.first ?? ""
        #expect(said.contains("\"puts\": 6") && said.contains("\"reads\": 1"), "\(said)")
        gate.withLock { $0 = true }
        gate.wakeAll()
        #expect(await parts.worker.shutdown() == StoreWorker.Unfinished())
        while ended.withLock({ $0 }) < 6 { await Task.yield() }
        // It was left as it is.
        try store.put(
            Data("sea".utf8), for: TileKey("osm/3/4/2"),
            metadata: TileMetadata(storedAt: Timestamp(seconds: 1), expires: Timestamp(seconds: 2)))
        try parts.tiles.cache.close()
        try await group.shutdownGracefully()
    }

    @Test
    func authoritiesThatCannotBeReadLeaveTheConfigurationAsItWas() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("proxy-\(UUID())").path
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let store = try TileStore(at: folder)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var configuration = ProxyConfiguration()
        configuration.certificateAuthorities = folder + "/none.pem"
        let table = try SourceTable(configuration)
        let parts = try Parts(configuration, table, store, group, nil, nil, Logger(label: "test"))
        configuration.sources = [try SourceConfiguration(argument: "a=https://tiles.example/{z}/{x}/{y}")]
        let other = try SourceTable(configuration)
        #expect(throws: ConfigError.self) { try parts.adopt(other) }
        #expect(parts.tiles.table.sources.isEmpty)
        try await parts.shutdown()
        try await group.shutdownGracefully()
    }
}
