import Testing
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// What may come behind a body, and who gets it.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct TrailerTests {
    @Test
    func trailersAreForThoseWhoAskForThem() async throws {
        let origin = try ScriptedOrigin(
            always: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: yes\r\n\r\n")
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask("GET", "/a", ["TE: trailers"]).trailers.count == 1)
            let plain = try proxy.ask()
            #expect(plain.trailers.isEmpty && plain.text == "ok" && plain.isComplete)
        }
    }

    /// Behind a body, fields that frame, route or authenticate would only deceive (RFC 9110 §6.5.1).
    @Test
    func trailersBringNothingThatBelongsIntoAHead() async throws {
        let bad = "Content-Length: 1\r\nHost: b\r\nAuthorization: x\r\nIf-Match: x\r\nSet-Cookie: a=b\r\nVary: a\r\n"
        let seen = Locked("")
        let origin = try ScriptedOrigin { request, wire in
            seen.withLock { $0 = request.trailers }
            wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\(bad)X-T: 1\r\n\r\n")
            return true
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send(
                "POST /a HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + "2\r\nok\r\n0\r\n\(bad)X-T: 2\r\n\r\n")
            #expect(wire.answer()?.trailers.map(\.name) == ["X-T"])
            #expect(seen.withLock { $0 } == "X-T: 2\r\n")
        }
    }
}
