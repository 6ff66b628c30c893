package import HTTPTypes

/// An entity tag, verbatim: `"v1"`, `W/"v1"`, or what real servers send instead, such as `v1` without quotes.
///
/// Its bytes are never repaired or recoded, because the server that sent it compares it with its own. They need not be
/// UTF-8: within the quotes any byte from 0x80 on is permitted.
/// https://www.rfc-editor.org/rfc/rfc9110.html#section-8.8.3
package struct EntityTag: Hashable, Sendable, CustomStringConvertible {
    /// The tag's bytes as received, with its quotes and `W/` if it had them.
    package let bytes: [UInt8]

    /// The tag as text; bytes that are not UTF-8 become U+FFFD.
    package var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Whether the tag says of itself that it is weak: equal tags then mean "as good as", not "the same bytes".
    ///
    /// What is not well-formed counts as weak too: nothing is promised about it.
    package var isWeak: Bool { !isStrong(bytes[...]) }

    /// Takes a tag as it stands in a field, with spaces at the ends left out.
    ///
    /// `nil` for an empty text, `*`, one with control characters, and one with U+FFFD: that stands for bytes that were
    /// lost, and two different tags could have the same text.
    package init?(_ text: some StringProtocol) {
        guard !text.unicodeScalars.contains("\u{FFFD}") else { return nil }
        self.init(bytes: Array(text.utf8)[...])
    }

    /// Takes the value of a field.
    package init?(_ field: HTTPField) {
        self.init(bytes: field.withUnsafeBytesOfValue { Array($0) }[...])
    }

    init?(bytes: ArraySlice<UInt8>) {
        let trimmed = bytes.trimmed
        guard !trimmed.isEmpty, !trimmed.elementsEqual([UInt8(ascii: "*")]) else { return nil }
        guard trimmed.allSatisfy({ $0 >= 32 && $0 != 127 }) else { return nil }
        self.bytes = Array(trimmed)
    }

    /// The tag of a response, for those who keep it as text: its first `ETag` field; `nil` if that is not UTF-8.
    package init?(of fields: HTTPFields) {
        guard let value = fields.first(.eTag) else { return nil }
        self.init(value)
    }

    /// The tag as text.
    package var description: String { text }

    /// Strong comparison: both well-formed, both strong, the same bytes (RFC 9110 §8.8.3.2).
    package func matchesStrongly(_ other: EntityTag) -> Bool { bytes == other.bytes && isStrong(bytes[...]) }

    /// Weak comparison: the same bytes apart from `W/` (RFC 9110 §8.8.3.2).
    package func matchesWeakly(_ other: EntityTag) -> Bool { opaque(bytes[...]) == opaque(other.bytes[...]) }
}

private func isStrong(_ tag: ArraySlice<UInt8>) -> Bool {
    tag.count >= 2 && tag.first == UInt8(ascii: "\"") && tag.last == UInt8(ascii: "\"")
        && !tag.dropFirst().dropLast().contains(UInt8(ascii: "\""))
}

private func opaque(_ tag: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    // `W/` is case-sensitive (§8.8.3), and only a prefix where quotes follow.
    tag.count >= 4 && tag.starts(with: "W/\"".utf8) ? tag.dropFirst(2) : tag
}

/// The value of an `If-Match` or `If-None-Match` field: any tag at all, or one of these.
///
/// https://www.rfc-editor.org/rfc/rfc9110.html#section-13.1.1
package enum EntityTagList: Hashable, Sendable {
    /// `*`: whatever there is.
    case any
    /// These tags, at most ``EntityTagList/limit`` of them.
    case tags([EntityTag])

    /// How many tags of a list are looked at; a list that is longer comes from nobody who holds that many.
    package static let limit = 256

    /// Reads the field with a name from all its lines; `nil` if there is none.
    ///
    /// Commas within quotes belong to the tag. A backslash escapes nothing (§8.8.3).
    package init?(_ name: HTTPField.Name, in fields: HTTPFields) {
        guard fields.contains(name) else { return nil }
        var tags: [EntityTag] = []
        for field in fields where field.name == name {
            let line = field.withUnsafeBytesOfValue { Array($0) }
            if line[...].trimmed.elementsEqual([UInt8(ascii: "*")]) {
                self = .any
                return
            }
            var start = 0
            var quoted = false
            for index in 0...line.count {
                if index < line.count, line[index] == UInt8(ascii: "\"") { quoted.toggle() }
                guard index == line.count || (line[index] == UInt8(ascii: ",") && !quoted) else { continue }
                if tags.count < Self.limit, let tag = EntityTag(bytes: line[start..<index]) { tags.append(tag) }
                start = index + 1
            }
        }
        self = .tags(tags)
    }

    /// Whether the list names a tag by strong comparison, as `If-Match` asks (RFC 9110 §13.1.1).
    package func matchesStrongly(_ tag: EntityTag?) -> Bool {
        switch self {
        case .any: true
        case .tags(let tags): tag.map { tag in tags.contains { $0.matchesStrongly(tag) } } ?? false
        }
    }

    /// Whether the list names a tag by weak comparison, as `If-None-Match` asks (RFC 9110 §13.1.2).
    package func matchesWeakly(_ tag: EntityTag?) -> Bool {
        switch self {
        case .any: true
        case .tags(let tags): tag.map { tag in tags.contains { $0.matchesWeakly(tag) } } ?? false
        }
    }
}
