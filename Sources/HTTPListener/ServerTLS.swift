import NIOConcurrencyHelpers
import NIOCore
import NIOSSL

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The files that a server shows to TLS clients.
package struct TLSFiles: Hashable, Sendable {
    /// The certificate, and those that lead to an authority, in PEM: the server's own first.
    package var certificate: String
    /// Its private key in PEM, without a passphrase.
    package var key: String

    package init(certificate: String, key: String) {
        self.certificate = certificate
        self.key = key
    }
}

/// Why a certificate and its key cannot be used: one line that names the file.
package struct TLSProblem: Error, Hashable, CustomStringConvertible {
    package let description: String
}

/// The certificate with which new connections begin; it can be replaced while the server runs.
///
/// A connection keeps the one with which it began.
package final class ServerTLS: Sendable {
    /// A certificate and its key, read and found to belong together.
    package struct Identity: Sendable {
        fileprivate let context: NIOSSLContext
    }

    private let identity: NIOLockedValueBox<Identity>

    /// The protocols that a server offers, the best first.
    private static let protocols = ["h2", "http/1.1"]

    /// Larger files are no certificates.
    private static let largestFile = 1 << 20

    package init(_ identity: Identity) { self.identity = NIOLockedValueBox(identity) }

    /// Shows another certificate from now on.
    package func use(_ identity: Identity) { self.identity.withLockedValue { $0 = identity } }

    /// What encrypts a new connection.
    func handler() -> NIOSSLServerHandler { NIOSSLServerHandler(context: identity.withLockedValue { $0.context }) }

    /// What an operator should know of a certificate that can be used: that it has expired, or is not valid yet.
    ///
    /// Blocks.
    /// - Parameter now: Seconds since 1970.
    package static func warnings(_ files: TLSFiles, now: Int64) throws(TLSProblem) -> [String] {
        guard let own = try certificates(files.certificate).first else { return [] }
        if Int64(own.notValidAfter) < now { return ["the certificate in \(files.certificate) has expired"] }
        if Int64(own.notValidBefore) > now { return ["the certificate in \(files.certificate) is not valid yet"] }
        return []
    }

    /// Reads a certificate and its key.
    ///
    /// Blocks.
    package static func read(_ files: TLSFiles) throws(TLSProblem) -> Identity {
        let chain = try certificates(files.certificate)
        let bytes = try contents(of: files.key)
        let key: NIOSSLPrivateKey
        do {
            // Without an answer to the question for a passphrase, the library would ask on the terminal.
            key = try NIOSSLPrivateKey(bytes: bytes, format: .pem) { answer in answer([UInt8]()) }
        } catch {
            throw TLSProblem(
                description: "\(files.key) has no private key in PEM form, or one that needs a passphrase")
        }
        var settings = TLSConfiguration.makeServerConfiguration(
            certificateChain: chain.map { .certificate($0) }, privateKey: .privateKey(key))
        settings.minimumTLSVersion = .tlsv12
        // With forward secrecy and authenticated encryption: those that RFC 9113 §9.2.2 does not forbid.
        settings.cipherSuiteValues = [
            .TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, .TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            .TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, .TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            .TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, .TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ]
        settings.applicationProtocols = protocols
        do { return Identity(context: try NIOSSLContext(configuration: settings)) } catch {
            throw TLSProblem(
                description: "the key in \(files.key) does not belong to the first certificate in "
                    + "\(files.certificate), or is of a kind that TLS servers cannot use")
        }
    }

    private static func certificates(_ file: String) throws(TLSProblem) -> [NIOSSLCertificate] {
        let bytes = try contents(of: file)
        // The library's own error says no more.
        guard let all = try? NIOSSLCertificate.fromPEMBytes(bytes), !all.isEmpty else {
            throw TLSProblem(description: "\(file) has no certificate in PEM form")
        }
        return all
    }

    private static func contents(of path: String) throws(TLSProblem) -> [UInt8] {
        func fail() -> TLSProblem {
            TLSProblem(description: "\(path) cannot be read: \(String(cString: strerror(errno)))")
        }
        // Not waiting for somebody to write, should it be a pipe.
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard file >= 0 else { throw fail() }
        defer { close(file) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16 << 10)
        while bytes.count <= largestFile {
            let count = chunk.withUnsafeMutableBytes { readFile(file, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw fail() }
            if count == 0 { return bytes }
            bytes += chunk[..<count]
        }
        throw TLSProblem(description: "\(path) is too large for a certificate or a key")
    }
}

/// `read` of the system, which a method of this name would hide.
private func readFile(_ file: Int32, _ room: UnsafeMutableRawPointer?, _ count: Int) -> Int { read(file, room, count) }
