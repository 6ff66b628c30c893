import HTTPTypes
import NIOCore
import NIOEmbedded
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import OriginClient

/// Origins behind TLS.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct TLSTests {
    private static func answer(_ text: String) -> LocalOrigin.Answer { { _ in LocalAnswer(.ok, text: text) } }

    @Test(arguments: ["localhost", "127.0.0.1"])
    func aCertificateForTheNameIsTrusted(host: String) async throws {
        try await withOrigin(isSecure: true, answer: Self.answer("secret")) { origin, client async throws in
            for _ in 0..<3 {
                #expect(try await client.ask("https://\(host):\(origin.port)") == "200 6 secret end")
            }
            #expect(origin.connectionsMade == 1, "the connection is kept")
        }
    }

    /// One set of TLS settings serves all origins; the scheme of each decides.
    @Test
    func aPlainOriginBesideASecureOneIsSpokenToInPlainHTTP() async throws {
        let plain = try await LocalOrigin.start(answer: Self.answer("plain"))
        try await withOrigin(isSecure: true, answer: Self.answer("secret")) { origin, client async throws in
            for _ in 0..<2 {
                #expect(try await client.ask(plain.url) == "200 5 plain end")
                #expect(try await client.ask(origin.url) == "200 6 secret end")
            }
            #expect(plain.connectionsMade == 1 && origin.connectionsMade == 1)
        }
    }

    @Test
    func aCertificateThatNobodyVouchesForIsRefused() async throws {
        try await withOrigin(isSecure: true, answer: Self.answer("secret")) { origin, _ async throws in
            try await withClient(trusting: nil) { client async throws in
                #expect(try await client.ask(origin.url) == "untrusted")
                #expect(origin.requests.isEmpty)
            }
        }
    }

    @Test
    func anOriginThatSpeaksNoTLSIsRefused() async throws {
        let plain = try await LocalOrigin.start(answer: Self.answer("plain"))
        try await withClient { client async throws in
            #expect(try await client.ask("https://localhost:\(plain.port)") == "untrusted")
        }
    }

    @Test
    func aCertificateForAnotherNameIsRefused() async throws {
        guard let other = try TestCertificate(names: "DNS:other.test") else {
            return print("no openssl command: not tested")
        }
        let origin = try await LocalOrigin.start(certificate: other, answer: Self.answer("secret"))
        try await withClient(trusting: other) { client async throws in
            #expect(try await client.ask("https://localhost:\(origin.port)") == "untrusted")
            #expect(origin.requests.isEmpty)
        }
    }

    /// The dot that a full name may end with is no part of a server's name (RFC 6066 §3).
    @Test
    func aFullNameWithADotAtItsEndIsTheSameServer() throws {
        let tls = OriginTLS()
        try tls.prepare()
        let origin = try #require(Origin("https://localhost.:81"))
        let channel = EmbeddedChannel(handler: try tls.handler(for: origin))
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 81)).wait()
        let hello = try #require(try channel.readOutbound(as: ByteBuffer.self))
        let bytes = Array(hello.readableBytesView)
        let name = [0, 9] + Array("localhost".utf8)
        #expect(bytes.indices.contains { bytes[$0...].starts(with: name) })
        // ALPN names the one protocol that this client speaks.
        #expect(bytes.indices.contains { bytes[$0...].starts(with: [8] + Array("http/1.1".utf8)) })
        _ = try? channel.finish()
    }

    @Test
    func withoutAuthoritiesThatCanBeReadNothingIsTrusted() async throws {
        let tls = OriginTLS(certificateAuthorities: "/nowhere/ca.pem")
        #expect(throws: (any Error).self) { try tls.prepare() }
        let origin = try #require(Origin("https://localhost"))
        #expect(throws: UpstreamFailure.untrusted("TLS is not set up")) { try tls.handler(for: origin) }
    }
}
