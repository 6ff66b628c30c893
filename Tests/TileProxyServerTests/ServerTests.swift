import NIOCore
import Testing

@testable import TileProxyServer

/// The server as a client sees it, over a socket.
@Suite(.timeLimit(.minutes(30)), .serialized, .ownThreads)
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
