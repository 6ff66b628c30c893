import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// Requests that go through the server to the origin, and back.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct PassingThroughTests {
    private let cached = reply("200 OK", ["Cache-Control: max-age=60"], "hello")

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
}
