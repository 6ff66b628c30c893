import Foundation
import HTTPTypes
import NIOCore
import NIOPosix
import NIOSSL
import Testing
import TileCacheTesting
import TileStoreTesting

@testable import HTTPListener

/// TLS on the listener, as clients see it.
///
/// Passed over where there is no `openssl` to make certificates with.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct TLSTests {
    @Test(arguments: [TLSVersion.tlsv12, .tlsv13])
    func requestsAreAnsweredInBothVersions(version: TLSVersion) async throws {
        guard let certificate = try TestCertificate() else { return }
        try await withServer(tls: try certificate.tls()) { server async throws in
            let client = try await TLSClient(
                port: server.server.port, trusting: certificate, protocols: ["http/1.1"], from: version,
                to: version)
            #expect(client.applicationProtocol == "http/1.1")
            client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(await client.text(through: "/a ").hasSuffix("/a "))
            client.send("GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            #expect(try await client.end() == .orderly)
            #expect(client.text.hasSuffix("/b "))
        }
    }

    @Test
    func olderVersionsAreRefused() async throws {
        guard let certificate = try TestCertificate() else { return }
        let failures = Notes<Bool>()
        try await withServer(tls: try certificate.tls(), onHandshakeFailure: { failures.add(true) }) {
            server async throws in
            await #expect(throws: (any Error).self) {
                _ = try await TLSClient(
                    port: server.server.port, trusting: certificate, from: .tlsv1, to: .tlsv11)
            }
            while failures.all.isEmpty { await Task.yield() }
        }
        #expect(failures.all.count == 1)
    }

    @Test
    func aRequestSaysThatItCameOverTLS() async throws {
        guard let certificate = try TestCertificate() else { return }
        try await withServer(tls: try certificate.tls(), respond: { $0.reply(200, $0.head.scheme) }) {
            server async throws in
            let client = try await TLSClient(port: server.server.port, trusting: certificate)
            // A whole URL with this server's name is a path.
            client.send("GET https://127.0.0.1:\(server.server.port)/a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(await client.text(through: "https\n").hasSuffix("https\n"))
        }
    }

    /// A client takes the end of the connection for the end of the body: it must see that it is not.
    @Test
    func aBrokenOffAnswerToAnOldClientEndsWithoutGoodbye() async throws {
        guard let certificate = try TestCertificate() else { return }
        try await withServer(
            tls: try certificate.tls(),
            respond: { exchange in
                exchange.send(HTTPResponse(status: .ok), length: nil)
                exchange.send(ByteBuffer(string: "half"))
                exchange.eventLoop.execute { exchange.abort() }
            }
        ) { server async throws in
            let client = try await TLSClient(port: server.server.port, trusting: certificate)
            client.send("GET /a HTTP/1.0\r\n\r\n")
            #expect(try await client.end() == .cut)
            #expect(client.text.hasSuffix("half"))
        }
    }

    @Test
    func aClientThatSaysNothingOrGarbageIsCutOff() async throws {
        guard let certificate = try TestCertificate() else { return }
        let failures = Notes<Bool>()
        try await withServer(
            limits: impatient { $0.handshake = .milliseconds(50) }, tls: try certificate.tls(),
            onHandshakeFailure: { failures.add(true) }
        ) { server async throws in
            let silent = try server.connect()
            #expect(silent.isAtEnd())
            // The beginning of a record that never comes to its end.
            let half = try server.connect()
            half.send([0x16, 0x03, 0x01, 0x02, 0x00, 0x01])
            #expect(half.isAtEnd())
            let plain = try server.connect()
            plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(!String(decoding: plain.takeAll(), as: UTF8.self).contains("HTTP/1.1 200"))
        }
        #expect(failures.all.count == 3)
    }

    /// As health checks make it, of which none is a client that could not agree on encryption.
    @Test
    func aConnectionWithoutAByteIsNoFailedHandshake() async throws {
        guard let certificate = try TestCertificate() else { return }
        let failures = Notes<Bool>()
        try await withServer(tls: try certificate.tls(), onHandshakeFailure: { failures.add(true) }) {
            server async throws in
            for resets in [false, true] {
                var look: Wire? = try server.connect()
                while try await server.server.connectionCount() == 0 { await Task.yield() }
                // A connection ends with its last owner.
                if resets { look?.resetsAtItsEnd() }
                look = nil
                while try await server.server.connectionCount() > 0 { await Task.yield() }
            }
            #expect(failures.all.isEmpty)
            let half = try server.connect()
            half.send([0x16, 0x03, 0x01, 0x02, 0x00, 0x01])
            half.endOutput()
            while failures.all.isEmpty { await Task.yield() }
        }
        #expect(failures.all.count == 1)
    }

    @Test
    func aConnectionInItsHandshakeDoesNotHoldTheServerUpWhenItGoesDown() async throws {
        guard let certificate = try TestCertificate() else { return }
        try await withServer(tls: try certificate.tls()) { tested async throws in
            let wire = try tested.connect()
            while try await tested.server.connectionCount() == 0 { await Task.yield() }
            try await tested.server.shutdown(grace: .seconds(3600))
            #expect(wire.isAtEnd())
        }
    }

    @Test
    func aNewCertificateIsForNewConnections() async throws {
        guard let old = try TestCertificate(), let new = try TestCertificate() else { return }
        let tls = try old.tls()
        try await withServer(tls: tls) { server async throws in
            let early = try await TLSClient(port: server.server.port, trusting: old)
            tls.use(try ServerTLS.read(new.files))
            let late = try await TLSClient(port: server.server.port, trusting: new)
            for client in [early, late] {
                client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                #expect(await client.text(through: "/a ").hasSuffix("/a "))
            }
            await #expect(throws: (any Error).self) {
                _ = try await TLSClient(port: server.server.port, trusting: old)
            }
        }
    }

    @Test
    func aCertificateThatCannotBeUsedIsNamedAndTheFormerOneStays() async throws {
        guard let good = try TestCertificate(), let other = try TestCertificate() else { return }
        let tls = try good.tls()
        let (certificate, key) = (good.files.certificate, good.files.key)
        let cases: [(TLSFiles, String)] = [
            (
                TLSFiles(certificate: certificate, key: other.files.key),
                "the key in \(other.files.key) does not belong to the first certificate in \(certificate)"
            ),
            (TLSFiles(certificate: certificate, key: certificate), "\(certificate) has no private key in PEM form"),
            (TLSFiles(certificate: key, key: key), "\(key) has no certificate in PEM form"),
            (
                TLSFiles(certificate: certificate + "-gone", key: key),
                "\(certificate)-gone cannot be read: No such file or directory"
            ),
            (TLSFiles(certificate: "/dev/zero", key: key), "/dev/zero is too large"),
        ]
        for (files, message) in cases {
            let error = #expect(throws: TLSProblem.self) { tls.use(try ServerTLS.read(files)) }
            #expect(error?.description.contains(message) ?? false, "\(error?.description ?? "")")
        }
        try await withServer(tls: tls) { server async throws in
            let client = try await TLSClient(port: server.server.port, trusting: good)
            client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(await client.text(through: "/a ").hasSuffix("/a "))
        }
    }

    @Test
    func anExpiredCertificateIsAWarning() throws {
        guard let certificate = try TestCertificate() else { return }
        let now = Int64(Date().timeIntervalSince1970)
        let day: Int64 = 86400
        let path = certificate.path
        #expect(try ServerTLS.warnings(certificate.files, now: now) == [])
        #expect(
            try ServerTLS.warnings(certificate.files, now: now + 3 * day) == ["the certificate in \(path) has expired"])
        #expect(
            try ServerTLS.warnings(certificate.files, now: now - 3 * day)
                == ["the certificate in \(path) is not valid yet"])
    }

    @Test
    func anAddressThatIsTakenIsNamed() async throws {
        try await withServer { server async throws in
            let wanted = ListenAddress(port: server.server.port)
            var configuration = HTTPServer.Configuration()
            configuration.addresses = [ListenAddress(port: 0), wanted]
            let error = await #expect(throws: HTTPServer.ListenFailure.self) {
                _ = try await HTTPServer.start(configuration, on: MultiThreadedEventLoopGroup.singleton) { _, _ in
                    TestResponder(answer: { _, _, _ in nil }, respond: TestResponder.echo)
                }
            }
            #expect(error?.address == wanted)
        }
    }
}

extension TestCertificate {
    func tls() throws -> ServerTLS { ServerTLS(try ServerTLS.read(files)) }
    var files: TLSFiles { TLSFiles(certificate: path, key: keyPath) }
}
