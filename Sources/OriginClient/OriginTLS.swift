import NIOConcurrencyHelpers
import NIOCore
import NIOSSL

/// What all connections to `https` origins share: which authorities they trust.
///
/// Reading the authorities takes milliseconds and blocks, so it is done once, before the first connection, and not on an event
/// loop.
package final class OriginTLS: Sendable {
    private let certificateAuthorities: String?
    private let made = NIOLockedValueBox<NIOSSLContext?>(nil)

    /// - Parameter certificateAuthorities: A PEM file of authorities to trust besides the system's.
    package init(certificateAuthorities: String? = nil) {
        self.certificateAuthorities = certificateAuthorities
    }

    /// Reads the authorities, if that has not been done yet.
    ///
    /// Blocks.
    /// - Throws: If they cannot be read.
    package func prepare() throws {
        guard context == nil else { return }
        var settings = TLSConfiguration.makeClientConfiguration()
        if let certificateAuthorities { settings.additionalTrustRoots = [.file(certificateAuthorities)] }
        // A server that speaks nothing but HTTP/2 says so in the handshake, and sends no frames that nobody can read.
        settings.applicationProtocols = ["http/1.1"]
        let context = try NIOSSLContext(configuration: settings)
        made.withLockedValue { $0 = context }
    }

    private var context: NIOSSLContext? { made.withLockedValue { $0 } }

    /// What encrypts a connection to an origin.
    ///
    /// - Throws: If ``prepare()`` has not been called; if the host cannot be a server's name.
    func handler(for origin: Origin) throws -> NIOSSLClientHandler {
        guard let context else { throw UpstreamFailure.untrusted("TLS is not set up") }
        // Server names are names without the dot that a full name may end with; an address has none.
        let isAddress = (try? SocketAddress(ipAddress: origin.host, port: 0)) != nil
        let name = origin.host.hasSuffix(".") ? String(origin.host.dropLast()) : origin.host
        return try NIOSSLClientHandler(context: context, serverHostname: isAddress ? nil : name)
    }
}
