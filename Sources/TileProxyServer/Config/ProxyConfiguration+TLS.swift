import HTTPCaching
package import HTTPListener
import HTTPWire
import NIOSSL

extension ProxyConfiguration {
    /// Reads the file of certificate authorities, so that a mistake shows at the start and not as servers that cannot be
    /// reached.
    ///
    /// - Throws: ``ConfigError``.
    package func checkCertificateAuthorities() throws(ConfigError) {
        guard let file = certificateAuthorities else { return }
        do {
            guard try !NIOSSLCertificate.fromPEMFile(file).isEmpty else { throw NIOSSLError.failedToLoadCertificate }
        } catch {
            throw ConfigError(
                place: "configuration", key: "certificateAuthorities",
                "\(file) cannot be read, or has no certificate in PEM form")
        }
    }
}

// Where it listens, and with which certificate.
extension ProxyConfiguration {
    /// The port for TLS if none is said.
    package static let securePort = 8443

    /// Sets what flags say of where to listen, over what is set already.
    ///
    /// A host is for every address with a port. A port is for the first such address of its kind, which is added if there is none. A
    /// certificate without any address for it adds one, at ``securePort``.
    package mutating func listen(host: String?, port: Int?, securePort: Int?) {
        for (port, isSecure) in [(port, false), (securePort, true)] {
            guard let port else { continue }
            if let index = listen.firstIndex(where: { $0.isSecure == isSecure && $0.port != nil }) {
                listen[index].place = .port(host: listen[index].host ?? firstHost, port: port)
            } else {
                listen.append(ListenAddress(host: firstHost, port: port, isSecure: isSecure))
            }
        }
        if tls != nil, !listen.contains(where: \.isSecure) {
            listen.append(ListenAddress(host: firstHost, port: Self.securePort, isSecure: true))
        }
        guard let host else { return }
        for index in listen.indices {
            if let port = listen[index].port { listen[index].place = .port(host: host, port: port) }
        }
    }

    private var firstHost: String { listen.lazy.compactMap(\.host).first ?? "127.0.0.1" }

    /// Why an address cannot be listened on besides others; `nil` if it can.
    package static func problem(with address: ListenAddress, after others: [ListenAddress]) -> String? {
        if let path = address.socketPath {
            if let problem = ListeningSocket.problem(with: path) { return problem.description }
            if others.contains(where: { $0.place == address.place }) { return "this socket stands there twice" }
        }
        return address.port != 0 && others.contains(address) ? "this address stands there twice" : nil
    }

    /// The port to which clients without TLS are sent; `nil` if nobody can say it.
    ///
    /// That of the public URL, which may differ from where this server listens, or the first one that is listened on.
    package var redirectPort: Int? {
        if let publicURL, publicURL.hasPrefix("https://") {
            let authority = publicURL.dropFirst(8).prefix { $0 != "/" }
            let port = authority.lastIndex(of: ":").flatMap { Int(authority[authority.index(after: $0)...]) }
            return authority.hasSuffix("]") ? 443 : port ?? 443
        }
        return listen.lazy.filter(\.isSecure).compactMap(\.port).first { $0 != 0 }
    }

    func validateListening(_ fail: (_ key: String, _ message: String) -> ConfigError) throws(ConfigError) {
        let isSecure = listen.contains(where: \.isSecure)
        if isSecure, tls == nil {
            throw fail("tls", "https needs a certificate: name tls.certificate and tls.key, or the flags of that name")
        }
        if let tls, tls.certificate.isEmpty || tls.key.isEmpty {
            throw fail("tls", "it needs both a certificate and its key (--tls-certificate, --tls-key)")
        }
        if tls != nil, !isSecure {
            throw fail("listen", "there is a certificate, and no https://… address to show it at")
        }
        guard redirectsToHTTPS else { return }
        guard isSecure, listen.contains(where: { !$0.isSecure && $0.port != nil }) else {
            throw fail(
                "redirectToHTTPS",
                "it needs both an http://… and an https://… address in listen; what comes by a Unix socket is not redirected"
            )
        }
        guard redirectPort != nil else {
            throw fail("redirectToHTTPS", "the port is not known: name one in listen, or an https:// publicURL")
        }
    }

    /// Where connections begin with a PROXY header.
    package var addressesWithProxyHeader: Set<ListenAddress> {
        switch proxyProtocol {
        case .nowhere: []
        case .everywhere: Set(listen)
        case .at(let addresses): Set(addresses)
        }
    }

    func validateProxyProtocol(_ fail: (_ key: String, _ message: String) -> ConfigError) throws(ConfigError) {
        let addresses = addressesWithProxyHeader
        guard !addresses.isEmpty else { return }
        if let unknown = addresses.subtracting(listen).map(\.description).min() {
            throw fail("proxyProtocol", "\(unknown) is not among the addresses in listen")
        }
        guard trustedProxies != TrustedProxies() else {
            throw fail(
                "proxyProtocol", "nobody may send the header: name the servers in front in trustedProxies")
        }
    }

    /// Reads the certificate and its key.
    ///
    /// Blocks.
    /// - Returns: `nil` if the configuration has none.
    func readTLS() throws(ConfigError) -> ServerTLS.Identity? {
        guard let tls else { return nil }
        do throws(TLSProblem) { return try ServerTLS.read(tls) } catch {
            throw ConfigError(place: "configuration", key: "tls", error.description)
        }
    }
}

extension TLSFiles {
    /// What an operator should know of a certificate that can be used; nothing if it cannot be read.
    ///
    /// Blocks.
    var warnings: [String] {
        // That it cannot be read is an error that others report.
        (try? ServerTLS.warnings(self, now: LoopTime.system().seconds)) ?? []
    }
}
