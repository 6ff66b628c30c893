import Foundation
import HTTPListener
import HTTPTypes
import Logging
import NIOCore
import NIOPosix
import Testing
import TileCache
import TileCacheNIO
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// The parts of the proxy as they run, with a certificate; passed over where there is no `openssl` to make one.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct SecureProxyTests {
    /// A proxy that listens with and without TLS, and how to ask it.
    private final class Running {
        let parts: Parts
        let server: HTTPServer
        let configuration: ProxyConfiguration
        private let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("proxy-\(UUID())").path

        init(_ certificate: TestCertificate, change: (inout ProxyConfiguration) -> Void = { _ in }) async throws {
            var configuration = ProxyConfiguration()
            configuration.listen = [ListenAddress(port: 0), ListenAddress(port: 0, isSecure: true)]
            configuration.threads = 2
            configuration.tls = TLSFiles(certificate: certificate.path, key: certificate.keyPath)
            configuration.sources = [try SourceConfiguration(argument: "a=\(folder)/{z}/{x}/{y}.png")]
            change(&configuration)
            self.configuration = configuration
            parts = try Parts(
                configuration, try SourceTable(configuration), try TileStore(at: folder), group, nil,
                try configuration.readTLS().map { ServerTLS($0) }, Logger(label: "test"))
            server = try await parts.start(connections: 100)
        }

        /// Asks with a connection of its own, and trusts a certificate and no other of its kind.
        func get(
            _ path: String, secure: Bool = true, trusting certificate: TestCertificate
        ) async throws -> TransportResponse {
            var settings = AsyncHTTPClientTransport.Configuration()
            settings.certificateAuthorities = certificate.path
            let client = AsyncHTTPClientTransport(configuration: settings)
            let port = server.addresses[secure ? 1 : 0].port ?? 0
            let head = HTTPRequest(
                method: .get, scheme: secure ? "https" : "http", authority: "127.0.0.1:\(port)", path: path)
            let answer: Result<TransportResponse, TransportError>
            do throws(TransportError) {
                answer = .success(try await client.send(TransportRequest(head: head, timeout: .seconds(3600))))
            } catch { answer = .failure(error) }
            await client.shutdown()
            return try answer.get()
        }

        func stop() async throws {
            try await server.shutdown()
            try await parts.shutdown()
            try await group.shutdownGracefully()
            try FileManager.default.removeItem(atPath: folder)
        }
    }

    @Test
    func tileJSONOverTLSNamesURLsWithTLS() async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let proxy = try await Running(certificate)
        let text = try await proxy.get("/tiles/a.json", trusting: certificate).text
        #expect(text.contains("\"https://127.0.0.1:\(proxy.server.addresses[1].port ?? 0)/tiles/a/"))
        let plain = try await proxy.get("/tiles/a.json", secure: false, trusting: certificate).text
        #expect(plain.contains("\"http://127.0.0.1:\(proxy.server.addresses[0].port ?? 0)/tiles/a/"))
        try await proxy.stop()
    }

    @Test
    func plainRequestsAreSentToTLSAndHealthIsNot() async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let proxy = try await Running(certificate) {
            $0.publicURL = "https://tiles.example.org"
            $0.redirectsToHTTPS = true
        }
        let answer = try await proxy.get("/tiles/a.json?x=y", secure: false, trusting: certificate)
        #expect(answer.status == 308)
        #expect(answer[.location] == "https://127.0.0.1/tiles/a.json?x=y")
        #expect(try await proxy.get("/_tileproxy/health", secure: false, trusting: certificate).status == 200)
        #expect(try await proxy.get("/tiles/a.json", trusting: certificate).status == 200)
        try await proxy.stop()
    }

    @Test
    func aReloadShowsAnotherCertificateAndKeepsTheFormerOneWhereThatIsOfNoUse() async throws {
        guard let old = try TestCertificate(), let new = try TestCertificate() else {
            return print("no openssl command: not tested")
        }
        let proxy = try await Running(old)
        #expect(try await proxy.get("/tiles/a.json", trusting: old).status == 200)
        let next = Locked(proxy.configuration)
        let reloader = Reloader(
            proxy.parts, proxy.configuration, { () throws(ConfigError) in next.withLock { $0 } },
            Logger(label: "test"))
        next.withLock { $0.tls = TLSFiles(certificate: new.path, key: new.keyPath) }
        reloader.reload()
        #expect(try await proxy.get("/tiles/a.json", trusting: new).status == 200)
        await #expect(throws: (any Error).self) { try await proxy.get("/tiles/a.json", trusting: old) }
        next.withLock { $0.tls = TLSFiles(certificate: old.path, key: new.keyPath) }
        reloader.reload()
        #expect(try await proxy.get("/tiles/a.json", trusting: new).status == 200)
        let figures = proxy.parts.statistics.snapshot
        #expect(figures.reloads == 1 && figures.failedReloads == 1 && figures.handshakeFailures >= 1)
        try await proxy.stop()
    }

    /// Somebody else holds the cache's lock for longer than a reload waits.
    @Test
    func aReloadThatCouldNotSetTheLimitsIsTriedAgainByTheNextOne() async throws {
        guard let certificate = try TestCertificate() else { return print("no openssl command: not tested") }
        let proxy = try await Running(certificate)
        let store = proxy.parts.tiles.store
        let next = Locked(proxy.configuration)
        let reloader = Reloader(
            proxy.parts, proxy.configuration, { () throws(ConfigError) in next.withLock { $0 } },
            Logger(label: "test"))
        next.withLock { $0.capacity = 1 << 20 }
        let lock = open(proxy.folder + "/lock", O_RDWR)
        #expect(lock >= 0 && flock(lock, LOCK_EX) == 0)
        reloader.reload()
        #expect(try store.limits().capacity == nil)
        #expect(proxy.parts.statistics.snapshot.failedReloads == 1)
        #expect(close(lock) == 0)
        reloader.reload()
        #expect(try store.limits().capacity == 1 << 20)
        #expect(proxy.parts.statistics.snapshot.reloads == 1)
        try await proxy.stop()
    }
}
