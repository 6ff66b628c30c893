import HTTPCaching
import HTTPTypes
import HTTPWire
import NIOCore
import NIOEmbedded
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import HTTPListener

/// The server as a client sees it, over a socket.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct ServerTests {
    /// Every other request is answered at once, and the rest a turn of the loop later.
    @Test
    func pipelinedRequestsAreAnsweredInOrder() async throws {
        try await withServer(
            answer: { head, answering, output in
                guard head.target.hasSuffix("0") else { return nil }
                output.writeStatusLine(200)
                output.writeField("Content-Length: ", head.target.utf8.count)
                answering.writeConnection(into: &output)
                output.writeString("\r\n" + head.target)
                return Answered(status: 200, bodyBytes: head.target.utf8.count)
            },
            respond: { exchange in
                exchange.eventLoop.execute {
                    exchange.reply(HTTPResponse(status: .ok), body: ByteBuffer(string: exchange.head.target))
                }
            }
        ) { server async throws in
            let wire = try server.connect()
            for i in 0..<50 { wire.send("GET /\(i / 2)\(i % 2) HTTP/1.1\r\nHost: a\r\n\r\n") }
            for i in 0..<50 { #expect(wire.answer()?.text == "/\(i / 2)\(i % 2)") }
        }
    }

    @Test
    func aFloodOfPipelinedHitsIsAnsweredInOrderAndOnce() async throws {
        try await withServer(
            answer: { head, _, output in
                output.writeStatusLine(200)
                output.writeStaticString("Content-Length: 100000\r\n\r\n")
                output.writeString(head.target)
                output.writeRepeatingByte(UInt8(ascii: "x"), count: 100_000 - head.target.utf8.count)
                return Answered(status: 200, bodyBytes: 100_000)
            }
        ) { server async throws in
            let wire = try server.connect()
            for i in 0..<200 { wire.send("GET /\(i) HTTP/1.1\r\nHost: a\r\n\r\n") }
            for i in 0..<200 {
                let answer = try #require(wire.answer())
                #expect(answer.body.count == 100_000 && answer.text.hasPrefix("/\(i)x"))
            }
        }
    }

    @Test
    func oneDotZeroGetsNoChunksAndNoInterim() async throws {
        try await withServer(respond: { exchange in
            exchange.sendInterim(HTTPResponse(status: .init(code: 103), headerFields: [.contentLanguage: "en"]))
            exchange.send(HTTPResponse(status: .ok), length: nil)
            exchange.send(ByteBuffer(string: "hello"))
            exchange.finish()
        }) { server async throws in
            let old = try server.connect()
            old.send("GET /a HTTP/1.0\r\n\r\n")
            let text = String(decoding: old.takeAll(), as: UTF8.self)
            #expect(text.hasPrefix("HTTP/1.1 200") && text.hasSuffix("\r\n\r\nhello"))
            #expect(!text.contains("chunked") && !text.contains("103"))
            let new = try server.ask()
            #expect(new.text == "hello" && new["Transfer-Encoding"] == "chunked")
            #expect(new.interim.map(\.status) == [103])
        }
    }

    @Test
    func aBodyComesWithContinueAndInChunks() async throws {
        try await withServer { server async throws in
            let wire = try server.connect()
            wire.send("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            #expect(wire.take(through: "\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n")
            wire.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(wire.answer()?.text == "/a abcde")
            #expect(wire.answer()?.text == "/b ")
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
        let reached = Notes<String>()
        try await withServer(respond: {
            reached.add($0.head.target)
            $0.reply(200, "hello")
        }) { server async throws in
            let wire = try server.connect()
            wire.send(text)
            let answer = try #require(wire.answer())
            #expect(answer.status == expected)
            #expect(expected == 417 || wire.isAtEnd())
            #expect(reached.all.isEmpty)
        }
    }

    @Test
    func anAbsoluteTargetOfThisServerIsAPath() async throws {
        try await withServer { server async throws in
            for host in ["127.0.0.1", "localhost"] {
                #expect(try server.ask("GET", "http://\(host):\(server.server.port)/a").text == "/a ")
            }
        }
    }

    @Test
    func aSlowHeadIsCutOff() async throws {
        try await withServer(limits: impatient { $0.head = .milliseconds(50) }) { server async throws in
            let wire = try server.connect()
            wire.send("GET / HTTP/1.1\r\nHost: a\r\nX: ")
            #expect(wire.answer()?.status == 408)
            #expect(wire.isAtEnd())
        }
    }

    @Test
    func anIdleConnectionIsClosedWithoutAWord() async throws {
        try await withServer(limits: impatient { ($0.idle, $0.head) = (.milliseconds(50), .milliseconds(50)) }) {
            server async throws in
            let wire = try server.connect()
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
        let responder = TestResponder(answer: { _, _, _ in nil }, respond: { $0.reply(404, "nothing") })
        let connection = HTTPConnection(loop: loop, responder: responder)
        let channel = EmbeddedChannel(handler: connection)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        return (connection, channel)
    }

    /// The log and the figures learn of everything that was answered, also before it was a request and in its middle.
    @Test
    func whatIsRefusedIsToldWithItsStatus() async throws {
        let observer = Statuses()
        try await withServer(limits: impatient { $0.bodyBytes = 10 }, observer: observer) { server async throws in
            for text in [
                "junk\r\n\r\n", "GET / HTTP/1.1\r\nHost: [\r\n\r\n",
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
            ] {
                let wire = try server.connect()
                wire.send(text)
                #expect(wire.answer() != nil)
                #expect(wire.isAtEnd())
            }
        }
        #expect(observer.all.all.sorted() == [400, 400, 413])
    }

    private final class Statuses: ExchangeObserver {
        let all = Notes<Int>()
        let wantsAnswered = true

        func finished(
            _ request: RequestHead, from client: SocketAddress?, _ answered: Answered, took: TimeAmount
        ) { all.add(answered.status) }

        func refused(status: Int, from client: SocketAddress?) { all.add(status) }
    }

    @Test
    func aSlowBodyIsCutOff() async throws {
        try await withServer(limits: impatient { $0.bodyStall = .milliseconds(50) }) { server async throws in
            let wire = try server.connect()
            wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
            #expect(wire.answer()?.status == 408)
        }
    }

    @Test
    func aClientThatReadsNothingIsCutOff() async throws {
        try await withServer(
            limits: impatient { $0.writeStall = .milliseconds(100) },
            respond: { TestResponder.pour($0, 8_000_000) }
        ) { server async throws in
            let wire = try server.connectReadingLittle()
            // Not the time before it was accepted.
            while try await server.server.connectionCount() == 0 { await Task.yield() }
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            while try await server.server.connectionCount() > 0 { await Task.yield() }
            #expect(wire.takeAll().count < 16_000_000)
        }
    }

    @Test
    func oneConnectionTooManyIsClosed() async throws {
        try await withServer(limits: impatient { $0.connections = 2 }) { server async throws in
            let wires = [try server.connect(), try server.connect()]
            for wire in wires {
                wire.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(wire.answer()?.status == 204)
            }
            #expect(try server.connect().isAtEnd())
            wires[0].send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(wires[0].answer()?.status == 204)
        }
    }

    @Test
    func hundredsOfIdleConnectionsLeaveRoomForOthers() async throws {
        try await withServer { server async throws in
            let idle = try (0..<400).map { _ in try server.connect() }
            let answer = try server.ask()
            #expect(answer.text == "/a " && idle.count == 400)
        }
    }

    /// What a client has sent and nobody has read makes the system reset the connection that is closed over it.
    @Test
    func aShutdownEndsWhatIsUnderWayThoughMoreRequestsHaveCome() async throws {
        let size = 24 << 20
        try await withServer(respond: { exchange in
            if exchange.head.path == "*" {
                TestResponder.echo(exchange)
            } else {
                TestResponder.pour(exchange, size)
            }
        }) { tested async throws in
            let (busy, idle) = (try tested.connectReadingLittle(), try tested.connect())
            idle.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(idle.answer()?.status == 204)
            busy.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(busy.take(through: "\r\n\r\n") != nil)
            for _ in 0..<20 { busy.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n") }
            let server = tested.server
            async let stopping: Void = server.shutdown(grace: .seconds(120))
            #expect(idle.isAtEnd())
            #expect(busy.takeAll().count == size)
            busy.endOutput()
            try await stopping
        }
    }
}
