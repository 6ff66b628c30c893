import Foundation
package import NIOSSL

/// A certificate, for `localhost` and 127.0.0.1 if nothing else is said, that nobody has reason to trust: made when it is needed, signed by itself.
package final class TestCertificate: Sendable {
    private let folder: URL

    /// The certificate, in PEM: what a client has to be given so that it trusts it.
    package var path: String { folder.appendingPathComponent("certificate.pem").path }
    /// Its key, in PEM.
    package var keyPath: String { folder.appendingPathComponent("key.pem").path }

    /// Makes a certificate with the `openssl` command; `nil` if there is no such command.
    ///
    /// - Parameter names: For whom, as OpenSSL writes alternative names.
    package init?(names: String = "DNS:localhost,IP:127.0.0.1") throws {
        folder = FileManager.default.temporaryDirectory
            .appendingPathComponent("tilecache-certificate-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let openssl = Process()
        openssl.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        openssl.arguments =
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            + ["-keyout", keyPath, "-out", path, "-days", "2", "-subj", "/CN=localhost"]
            + ["-addext", "subjectAltName=\(names)"]
        openssl.standardOutput = FileHandle.nullDevice
        openssl.standardError = FileHandle.nullDevice
        try openssl.run()
        openssl.waitUntilExit()
        if openssl.terminationStatus != 0 { return nil }
    }

    deinit { try? FileManager.default.removeItem(at: folder) }

    /// What a server needs to show it.
    ///
    /// - Parameter protocols: Those that the server offers by ALPN, such as `h2`.
    package func serverContext(protocols: [String] = []) throws -> NIOSSLContext {
        let chain = try NIOSSLCertificate.fromPEMFile(path).map { NIOSSLCertificateSource.certificate($0) }
        let key = try NIOSSLPrivateKey(file: keyPath, format: .pem)
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: chain, privateKey: .privateKey(key))
        configuration.applicationProtocols = protocols
        return try NIOSSLContext(configuration: configuration)
    }
}
