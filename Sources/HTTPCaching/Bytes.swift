package import HTTPTypes

// What all the readers of field values share. They work on UTF-8 bytes: every delimiter of HTTP is ASCII.

extension UInt8 {
    var isDigit: Bool { self >= 48 && self <= 57 }
    var isBlank: Bool { self == 32 || self == 9 }
    var lowercased: UInt8 { self >= 65 && self <= 90 ? self + 32 : self }
    var isLowercaseLetter: Bool { self >= 97 && self <= 122 }
    var isLetter: Bool { lowercased.isLowercaseLetter }

    /// `tchar` of RFC 9110 §5.6.2.
    var isTokenCharacter: Bool {
        if isDigit || isLetter { return true }
        switch self {
        case UInt8(ascii: "!"), UInt8(ascii: "#"), UInt8(ascii: "$"), UInt8(ascii: "%"), UInt8(ascii: "&"),
            UInt8(ascii: "'"), UInt8(ascii: "*"), UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."),
            UInt8(ascii: "^"), UInt8(ascii: "_"), UInt8(ascii: "`"), UInt8(ascii: "|"), UInt8(ascii: "~"):
            return true
        default: return false
        }
    }
}

extension RandomAccessCollection<UInt8> where SubSequence: RandomAccessCollection {
    /// Without the spaces and tabs at both ends.
    var trimmed: SubSequence {
        var part = self[...]
        while let first = part.first, first.isBlank { part = part.dropFirst() }
        while let last = part.last, last.isBlank { part = part.dropLast() }
        return part
    }
}

extension Collection<UInt8> {
    /// The text in lower case.
    var lowercasedText: String { String(decoding: map(\.lowercased), as: UTF8.self) }

    /// Whether it is the text, whatever its case; the text is in lower case.
    func equalsIgnoringCase(_ text: StaticString) -> Bool {
        guard count == text.utf8CodeUnitCount else { return false }
        return text.withUTF8Buffer { buffer in zip(self, buffer).allSatisfy { $0.lowercased == $1 } }
    }

    /// The number that these digits are, at most ``DeltaSeconds/limit``; `nil` unless they are one or more digits.
    var deltaSeconds: Int? {
        guard !isEmpty else { return nil }
        var value = 0
        for byte in self {
            guard byte.isDigit else { return nil }
            value = Swift.min(value * 10 + Int(byte - 48), DeltaSeconds.limit)
        }
        return value
    }
}

/// Bounds on numbers of seconds.
enum DeltaSeconds {
    /// What a larger number is read as (RFC 9111 §1.2.2).
    static let limit = 2_147_483_648
    /// The longest lifetime that anything is given.
    static let year = 31_536_000

    /// The number within 0 and the limit.
    static func clamp(_ value: Int) -> Int { Swift.min(Swift.max(value, 0), limit) }
}

extension HTTPFields {
    /// The value of the first field with a name; no joining, so that a singleton that was sent twice is seen as such.
    func first(_ name: HTTPField.Name) -> String? { firstField(name)?.value }

    /// All values of a name as one list, as `self[name]` has it; in one pass, since mostly there is one.
    package func combined(_ name: HTTPField.Name) -> String? {
        var text: String?
        for field in self where field.name == name {
            text = text.map { $0 + ", " + field.value } ?? field.value
        }
        return text
    }

    /// The first field with a name: for values whose bytes need not be UTF-8.
    func firstField(_ name: HTTPField.Name) -> HTTPField? {
        for field in self where field.name == name { return field }
        return nil
    }

    /// Adds a field if there is room: more than 65,534 fields are a trap in HTTPTypes.
    mutating func grow(by field: HTTPField) {
        if count < 65_000 { append(field) }
    }

    /// Every member of a comma-separated list, over all lines, without empty ones; quoted commas part nothing.
    func members(of name: HTTPField.Name) -> [ArraySlice<UInt8>] {
        var members: [ArraySlice<UInt8>] = []
        for field in self where field.name == name {
            members += listMembers(Array(field.value.utf8))
        }
        return members
    }
}

/// The members of one line of a comma-separated list, trimmed, without empty ones (RFC 9110 §5.6.1.2).
///
/// A quote that nothing closes is a character like any other: it must not hide what comes after it.
func listMembers(_ line: [UInt8]) -> [ArraySlice<UInt8>] {
    var members: [ArraySlice<UInt8>] = []
    var start = 0
    var index = 0
    var quotesClose = true
    func add(upTo end: Int) {
        let member = line[start..<end].trimmed
        if !member.isEmpty { members.append(member) }
    }
    while index < line.count {
        if line[index] == UInt8(ascii: ",") {
            add(upTo: index)
            start = index + 1
        } else if line[index] == UInt8(ascii: "\""), quotesClose {
            if let end = endOfQuoted(line, from: index) {
                index = end
                continue
            }
            quotesClose = false
        }
        index += 1
    }
    add(upTo: line.count)
    return members
}

/// The index after the quoted string that begins at an index; `nil` if it does not end.
func endOfQuoted(_ line: [UInt8], from start: Int) -> Int? {
    var index = start + 1
    while index < line.count {
        switch line[index] {
        case UInt8(ascii: "\""): return index + 1
        case UInt8(ascii: "\\"): index += 2
        default: index += 1
        }
    }
    return nil
}

/// What a quoted string says, or the bytes themselves if they are not one.
func unquoted(_ value: ArraySlice<UInt8>) -> [UInt8] {
    guard value.count >= 2, value.first == UInt8(ascii: "\""), value.last == UInt8(ascii: "\"") else {
        return Array(value)
    }
    var text: [UInt8] = []
    var escaped = false
    for byte in value.dropFirst().dropLast() {
        if !escaped, byte == UInt8(ascii: "\\") {
            escaped = true
        } else {
            text.append(byte)
            escaped = false
        }
    }
    return text
}
