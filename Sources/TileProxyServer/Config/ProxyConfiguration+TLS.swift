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
