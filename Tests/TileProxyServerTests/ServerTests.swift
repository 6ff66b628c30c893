import HTTPCaching
import NIOCore
import NIOEmbedded
import Testing
import TileStore

@testable import TileProxyServer

/// The server as a client sees it, over a socket.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct ServerTests {
    private let cached = reply("200 OK", ["Cache-Control: max-age=60"], "hello")

    @Test
    func pipelinedRequestsAreAnsweredInOrder() async throws {
        let origin = try ScriptedOrigin { request, wire in
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], request.target))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            for round in 0..<2 {
                for i in 0..<50 { wire.send("GET /\(i) HTTP/1.1\r\nHost: a\r\n\r\n") }
                for i in 0..<50 { #expect(wire.answer()?.text == "/\(i)", "round \(round)") }
            }
            #expect(origin.count == 50)
        }
    }

    @Test
    func aFloodOfPipelinedHitsIsBoundedByTheReader() async throws {
        let body = String(repeating: "x", count: 100_000)
        let origin = try ScriptedOrigin(always: reply("200 OK", ["Cache-Control: max-age=60"], body))
        try await withProxy(origin) { proxy async throws in
            _ = try proxy.ask()
            let wire = try proxy.connect()
            let one = Array("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
            for _ in 0..<200 { wire.send(one) }
            for _ in 0..<200 { #expect(wire.answer()?.body.count == 100_000) }
        }
    }

    @Test
    func oneDotZeroGetsNoChunksAndNoInterim() async throws {
        let origin = try ScriptedOrigin { _, wire in
            wire.send(
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            wire.send("5\r\nhello\r\n0\r\n\r\n")
            return true
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET /a HTTP/1.0\r\n\r\n")
            let text = String(decoding: wire.takeAll(), as: UTF8.self)
            #expect(text.hasPrefix("HTTP/1.1 200") && text.hasSuffix("\r\n\r\nhello"))
            #expect(!text.contains("chunked") && !text.contains("103"))
        }
    }

    @Test
    func aBodyGoesThroughWithContinueAndChunks() async throws {
        let origin = try ScriptedOrigin { request, wire in
            wire.send(reply("200 OK", [], request.method + request.body))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask("PUT", body: "whole").text == "PUTwhole")
            let wire = try proxy.connect()
            wire.send("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            #expect(wire.take(through: "\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n")
            wire.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(wire.answer()?.text == "POSTabcde")
            #expect(wire.answer()?.text == "GET")
            #expect(origin.requests.allSatisfy { $0.fields["expect"] == nil })
        }
    }

    @Test(arguments: [
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 421),
        ("GET /%2e%2e/a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", 405), ("junk\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417),
    ])
    func aBadRequestIsAnsweredAndReachesNobody(text: String, expected: Int) async throws {
        let origin = try ScriptedOrigin(always: cached)
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send(text)
            let answer = try #require(wire.answer())
            #expect(answer.status == expected)
            #expect(expected == 417 || wire.isAtEnd())
            #expect(origin.count == 0)
        }
    }

    @Test
    func aBadChunkEndsTheRequestAtTheOriginToo() async throws {
        let origin = try ScriptedOrigin(always: cached)
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send(
                "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nGET /evil HTTP/1.1\r\n\r\n"
            )
            #expect(wire.answer()?.status == 400)
            #expect(!origin.requests.contains { $0.target == "/evil" })
        }
    }

    @Test
    func anAbsoluteTargetOfThisServerIsAPath() async throws {
        let origin = try ScriptedOrigin(always: cached)
        try await withProxy(origin) { proxy async throws in
            for host in ["127.0.0.1", "localhost"] {
                let answer = try proxy.ask("GET", "http://\(host):\(proxy.server.port)/a")
                #expect(answer.status == 200)
            }
            #expect(origin.requests.first?.target == "/a")
        }
    }

    private func impatient(_ change: (inout ServerLimits) -> Void) -> ServerLimits {
        var limits = ServerLimits()
        limits.sweep = .milliseconds(10)
        change(&limits)
        return limits
    }

    @Test
    func aSlowHeadIsCutOff() async throws {
        try await withProxy(nil, limits: impatient { $0.head = .milliseconds(50) }) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET / HTTP/1.1\r\nHost: a\r\nX: ")
            #expect(wire.answer()?.status == 408)
            #expect(wire.isAtEnd())
        }
    }

    @Test
    func anIdleConnectionIsClosedWithoutAWord() async throws {
        try await withProxy(nil, limits: impatient { ($0.idle, $0.head) = (.milliseconds(50), .milliseconds(50)) }) {
            proxy in
            let wire = try proxy.connect()
            #expect(wire.isAtEnd())
        }
    }

    /// Blank lines between requests are ignored (RFC 9112 §2.2), and so do not prolong the wait for the next one.
    @Test
    func blankLinesDoNotKeepAnIdleConnectionOpen() throws {
        let (connection, channel) = try embedded()
        try channel.writeInbound(ByteBuffer(string: "\r\n"))
        let fresh = connection.deadline
        try channel.writeInbound(ByteBuffer(string: "\r\n"))
        #expect(connection.deadline == fresh)
        try channel.writeInbound(ByteBuffer(string: "GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
        let idle = connection.deadline
        #expect(idle > fresh, "an answer begins a new wait")
        for _ in 0..<3 {
            try channel.writeInbound(ByteBuffer(string: "\r\n"))
            #expect(connection.deadline == idle)
        }
        connection.check(at: idle)
        #expect(!channel.isActive)
    }

    @Test
    func halfAHeadDoesNotHoldTheServerUpWhenItGoesDown() throws {
        let (connection, channel) = try embedded()
        try channel.writeInbound(ByteBuffer(string: "GET / HTTP/1.1\r\nHo"))
        _ = connection.loop.drain(on: channel.eventLoop)
        #expect(channel.isActive, "its rest may be on its way")
        connection.check(at: .now() + .seconds(2))
        #expect(!channel.isActive)
    }

    @Test
    func aHeadThatIsCompletedWhenTheServerGoesDownIsAnswered() throws {
        let (connection, channel) = try embedded()
        try channel.writeInbound(ByteBuffer(string: "GET / HTTP/1.1\r\nHo"))
        _ = connection.loop.drain(on: channel.eventLoop)
        try channel.writeInbound(ByteBuffer(string: "st: a\r\n\r\n"))
        var answer = ""
        while let part = try channel.readOutbound(as: ByteBuffer.self) { answer += String(buffer: part) }
        #expect(answer.hasPrefix("HTTP/1.1 404") && answer.contains("Connection: close"))
        #expect(!channel.isActive)
    }

    /// A connection without a socket, in front of nothing.
    private func embedded() throws -> (HTTPConnection, EmbeddedChannel) {
        let loop = LoopConnections(
            limits: ServerLimits(), time: LoopTime { HTTPDate(seconds: 0) }, hostNames: [], observer: nil)
        let connection = HTTPConnection(loop: loop, responder: Nothing())
        let channel = EmbeddedChannel(handler: connection)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        return (connection, channel)
    }

    private final class Nothing: Responder {
        func answer(
            _ request: RequestHead, _ answering: borrowing Answering, into buffer: inout ByteBuffer
        ) -> Answered? { nil }

        func respond(_ exchange: Exchange) { exchange.reply(404, "nothing") }
    }

    /// The log and the figures learn of everything that was answered, also before it was a request and in its middle.
    @Test
    func whatIsRefusedIsToldWithItsStatus() async throws {
        let observer = Statuses()
        let origin = try ScriptedOrigin(always: cached)
        try await withProxy(origin, limits: impatient { $0.bodyBytes = 10 }, observer: observer) { proxy async throws in
            for text in [
                "junk\r\n\r\n", "GET / HTTP/1.1\r\nHost: [\r\n\r\n",
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
            ] {
                let wire = try proxy.connect()
                wire.send(text)
                #expect(wire.answer() != nil)
                #expect(wire.isAtEnd())
            }
        }
        #expect(observer.all.withLock { $0 }.sorted() == [400, 400, 413])
    }

    private final class Statuses: ExchangeObserver {
        let all = Locked<[Int]>([])
        let wantsAnswered = true

        func finished(
            _ request: RequestHead, from client: SocketAddress?, _ answered: Answered, took: TimeAmount
        ) { all.withLock { $0.append(answered.status) } }

        func refused(status: Int, from client: SocketAddress?) { all.withLock { $0.append(status) } }
    }

    @Test
    func aSlowBodyIsCutOff() async throws {
        let origin = try ScriptedOrigin(always: cached)
        try await withProxy(origin, limits: impatient { $0.bodyStall = .milliseconds(50) }) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
            #expect(wire.answer()?.status == 408)
        }
    }

    @Test
    func aClientThatReadsNothingIsCutOff() async throws {
        let body = String(repeating: "x", count: 8_000_000)
        let origin = try ScriptedOrigin(always: reply("200 OK", ["Cache-Control: max-age=60"], body))
        try await withProxy(origin, limits: impatient { $0.writeStall = .milliseconds(100) }) { proxy async throws in
            #expect(try proxy.ask().isComplete)
            // The count has to be that of this connection, not of the one before, and not of the time before it was accepted.
            while try await proxy.server.connectionCount() > 0 { await Task.yield() }
            let wire = try Wire.unconnected()
            wire.holdAtMost(1 << 16)
            try wire.connect(to: proxy.server.port)
            while try await proxy.server.connectionCount() == 0 { await Task.yield() }
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            while try await proxy.server.connectionCount() > 0 { await Task.yield() }
            #expect(wire.takeAll().count < 16_000_000)
        }
    }

    @Test
    func oneConnectionTooManyIsClosed() async throws {
        try await withProxy(nil, limits: impatient { $0.connections = 2 }) { proxy async throws in
            let wires = [try proxy.connect(), try proxy.connect()]
            for wire in wires {
                wire.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(wire.answer()?.status == 204)
            }
            #expect(try proxy.connect().isAtEnd())
            wires[0].send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(wires[0].answer()?.status == 204)
        }
    }

    @Test
    func hundredsOfIdleConnectionsLeaveRoomForOthers() async throws {
        let origin = try ScriptedOrigin(always: cached)
        try await withProxy(origin) { proxy async throws in
            let idle = try (0..<400).map { _ in try proxy.connect() }
            let answer = try proxy.ask()
            #expect(answer.text == "hello" && idle.count == 400)
        }
    }

    /// What a client has sent and nobody has read makes the system reset the connection that is closed over it.
    @Test
    func aShutdownEndsWhatIsUnderWayThoughMoreRequestsHaveCome() async throws {
        let body = String(repeating: "x", count: 24 << 20)
        let origin = try ScriptedOrigin(always: reply("200 OK", ["Cache-Control: no-store"], body))
        let proxy = try await ProxyUnderTest(origin)
        let (busy, idle) = (try Wire.unconnected(), try proxy.connect())
        busy.holdAtMost(1 << 16)
        try busy.connect(to: proxy.server.port)
        idle.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
        #expect(idle.answer()?.status == 204)
        busy.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        #expect(busy.take(through: "\r\n\r\n") != nil)
        for _ in 0..<20 { busy.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n") }
        let server = proxy.server
        async let stopping: Void = server.shutdown(grace: .seconds(120))
        #expect(idle.isAtEnd())
        #expect(busy.takeAll().count == body.utf8.count)
        busy.endOutput()
        try await stopping
        try await proxy.stop()
    }

    @Test
    func aShutdownEndsWhatIsUnderWay() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\nCache-Control: max-age=60\r\n\r\nhel")
            gate.wait()
            wire.send("lo!")
            return true
        }
        let proxy = try await ProxyUnderTest(origin)
        let (busy, idle) = (try proxy.connect(), try proxy.connect())
        idle.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
        #expect(idle.answer()?.status == 204)
        busy.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        #expect(busy.take(through: "hel") != nil)
        let server = proxy.server
        async let stopping: Void = server.shutdown(grace: .seconds(20))
        #expect(idle.isAtEnd())
        gate.open()
        #expect(String(decoding: busy.takeAll(), as: UTF8.self) == "lo!")
        try await stopping
        try await proxy.stop()
    }
}
