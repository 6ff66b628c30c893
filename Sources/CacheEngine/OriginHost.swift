package import HTTPTypes

/// A server by scheme and authority.
package struct OriginHost: Hashable, Sendable {
    package var scheme: String
    package var authority: String

    package init(scheme: String, authority: String) {
        self.scheme = scheme
        self.authority = authority
    }

    /// Reads `https://b.example:81`.
    package init?(_ url: String) {
        guard let mark = url.firstRange(of: "://") else { return nil }
        self.init(scheme: String(url[..<mark.lowerBound]), authority: String(url[mark.upperBound...]))
    }

    /// The server that a request goes to.
    package init(_ request: HTTPRequest) {
        self.init(scheme: request.scheme ?? "https", authority: request.authority ?? "")
    }

    /// The host without its port, and without the brackets of an IPv6 address.
    package var name: String {
        // As nearly all are written: a name or an IPv4 address in lower case, perhaps with a port.
        if authority.utf8.allSatisfy({ $0 < 128 && !(65...91).contains($0) && $0 != UInt8(ascii: "@") }) {
            return authority.utf8.lastIndex(of: UInt8(ascii: ":")).map { String(authority[..<$0]) } ?? authority
        }
        var name = authority.lastIndex(of: "@").map { authority[authority.index(after: $0)...] } ?? authority[...]
        if name.hasPrefix("[") {
            name = name.dropFirst().prefix { $0 != "]" }
        } else if let colon = name.lastIndex(of: ":") {
            name = name[..<colon]
        }
        return name.lowercased()
    }
}

extension HTTPRequest {
    /// The host and port as messages name them: never with a password.
    package var hostAndPort: String {
        guard let authority else { return "" }
        // As nearly all are written.
        if authority.utf8.allSatisfy({ $0 < 128 && $0 != UInt8(ascii: "@") && !(65...90).contains($0) }) {
            return authority
        }
        let text = authority.lowercased()
        return text.lastIndex(of: "@").map { String(text[text.index(after: $0)...]) } ?? text
    }

    /// The server as accounts name it: the host, with its port unless that is 443.
    ///
    /// The same for all spellings: a port that is not written, or with zeros before it, and a full name with its dot.
    package var originName: String {
        let text = hostAndPort
        var (name, port) = (text[...], scheme?.lowercased() == "http" ? 80 : 443)
        if let colon = text.utf8.lastIndex(of: UInt8(ascii: ":")),
            text.utf8[colon...].allSatisfy({ $0 != UInt8(ascii: "]") })
        {
            name = text[..<colon]
            port = Int(text[text.index(after: colon)...]) ?? port
        }
        if name.hasSuffix(".") { name.removeLast() }
        return port == 443 ? String(name) : "\(name):\(port)"
    }
}
