/// Where a server listens, and whether it speaks TLS there.
package struct ListenAddress: Hashable, Sendable, CustomStringConvertible {
    /// A host's name or an address, without brackets.
    package var host: String
    /// The port; 0 for any that is free.
    package var port: Int
    /// Whether connections are encrypted.
    package var isSecure: Bool

    package init(host: String = "127.0.0.1", port: Int, isSecure: Bool = false) {
        self.host = host
        self.port = port
        self.isSecure = isSecure
    }

    /// `https://[::1]:8443`.
    package var description: String {
        "\(isSecure ? "https" : "http")://\(host.contains(":") ? "[\(host)]" : host):\(port)"
    }
}
