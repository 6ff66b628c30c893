import HTTPTypes
import Testing
import TileCacheTesting

@testable import TileProxyServer

/// Origins behind TLS.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct UpstreamTLSTests {
    private func withOrigin(_ body: (LocalOrigin, TestCertificate) async throws -> Void) async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let origin = try await LocalOrigin.start(certificate: certificate) { _ in
            LocalAnswer(.ok, [.cacheControl: "max-age=60"], text: "secret")
        }
        try await body(origin, certificate)
    }

    @Test(arguments: ["localhost", "127.0.0.1"])
    func aCertificateForTheNameIsTrusted(host: String) async throws {
        try await withOrigin { origin, certificate in
            try await withProxy(
                nil, routes: ["/=https://\(host):\(origin.port)"],
                configure: { $0.certificateAuthorities = certificate.path }
            ) { proxy async throws in
                for _ in 0..<2 { #expect(try proxy.ask().text == "secret") }
                #expect(try proxy.ask("GET", "/b").text == "secret")
                #expect(origin.connectionsMade == 1, "the connection is kept")
            }
        }
    }

    /// One set of TLS settings serves all origins; the scheme of each decides.
    @Test
    func aPlainOriginBesideASecureOneIsSpokenToInPlainHTTP() async throws {
        let plain = try await LocalOrigin.start { _ in LocalAnswer(.ok, text: "plain") }
        try await withOrigin { origin, certificate in
            try await withProxy(
                nil, routes: ["/secure=https://localhost:\(origin.port)", "/plain=http://127.0.0.1:\(plain.port)"],
                configure: { $0.certificateAuthorities = certificate.path }
            ) { proxy async throws in
                #expect(try proxy.ask("GET", "/plain/a").text == "plain")
                #expect(try proxy.ask("GET", "/secure/a").text == "secret")
            }
        }
    }

    @Test
    func aCertificateThatNobodyVouchesForIsRefused() async throws {
        try await withOrigin { origin, _ in
            try await withProxy(nil, routes: ["/=https://localhost:\(origin.port)"]) { proxy async throws in
                #expect(try proxy.ask().status == 502)
                #expect(origin.requests.isEmpty)
            }
        }
    }

    @Test
    func anOriginThatSpeaksNoTLSIsRefused() async throws {
        let plain = try await LocalOrigin.start { _ in LocalAnswer(.ok, text: "plain") }
        try await withProxy(nil, routes: ["/=https://localhost:\(plain.port)"]) { proxy async throws in
            #expect(try proxy.ask().status == 502)
        }
    }
}
