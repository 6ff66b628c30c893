import Foundation
import HTTPCaching
import HTTPTypes
import Logging
import NIOCore
import NIOEmbedded
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import HTTPListener

/// Connections that begin with a PROXY header, as servers in front make them.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct ProxyProtocolTests {
    static let text = Array("PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n".utf8)
    static let text6 = Array("PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n".utf8)
    static let unknown = Array("PROXY UNKNOWN\r\n".utf8)
    static let binary = ProxyHeaderTests.binary(
        0x21, 0x11, ProxyHeaderTests.addresses4 + ProxyHeaderTests.extensions)
    static let local = ProxyHeaderTests.binary(0x20, 0x00, [])
    private static let request = Array("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".utf8)

    /// What an observer was told: a client, and how it went.
    private final class Told: ExchangeObserver {
        let all = Notes<String>()
        let wantsAnswered = true

        func finished(
            _ request: RequestHead, from client: SocketAddress?, _ answered: Answered, took: TimeAmount
        ) { all.add("\(client.clientName) \(request.path) \(answered.status)") }

        func refused(status: Int, from client: SocketAddress?) { all.add("\(client.clientName) refused \(status)") }
    }

    /// Runs a body with a server that takes headers from the loopback and from Unix sockets.
    private func withProxied(
        limits: ServerLimits = ServerLimits(), tls: ServerTLS? = nil, isTrusted: Bool = true, socket: String? = nil,
        _ body: (ServerUnderTest, Notes<String>) async throws -> Void
    ) async throws {
        let told = Told()
        try await withServer(
            limits: limits, tls: tls, observer: told, respond: { $0.reply(200, $0.client.clientName) },
            change: { configuration in
                if let socket { configuration.addresses = [ListenAddress(socket: socket)] }
                configuration.proxyHeaders.addresses = Set(configuration.addresses)
                configuration.proxyHeaders.isTrusted = { peer in
                    isTrusted && ["127.0.0.1", "unix"].contains(Optional(peer).clientName)
                }
            }
        ) { server async throws in try await body(server, told.all) }
    }

    @Test(arguments: [
        (text, "198.51.100.7"), (text6, "2001:db8::7"), (binary, "198.51.100.7"), (unknown, "127.0.0.1"),
        (local, "127.0.0.1"), (ProxyHeaderTests.binary(0x21, 0x31, [UInt8](repeating: 1, count: 216)), "127.0.0.1"),
    ])
    func theClientIsTheOneThatTheHeaderNames(header: [UInt8], client: String) async throws {
        try await withProxied { server, told async throws in
            let wire = try server.connect()
            // The header in a packet of its own, and with the first request.
            wire.send(header)
            wire.send(Self.request)
            #expect(try #require(wire.answer()).text == client + "\n")
            wire.send(Self.request + Self.request)
            for _ in 0..<2 { #expect(try #require(wire.answer()).text == client + "\n") }
            let other = try server.connect()
            other.send(header + Self.request)
            #expect(try #require(other.answer()).text == client + "\n")
            // A second header is a request, and none that makes sense.
            other.send(Self.text + [13, 10])
            #expect(try #require(other.answer()).status == 400)
            while told.all.count < 5 { await Task.yield() }
            #expect(told.all.dropLast() == [String](repeating: "\(client) /a 200", count: 4)[...])
            #expect(told.all.last == "\(client) refused 400")
        }
    }

    @Test
    func aUnixSocketTakesHeadersToo() async throws {
        let folder = try SocketFolder()
        try await withProxied(socket: folder("s")) { _, _ async throws in
            for (header, client) in [(Self.binary, "198.51.100.7"), (Self.local, "unix")] {
                let wire = try Wire(path: folder("s"))
                wire.send(header + Self.request)
                #expect(try #require(wire.answer()).text == client + "\n")
            }
        }
    }

    @Test(arguments: [text, binary], ["http/1.1", "h2"])
    func theHeaderComesBeforeTLS(header: [UInt8], version: String) async throws {
        guard let certificate = try TestCertificate() else { return }
        try await withProxied(tls: try certificate.tls()) { server, told async throws in
            let client = try await TLSClient(
                port: server.server.port, trusting: certificate, protocols: [version], header: header)
            #expect(client.applicationProtocol == version)
            if version == "h2" {
                // What is no preface is refused, in the client's name.
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                while told.all.isEmpty { await Task.yield() }
                #expect(told.all == ["198.51.100.7 refused 400"])
            } else {
                client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(await client.text(through: ".7\n").hasSuffix("198.51.100.7\n"))
            }
        }
    }

    /// Each cut of header and request into two packets and into single bytes, without a socket.
    @Test(arguments: [text, text6, unknown, binary, local])
    func whereTheBytesAreCutDoesNotMatter(header: [UInt8]) throws {
        let bytes = header + Self.request
        let cuts = (1..<bytes.count).map { [Array(bytes[..<$0]), Array(bytes[$0...])] }
        let whole = try answers(to: [bytes])
        #expect(whole.hasSuffix(" 200 /a"))
        for pieces in cuts + [bytes.map { [$0] }] { #expect(try answers(to: pieces) == whole) }
    }

    /// What the client of a connection without a socket is, and how its request went.
    private func answers(to pieces: [[UInt8]]) throws -> String {
        let loop = LoopConnections(
            limits: ServerLimits(), time: LoopTime { HTTPDate(seconds: 0) }, hostNames: [], observer: nil)
        let clients = Notes<String>()
        let responder = TestResponder(
            answer: { _, _, _ in nil },
            respond: {
                clients.add("\($0.client.clientName) 200 \($0.head.target)")
                $0.reply(200, "")
            })
        let reader = ProxyHeaderReader(
            loop: loop, isTrusted: { _ in true }, logger: Logger(label: "test")
        ) { [HTTPConnection(loop: loop, responder: responder, client: $0)] }
        let channel = EmbeddedChannel(handler: reader)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.9", port: 1)).wait()
        for piece in pieces { try channel.writeInbound(ByteBuffer(bytes: piece)) }
        channel.embeddedEventLoop.run()
        #expect(loop.count == 1)
        return clients.all.joined(separator: ", ")
    }

    @Test(arguments: [
        Array("GET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8), Array("PROXY TCP4 x\r\n".utf8), [0x16, 3, 1, 0],
        ProxyHeaderTests.binary(0x21, 0x11, ProxyHeaderTests.addresses4, length: 65535),
    ])
    func whatDoesNotBeginWithAHeaderIsClosedWithoutAnAnswer(bytes: [UInt8]) async throws {
        try await withProxied { server, told async throws in
            let wire = try server.connect()
            wire.send(bytes)
            #expect(wire.takeAll().isEmpty)
            while told.all.isEmpty { await Task.yield() }
            #expect(told.all == ["127.0.0.1 refused 400"])
            // Others go on.
            let good = try server.connect()
            good.send(Self.text + Self.request)
            #expect(try #require(good.answer()).text == "198.51.100.7\n")
        }
    }

    @Test
    func aConnectionThatEndsWithinItsHeaderIsCountedAndOneWithoutAByteIsNot() async throws {
        try await withProxied { server, told async throws in
            let half = try server.connect()
            half.send(Array(Self.binary.prefix(20)))
            half.endOutput()
            #expect(half.takeAll().isEmpty)
            while told.all.isEmpty { await Task.yield() }
            let look = try server.connect()
            look.endOutput()
            #expect(look.takeAll().isEmpty)
            while try await server.server.connectionCount() > 0 { await Task.yield() }
            #expect(told.all == ["127.0.0.1 refused 400"])
        }
    }

    /// Whoever is not trusted is closed before it has said anything, and its header is not looked at.
    @Test
    func aPeerThatIsNotTrustedIsClosed() async throws {
        try await withProxied(isTrusted: false) { server, told async throws in
            for bytes in [Self.text + Self.request, Self.request, []] {
                let wire = try server.connect()
                wire.send(bytes)
                #expect(wire.takeAll().isEmpty)
            }
            while told.all.count < 3 { await Task.yield() }
            #expect(Set(told.all) == ["127.0.0.1 refused 403"])
        }
    }

    @Test
    func aHeaderThatComesTooSlowlyIsCutOff() async throws {
        try await withProxied(limits: impatient { $0.head = .milliseconds(50) }) { server, told async throws in
            let silent = try server.connect()
            #expect(silent.isAtEnd())
            #expect(told.all.isEmpty)
            let half = try server.connect()
            half.send(Array(Self.text.prefix(10)))
            #expect(half.takeAll().isEmpty)
            #expect(told.all == ["127.0.0.1 refused 408"])
        }
    }

    /// Bytes that drip in give no more time.
    @Test
    func aHeaderThatDripsInHasNoMoreTime() throws {
        let loop = LoopConnections(
            limits: ServerLimits(), time: LoopTime { HTTPDate(seconds: 0) }, hostNames: [], observer: nil)
        let reader = ProxyHeaderReader(
            loop: loop, isTrusted: { _ in true }, logger: Logger(label: "test")
        ) { _ in [] }
        let channel = EmbeddedChannel(handler: reader)
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.9", port: 1)).wait()
        let end = NIODeadline.now() + loop.limits.head
        for byte in Self.binary.dropLast() { try channel.writeInbound(ByteBuffer(bytes: [byte])) }
        loop.sweep(at: end - .seconds(15))
        #expect(channel.isActive && loop.count == 1)
        loop.sweep(at: end)
        channel.embeddedEventLoop.run()
        #expect(!channel.isActive && loop.count == 0)
    }

    @Test
    func aHeaderThatIsUnderWayDoesNotHoldTheServerUpWhenItGoesDown() async throws {
        try await withProxied { tested, _ async throws in
            let wire = try tested.connect()
            wire.send(Array(Self.text.prefix(10)))
            while try await tested.server.connectionCount() == 0 { await Task.yield() }
            try await tested.server.shutdown(grace: .seconds(3600))
            #expect(wire.takeAll().isEmpty)
        }
    }

    /// An address that is not among those has plain HTTP, where a header is no request.
    @Test
    func elsewhereAHeaderIsNoRequest() async throws {
        try await withServer { server async throws in
            for header in [Self.text, Self.binary] {
                let wire = try server.connect()
                wire.send(header + Self.request)
                #expect(try #require(wire.answer()).status == 400)
            }
        }
    }
}
