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
        let text = inOneSpelling(authority)
        if text.utf8.first == UInt8(ascii: "[") { return String(text.dropFirst().prefix { $0 != "]" }) }
        return text.utf8.lastIndex(of: UInt8(ascii: ":")).map { String(text[..<$0]) } ?? text
    }
}

/// An authority in lower case, without a user and a password.
private func inOneSpelling(_ authority: String) -> String {
    // As nearly all are written.
    if authority.utf8.allSatisfy({ $0 < 128 && $0 != UInt8(ascii: "@") && !(65...90).contains($0) }) {
        return authority
    }
    let text = authority.lowercased()
    return text.lastIndex(of: "@").map { String(text[text.index(after: $0)...]) } ?? text
}

extension HTTPRequest {
    /// The host and port as messages name them: never with a password.
    package var hostAndPort: String { authority.map(inOneSpelling) ?? "" }

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
