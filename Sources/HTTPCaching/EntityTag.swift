package import HTTPTypes

/// An entity tag, verbatim: `"v1"`, `W/"v1"`, or what real servers send instead, such as `v1` without quotes.
///
/// The text is never repaired, because the server that sent it compares it with its own.
/// https://www.rfc-editor.org/rfc/rfc9110.html#section-8.8.3
package struct EntityTag: Hashable, Sendable, CustomStringConvertible {
    /// The tag as it was received, with its quotes and `W/` if it had them.
    package let text: String

    /// Whether the tag says of itself that it is weak: equal tags then mean "as good as", not "the same bytes".
    ///
    /// What is not well-formed counts as weak too: nothing is promised about it.
    package var isWeak: Bool { !isStrong(text.utf8) }

    /// Takes a tag as it stands in a field, with spaces at the ends left out.
    ///
    /// `nil` for an empty text, `*`, and one that holds bytes other than printable UTF-8, of which two different ones
    /// could look the same.
    package init?(_ text: some StringProtocol) {
        let bytes = Array(text.utf8)
        self.init(bytes: bytes[...])
    }

    init?(bytes: ArraySlice<UInt8>) {
        let trimmed = bytes.trimmed
        guard !trimmed.isEmpty, !trimmed.elementsEqual([UInt8(ascii: "*")]) else { return nil }
        guard trimmed.allSatisfy({ $0 >= 32 && $0 != 127 }) else { return nil }
        let text = String(decoding: trimmed, as: UTF8.self)
        guard !text.unicodeScalars.contains("\u{FFFD}") else { return nil }
        self.text = text
    }

    /// The tag of a response: its first `ETag` field, or `nil`.
    package init?(of fields: HTTPFields) {
        guard let value = fields.first(.eTag) else { return nil }
        self.init(value)
    }

    /// The tag as it was received.
    package var description: String { text }

    /// Strong comparison: both well-formed, both strong, the same text (RFC 9110 §8.8.3.2).
    package func matchesStrongly(_ other: EntityTag) -> Bool {
        text.utf8.elementsEqual(other.text.utf8) && isStrong(text.utf8)
    }

    /// Weak comparison: the same text apart from `W/` (RFC 9110 §8.8.3.2).
    package func matchesWeakly(_ other: EntityTag) -> Bool {
        opaque(text.utf8).elementsEqual(opaque(other.text.utf8))
    }

    /// Bytes decide, as servers compare them: Swift's own `==` would take two Unicode spellings for one.
    package static func == (a: EntityTag, b: EntityTag) -> Bool { a.text.utf8.elementsEqual(b.text.utf8) }

    /// Hashes what `==` compares.
    package func hash(into hasher: inout Hasher) {
        for byte in text.utf8 { hasher.combine(byte) }
    }
}

private func isStrong(_ text: String.UTF8View) -> Bool {
    text.count >= 2 && text.first == UInt8(ascii: "\"") && text.last == UInt8(ascii: "\"")
        && !text.dropFirst().dropLast().contains(UInt8(ascii: "\""))
}

private func opaque(_ text: String.UTF8View) -> Substring.UTF8View {
    // `W/` is case-sensitive (§8.8.3), and only a prefix where quotes follow.
    text.count >= 4 && text.starts(with: "W/\"".utf8) ? text.dropFirst(2) : text[...]
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
            let line = Array(field.value.utf8)
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
