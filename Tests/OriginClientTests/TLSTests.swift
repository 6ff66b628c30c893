import HTTPTypes
import NIOCore
import Testing
import TileCacheTesting

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
                #expect(try await client.ask(origin.url) == "unreachable")
                #expect(origin.requests.isEmpty)
            }
        }
    }

    @Test
    func anOriginThatSpeaksNoTLSIsRefused() async throws {
        let plain = try await LocalOrigin.start(answer: Self.answer("plain"))
        try await withClient { client async throws in
            #expect(try await client.ask("https://localhost:\(plain.port)") == "unreachable")
        }
    }
}
