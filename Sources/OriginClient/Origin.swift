import HTTPCaching
import HTTPWire

/// A server that requests are sent on to: scheme, host, port, and the path that its URLs begin with.
package struct Origin: Hashable, Sendable {
    /// Whether to speak TLS.
    package let isSecure: Bool
    /// The host's name or address, without brackets.
    package let host: String
    /// The port.
    package let port: Int
    /// What goes before every path; empty, or a path without a slash at its end.
    package let basePath: String
    /// The `Host` that the origin expects.
    package let authority: String
    /// Scheme and authority: what tells it from other origins.
    package let name: String

    /// Reads a base URL: `http` or `https`, without user, query and fragment.
    package init?(_ url: String) {
        guard !url.contains("#"), let parts = URIReference(url), let authority = parts.authority, parts.query == nil,
            parts.scheme == "http" || parts.scheme == "https"
        else { return nil }
        isSecure = parts.scheme == "https"
        let bytes = Array(authority.utf8)
        guard bytes.withUnsafeBytes(RequestTarget.isAuthority) else { return nil }
        guard let (host, port) = Self.split(authority) else { return nil }
        self.host = host.lowercased()
        self.port = port ?? (isSecure ? 443 : 80)
        let name = self.host.contains(":") ? "[\(self.host)]" : self.host
        self.authority = self.port == (isSecure ? 443 : 80) ? name : "\(name):\(self.port)"
        self.name = (isSecure ? "https://" : "http://") + self.authority
        var path = parts.path
        while path.hasSuffix("/") { path.removeLast() }
        guard path.isEmpty || path.hasPrefix("/"), Self.isPlain(path) else { return nil }
        basePath = path
    }

    private static func isPlain(_ path: String) -> Bool {
        let bytes = Array((path.isEmpty ? "/" : path).utf8)
        return bytes.withUnsafeBytes { (try? RequestTarget($0, isOptions: false)) != nil }
    }

    private static func split(_ authority: String) -> (host: String, port: Int?)? {
        var host = authority[...]
        var port: Int?
        let colon: Substring.Index?
        if authority.hasPrefix("[") {
            guard let end = authority.firstIndex(of: "]") else { return nil }
            host = authority[authority.index(after: authority.startIndex)..<end]
            let rest = authority[authority.index(after: end)...]
            guard rest.isEmpty || rest.hasPrefix(":") else { return nil }
            colon = rest.isEmpty ? nil : rest.startIndex
        } else {
            colon = authority.lastIndex(of: ":")
            if let colon { host = authority[..<colon] }
            guard !host.contains(":"), !host.contains("["), !host.contains("]") else { return nil }
        }
        if let colon {
            let digits = authority[authority.index(after: colon)...]
            // A port may be empty: then it is the scheme's (RFC 3986 §3.2.3).
            guard !digits.isEmpty else { return host.isEmpty ? nil : (String(host), nil) }
            guard let number = Int(digits), (1...65535).contains(number), digits.allSatisfy(\.isNumber) else {
                return nil
            }
            port = number
        }
        return host.isEmpty ? nil : (String(host), port)
    }

    // The texts follow from the rest.
    package static func == (a: Origin, b: Origin) -> Bool {
        a.isSecure == b.isSecure && a.port == b.port && a.host == b.host && a.basePath == b.basePath
    }

    package func hash(into hasher: inout Hasher) {
        hasher.combine(isSecure)
        hasher.combine(host)
        hasher.combine(port)
        hasher.combine(basePath)
    }

    /// `http` or `https`.
    package var scheme: String { isSecure ? "https" : "http" }
}
