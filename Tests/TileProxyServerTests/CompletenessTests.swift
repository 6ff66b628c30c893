import HTTPListener
import HTTPTypes
import NIOCore
import OriginClient
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// Which bodies are complete where only the end of the connection ends them (RFC 9112 §8, §9.8).
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct CompletenessTests {
    private static let endless = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nhalf"
    private static let whole = reply("200 OK", ["Cache-Control: max-age=60"], "whole")

    @Test
    func aBodyThatAResetCutsOffIsNeitherCompletedNorStored() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            guard request.number == 1 else {
                wire.send(Self.whole)
                return true
            }
            wire.send(Self.endless)
            gate.wait()
            wire.resetsAtItsEnd()
            return false
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            #expect(wire.take(through: "half") != nil)
            gate.open()
            #expect(!String(decoding: wire.takeAll(), as: UTF8.self).contains("0\r\n\r\n"))
            #expect(try proxy.ask().text == "whole")
        }
    }

    /// An HTTP/1.0 client knows no chunks: the end of the connection is the end of the body.
    @Test
    func aClientThatOnlyTheConnectionsEndTellsTheBodysEndSeesAResetWhereItIsNotComplete() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
            gate.wait()
            return false
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET /a HTTP/1.0\r\n\r\n")
            #expect(wire.take(through: "half") != nil)
            gate.open()
            #expect(wire.endsWithReset())
        }
    }

    @Test
    func aClientThatOnlyTheConnectionsEndTellsTheBodysEndSeesAResetWhereItReadTooSlowly() async throws {
        let body = String(repeating: "x", count: 32 << 20)
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\n\r\n" + body)
            return false
        }
        var limits = ServerLimits()
        (limits.sweep, limits.writeStall, limits.readRate) = (.milliseconds(10), .milliseconds(30), .max)
        try await withProxy(origin, limits: limits) { proxy async throws in
            let wire = try Wire.unconnected()
            wire.holdAtMost(1 << 16)
            try wire.connect(to: proxy.server.port)
            wire.send("GET /a HTTP/1.0\r\n\r\n")
            #expect(wire.take(through: "\r\n\r\n") != nil)
            // Nothing is read until the proxy has given the client up.
            while try await proxy.server.connectionCount() > 0 {}
            #expect(wire.endsWithReset())
        }
    }

    @Test
    func aWholeBodyThatTheConnectionsEndEndsIsFollowedByNoReset() async throws {
        let body = String(repeating: "x", count: 24 << 20)
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\n\r\n" + body)
            return false
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET /a HTTP/1.0\r\n\r\n")
            #expect(wire.take(through: "\r\n\r\n") != nil)
            #expect(wire.take(body.utf8.count).count == body.utf8.count)
            #expect(!wire.endsWithReset())
        }
    }

    /// The same for a client that is not reading just then: what has come is handed on first, and the end after it.
    @Test
    func aBodyThatAResetCutsOffInAPauseIsNotCompletedLater() async throws {
        let body = String(repeating: "x", count: 24 << 20)
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\n\r\n" + body)
            wire.resetsAtItsEnd()
            return false
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            let text = wire.takeAll().suffix(7)
            #expect(!text.elementsEqual("\r\n0\r\n\r\n".utf8))
        }
    }

    @Test(arguments: [false, true])
    func aBodyThatEndsInOrderIsCompleteAndStored(isSecure: Bool) async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let origin = try await LocalOrigin.start(certificate: isSecure ? certificate : nil) { _ in
            .raw(.text("HTTP/1.1 200 OK\nCache-Control: max-age=60\n\nwhole"), .close)
        }
        try await withProxy(
            nil, routes: ["/=\(origin.url)"],
            configure: { $0.tls = OriginTLS(certificateAuthorities: certificate.path) }
        ) { proxy async throws in
            for _ in 0..<2 {
                let answer = try proxy.ask()
                #expect(answer.text == "whole" && answer.isComplete)
            }
            #expect(origin.requests.count == 1)
        }
    }

    @Test
    func aBodyThatEndsWithoutCloseNotifyIsNeitherCompletedNorStored() async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let count = Locked(0)
        let origin = try await LocalOrigin.start(certificate: certificate) { _ in
            let number = count.withLock { count in
                count += 1
                return count
            }
            guard number == 1 else { return LocalAnswer(.ok, [.cacheControl: "max-age=60"], text: "whole") }
            return .raw(.text("HTTP/1.1 200 OK\nCache-Control: max-age=60\n\nhalf"), .cut)
        }
        try await withProxy(
            nil, routes: ["/=https://localhost:\(origin.port)"],
            configure: { $0.tls = OriginTLS(certificateAuthorities: certificate.path) }
        ) { proxy async throws in
            #expect(try !proxy.ask().isComplete)
            #expect(try proxy.ask().text == "whole")
        }
    }

    @Test(arguments: [false, true])
    func aTileThatAResetCutsOffIsTruncated(isSecure: Bool) async throws {
        if isSecure, originCertificate == nil { return print("no openssl command: not tested over https") }
        let origin = try await LocalOrigin.start(certificate: isSecure ? originCertificate : nil) { _ in
            .raw(.text("HTTP/1.1 200 OK\n\nhalf"), .reset)
        }
        try await withTransport { transport in
            for _ in 0..<20 {
                await #expect(throws: TransportError.self) {
                    try await transport.send(TransportRequest(head: origin.request("/"), timeout: .seconds(300)))
                }
            }
        }
    }
}
