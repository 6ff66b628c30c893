/// Where a server listens, and whether it speaks TLS there.
package struct ListenAddress: Hashable, Sendable, CustomStringConvertible {
    /// What clients connect to.
    package enum Place: Hashable, Sendable {
        /// A host's name or an address, without brackets; port 0 stands for any that is free.
        case port(host: String, port: Int)
        /// A Unix socket, by the path of its file.
        case socket(path: String)
    }

    package var place: Place
    /// Whether connections are encrypted.
    package var isSecure: Bool

    package init(host: String = "127.0.0.1", port: Int, isSecure: Bool = false) {
        place = .port(host: host, port: port)
        self.isSecure = isSecure
    }

    /// A Unix socket.
    package init(socket path: String, isSecure: Bool = false) {
        place = .socket(path: path)
        self.isSecure = isSecure
    }

    /// The host; `nil` for a Unix socket.
    package var host: String? { if case .port(let host, _) = place { host } else { nil } }
    /// The port; `nil` for a Unix socket.
    package var port: Int? { if case .port(_, let port) = place { port } else { nil } }
    /// The file of a Unix socket.
    package var socketPath: String? { if case .socket(let path) = place { path } else { nil } }

    /// `https://[::1]:8443`, `unix:/run/tileproxy.sock`, `https://unix:/run/tileproxy.sock`.
    package var description: String {
        switch place {
        case .port(let host, let port):
            "\(isSecure ? "https" : "http")://\(host.contains(":") ? "[\(host)]" : host):\(port)"
        case .socket(let path): "\(isSecure ? "https://" : "")unix:\(path)"
        }
    }
}
