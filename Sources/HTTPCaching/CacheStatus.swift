package import HTTPTypes

extension HTTPField.Name {
    /// `Cache-Status` (RFC 9211).
    package static let cacheStatus = HTTPField.Name(known: "Cache-Status")
}

/// How a cache handled a request, as the `Cache-Status` field says it.
///
/// https://www.rfc-editor.org/rfc/rfc9211.html
package struct CacheStatus: Hashable, Sendable, CustomStringConvertible {
    /// Why a request went on towards the origin (§2.2).
    package enum Forward: String, Hashable, Sendable {
        /// The cache was set up not to handle it.
        case bypass
        /// Its method must be forwarded.
        case method
        /// Nothing was stored for its URI.
        case uriMiss = "uri-miss"
        /// Something was stored for its URI, but not for its fields.
        case varyMiss = "vary-miss"
        /// Nothing fitting was stored, for either reason.
        case miss
        /// What was stored was fresh, but the request wanted something newer.
        case request
        /// What was stored was stale.
        case stale
        /// Only part of what was asked for was stored.
        case partial
    }

    /// The cache's name.
    package var cache: String
    /// Whether it was answered without asking the origin (§2.1).
    package var hit = false
    /// Why it was forwarded (§2.2).
    package var forward: Forward?
    /// The origin's status, where it is not the one that is sent (§2.3).
    package var forwardStatus: Int?
    /// How many seconds it stays fresh, negative if it is stale (§2.4).
    package var timeToLive: Int?
    /// Whether the answer was stored (§2.5).
    package var stored = false
    /// Whether it shared the answer of another request (§2.6).
    package var collapsed = false
    /// The name of a cache between this one and the origin that has answered by a hit: its member comes first (§2).
    package var answeredBy: String?
    /// More, in words (§2.8); what is not printable ASCII becomes `?`.
    package var detail: String?

    /// Names a cache, of which nothing is said yet.
    package init(cache: String) { self.cache = cache }

    /// The value of the field, or one more member for a field that is there already.
    package var description: String {
        var text = (answeredBy.map { item($0) + "; hit, " } ?? "") + item(cache)
        if hit { text += "; hit" }
        if let forward, !hit { text += "; fwd=" + forward.rawValue }
        if let forwardStatus, !hit { text += "; fwd-status=\(forwardStatus)" }
        if let timeToLive { text += "; ttl=\(min(max(timeToLive, -999_999_999), 999_999_999))" }
        if stored { text += "; stored" }
        if collapsed { text += "; collapsed" }
        if let detail { text += "; detail=" + item(detail) }
        return text
    }

    /// Adds the member at the end of the field: nearer to the client (§2).
    package func add(to fields: inout HTTPFields) {
        fields.grow(by: HTTPField(name: .cacheStatus, value: description))
    }

    /// A token where it is one, else a quoted string.
    private func item(_ text: String) -> String {
        let bytes = Array(text.utf8)
        let token = bytes.allSatisfy { $0.isTokenCharacter || $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: "/") }
        if token, let first = bytes.first, first.isLetter || first == UInt8(ascii: "*") { return text }
        var quoted: [UInt8] = [UInt8(ascii: "\"")]
        for byte in bytes {
            if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { quoted.append(UInt8(ascii: "\\")) }
            quoted.append((32..<127).contains(byte) ? byte : UInt8(ascii: "?"))
        }
        quoted.append(UInt8(ascii: "\""))
        return String(decoding: quoted, as: UTF8.self)
    }
}

/// The entry that an intermediary adds to `Via` (RFC 9110 §7.6.3).
package struct Via: Hashable, Sendable, CustomStringConvertible {
    /// The version of the message that was received: `1.1`, `2`, or with another protocol's name before it.
    package let receivedProtocol: String
    /// A name for who received it.
    package let receivedBy: String
    /// The entry's text.
    package let description: String

    /// Makes an entry; what is no token in the name becomes `-`, so that a host name with its port may be given.
    package init(receivedProtocol: String = "1.1", receivedBy: String) {
        self.receivedProtocol = receivedProtocol
        self.receivedBy = receivedBy
        func clean(_ text: String, _ extra: Character) -> String {
            let bytes = text.utf8.map { $0.isTokenCharacter || $0 == extra.asciiValue ? $0 : UInt8(ascii: "-") }
            return bytes.isEmpty ? "-" : String(decoding: bytes, as: UTF8.self)
        }
        description = clean(receivedProtocol, "/") + " " + clean(receivedBy, ":")
    }

    /// Adds the entry at the end of the field.
    package func add(to fields: inout HTTPFields) { fields.grow(by: HTTPField(name: .via, value: description)) }

    /// Whether a message has come by here before, by this name: a forwarding loop.
    package static func contains(receivedBy name: String, in fields: HTTPFields) -> Bool {
        guard fields.contains(.via) else { return false }
        let wanted = Via(receivedBy: name).description.utf8.dropFirst(4).map(\.lowercased)
        return fields.members(of: .via).contains { member in
            let words = member.split(whereSeparator: \.isBlank)
            return words.count >= 2 && words[1].map(\.lowercased) == wanted
        }
    }
}
