/// A URI or a relative reference, taken apart (RFC 3986).
///
/// Nothing is decoded and nothing is checked beyond where the parts begin: a cache compares what servers send.
package struct URIReference: Hashable, Sendable, CustomStringConvertible {
    /// The scheme in lower case, such as `https`.
    package var scheme: String?
    /// The authority verbatim, such as `tiles.example:8080`; empty is not the same as missing.
    package var authority: String?
    /// The path, possibly empty.
    package var path: String
    /// The query without `?`.
    package var query: String?

    /// The longest reference that is read, in bytes.
    package static let lengthLimit = 16384

    /// Makes a reference of its parts.
    package init(scheme: String? = nil, authority: String? = nil, path: String, query: String? = nil) {
        self.scheme = scheme?.lowercased()
        self.authority = authority
        self.path = path
        self.query = query
    }

    /// Takes a reference apart; its fragment is dropped.
    ///
    /// `nil` if it is longer than ``lengthLimit`` or holds bytes that no URI does: blanks, controls, anything that is
    /// not ASCII.
    package init?(_ text: some StringProtocol) {
        var rest = Array(text.utf8)[...].trimmed
        guard rest.count <= Self.lengthLimit, rest.allSatisfy({ $0 > 32 && $0 < 127 && $0 != UInt8(ascii: "\\") })
        else {
            return nil
        }
        func string(_ part: ArraySlice<UInt8>) -> String { String(decoding: part, as: UTF8.self) }
        if let mark = rest.firstIndex(of: UInt8(ascii: "#")) { rest = rest[..<mark] }
        if let mark = rest.firstIndex(of: UInt8(ascii: "?")) {
            query = string(rest[(mark + 1)...])
            rest = rest[..<mark]
        }
        let delimiter = rest.firstIndex { $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: "/") }
        if let delimiter, rest[delimiter] == UInt8(ascii: ":") {
            let name = rest[..<delimiter]
            guard let first = name.first, first.isLetter,
                name.allSatisfy({ $0.isLetter || $0.isDigit || [43, 45, 46].contains($0) })
            else { return nil }
            scheme = name.lowercasedText
            rest = rest[(delimiter + 1)...]
        }
        if rest.starts(with: "//".utf8) {
            rest = rest.dropFirst(2)
            let end = rest.firstIndex(of: UInt8(ascii: "/")) ?? rest.endIndex
            authority = string(rest[..<end])
            rest = rest[end...]
        }
        path = string(rest)
    }

    /// Resolves a reference against this one, which must have a scheme, as RFC 3986 §5.2.2 does.
    package func resolving(_ reference: URIReference) -> URIReference {
        var target = reference
        if reference.scheme != nil {
            target.path = removingDotSegments(reference.path)
            return target
        }
        target.scheme = scheme
        if reference.authority != nil {
            target.path = removingDotSegments(reference.path)
            return target
        }
        target.authority = authority
        if reference.path.isEmpty {
            target.path = path
            target.query = reference.query ?? query
        } else if reference.path.utf8.first == UInt8(ascii: "/") {
            target.path = removingDotSegments(reference.path)
        } else {
            target.path = removingDotSegments(merged(reference.path))
        }
        return target
    }

    /// The same resource's URI in its plainest spelling (RFC 3986 §6.2.2): percent-encoded characters that need no encoding
    /// as themselves, the digits of other encodings in upper case, no dot segments.
    ///
    /// Scheme and authority stay as they are, and so does a `%` that begins no encoding.
    package var normalised: URIReference {
        guard path.utf8.contains(UInt8(ascii: "%")) || query?.utf8.contains(UInt8(ascii: "%")) ?? false else {
            return self
        }
        var plain = self
        plain.path = removingDotSegments(normalisingEncodings(path))
        plain.query = query.map(normalisingEncodings)
        return plain
    }

    /// Whether two URIs have the same origin: scheme, host and port (RFC 9110 §4.3.2); never for what has none.
    package func hasSameOrigin(as other: URIReference) -> Bool {
        guard let mine = origin, let theirs = other.origin else { return false }
        return mine == theirs
    }

    /// The path and query, as a request to the origin has them: `/` at least.
    package var requestTarget: String { (path.isEmpty ? "/" : path) + (query.map { "?" + $0 } ?? "") }

    /// The parts put together again (RFC 3986 §5.3).
    package var description: String {
        (scheme.map { $0 + ":" } ?? "") + (authority.map { "//" + $0 } ?? "") + path + (query.map { "?" + $0 } ?? "")
    }

    /// `path` in the place of what follows the base's last slash (RFC 3986 §5.2.3).
    private func merged(_ reference: String) -> String {
        if authority != nil, path.isEmpty { return "/" + reference }
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return reference }
        return path[...slash] + reference
    }

    /// Scheme, host in lower case, port with its default.
    private var origin: [String]? {
        guard let scheme, let authority else { return nil }
        var host = Array(authority.utf8)[...]
        if let mark = host.lastIndex(of: UInt8(ascii: "@")) { host = host[(mark + 1)...] }
        var port = scheme == "https" ? "443" : scheme == "http" ? "80" : ""
        let bracket = host.lastIndex(of: UInt8(ascii: "]")) ?? host.startIndex
        if let colon = host[bracket...].firstIndex(of: UInt8(ascii: ":")) {
            let given = host[(colon + 1)...]
            guard given.allSatisfy(\.isDigit) else { return nil }
            if !given.isEmpty {
                let digits = given.drop { $0 == UInt8(ascii: "0") }
                port = digits.isEmpty ? "0" : String(decoding: digits, as: UTF8.self)
            }
            host = host[..<colon]
        }
        guard !host.isEmpty else { return nil }
        return [scheme, host.lowercasedText, port]
    }
}

/// RFC 3986 §5.2.4, in one pass over the segments.
func removingDotSegments(_ path: String) -> String {
    let segments = path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    let absolute = path.utf8.first == UInt8(ascii: "/")
    var kept: [Substring.UTF8View] = []
    for (index, segment) in segments.enumerated() where !(absolute && index == 0) {
        let last = index == segments.count - 1
        if segment.elementsEqual(".".utf8) {
            if last { kept.append(""[...].utf8) }
        } else if segment.elementsEqual("..".utf8) {
            if !kept.isEmpty { kept.removeLast() }
            if last { kept.append(""[...].utf8) }
        } else {
            kept.append(segment)
        }
    }
    return (absolute ? "/" : "") + kept.map { String(Substring($0)) }.joined(separator: "/")
}

/// RFC 3986 §6.2.2.1, §6.2.2.2.
private func normalisingEncodings(_ text: String) -> String {
    let bytes = Array(text.utf8)
    var plain: [UInt8] = []
    var index = 0
    while index < bytes.count {
        guard bytes[index] == UInt8(ascii: "%"), index + 2 < bytes.count, let high = digit(bytes[index + 1]),
            let low = digit(bytes[index + 2])
        else {
            plain.append(bytes[index])
            index += 1
            continue
        }
        let byte = high << 4 | low
        if byte.isLetter || byte.isDigit || [45, 46, 95, 126].contains(byte) {
            plain.append(byte)
        } else {
            let digits = Array("0123456789ABCDEF".utf8)
            plain += [bytes[index], digits[Int(high)], digits[Int(low)]]
        }
        index += 3
    }
    return String(decoding: plain, as: UTF8.self)
}

/// The value of a hexadecimal digit.
private func digit(_ byte: UInt8) -> UInt8? {
    if byte.isDigit { return byte - 48 }
    let letter = byte.lowercased
    return (97...102).contains(letter) ? letter - 87 : nil
}
