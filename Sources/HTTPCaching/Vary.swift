package import HTTPTypes

/// Which request fields chose a response, as its `Vary` says.
///
/// https://www.rfc-editor.org/rfc/rfc9111.html#section-4.1
package enum Vary: Hashable, Sendable {
    /// None: the response answers every request for its URI.
    case none
    /// These, without repetition, in order of their lower-case names.
    case fields([HTTPField.Name])
    /// `*`: no other request can be served from it.
    case any

    /// Reads all `Vary` lines of a response.
    ///
    /// A `*` among other members counts as `*`. So does a member that is no field name, and a list of more than 64
    /// names: a list that cannot be read in full must not be taken for a shorter one.
    package init(_ fields: HTTPFields) {
        guard fields.contains(.vary) else {
            self = .none
            return
        }
        var names: Set<HTTPField.Name> = []
        for member in fields.members(of: .vary) {
            guard !member.elementsEqual([UInt8(ascii: "*")]),
                let name = HTTPField.Name(String(decoding: member, as: UTF8.self)), names.count < 64
            else {
                self = .any
                return
            }
            names.insert(name)
        }
        self = names.isEmpty ? .none : .fields(names.sorted { $0.canonicalName < $1.canonicalName })
    }

    /// The names of the fields; none for ``any`` too.
    package var names: [HTTPField.Name] {
        if case .fields(let names) = self { names } else { [] }
    }

    /// The fields of a request that chose the response; what a cache has to keep to compare later requests with.
    package func selectingFields(of request: HTTPFields) -> HTTPFields {
        guard case .fields(let names) = self else { return HTTPFields() }
        return request.leavingOut { !names.contains($0) }
    }

    /// A text that is equal for two requests if and only if one response may serve both; `nil` for `*`.
    ///
    /// One line for each field, in order of names: `name` if the request lacks the field, else `name:value` with the
    /// value normalised. It is ASCII, so that it can be hashed into a fingerprint that is the same everywhere. It holds
    /// what the client sent and should not be written anywhere itself. Empty for ``none``.
    ///
    /// Normalised are, as §4.1 allows: blanks at the ends, several lines of a field into one list, blanks around the
    /// commas of lists, and the case of media types in `Accept`. In `Accept-Encoding`, `Accept-Language` and
    /// `Accept-Charset` also the case of all, the order of members and the way a weight is written: by definition only
    /// weights rank them (RFC 9110 §12.4.2).
    package func selectionText(for request: HTTPFields) -> String? {
        switch self {
        case .any: return nil
        case .none: return ""
        case .fields(let names):
            var text: [UInt8] = []
            for name in names {
                text += Array(name.canonicalName.utf8)
                if let value = normalisedValue(of: name, in: request) {
                    text.append(UInt8(ascii: ":"))
                    for byte in value { append(byte, to: &text) }
                }
                text.append(UInt8(ascii: "\n"))
            }
            return String(decoding: text, as: UTF8.self)
        }
    }

    /// Whether a response that was chosen by the fields of one request may answer another.
    package func matches(_ stored: HTTPFields, _ request: HTTPFields) -> Bool {
        switch self {
        case .any: false
        case .none: true
        case .fields(let names):
            names.allSatisfy { normalisedValue(of: $0, in: stored) == normalisedValue(of: $0, in: request) }
        }
    }
}

/// Adds a byte as it is if it is printable ASCII, else as `%` and two digits; so no two values have one text.
private func append(_ byte: UInt8, to text: inout [UInt8]) {
    guard byte < 32 || byte > 126 || byte == UInt8(ascii: "%") else {
        text.append(byte)
        return
    }
    let digits = Array("0123456789ABCDEF".utf8)
    text += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
}

/// A request field's value as it is compared: bytes, since a value need not be UTF-8; `nil` if the field is missing.
private func normalisedValue(of name: HTTPField.Name, in request: HTTPFields) -> [UInt8]? {
    var value: [UInt8]?
    let list = !isNoList(name)
    for field in request where field.name == name {
        let line = field.withUnsafeBytesOfValue { Array(Array($0).trimmed) }
        let members = list ? joined(listMembers(line)) : line
        if let known = value {
            // HTTP/2 sends cookies in pieces (RFC 9113 §8.2.3).
            let separator = name == .cookie ? "; " : ", "
            value = known.isEmpty || members.isEmpty ? known + members : known + Array(separator.utf8) + members
        } else {
            value = members
        }
    }
    guard let value else { return nil }
    switch name.canonicalName {
    case "accept-encoding", "accept-language", "accept-charset":
        return normalisedPreferences(value)
    case "accept":
        return normalisedAccept(value)
    default:
        return value
    }
}

/// Fields in which a comma parts nothing, and a blank after it may mean something.
private func isNoList(_ name: HTTPField.Name) -> Bool {
    switch name.canonicalName {
    case "authorization", "cookie", "if-modified-since", "if-unmodified-since", "if-range", "origin", "referer",
        "user-agent":
        true
    default: false
    }
}

private func joined(_ members: [ArraySlice<UInt8>]) -> [UInt8] {
    var value: [UInt8] = []
    for member in members {
        if !value.isEmpty { value += [UInt8(ascii: ","), UInt8(ascii: " ")] }
        value += member
    }
    return value
}

/// Members in lower case and sorted, with weights written one way: a weight of 1 is left out, as are zeros at the end.
private func normalisedPreferences(_ value: [UInt8]) -> [UInt8] {
    let text = value.filter { !$0.isBlank }.map(\.lowercased)
    let members = text.split(separator: UInt8(ascii: ",")).map { member -> [UInt8] in
        let parts = member.split(separator: UInt8(ascii: ";"))
        guard parts.count == 2, let name = parts.first, let weight = parts.last, weight.starts(with: "q=".utf8),
            weight.dropFirst(2).allSatisfy({ $0.isDigit || $0 == UInt8(ascii: ".") })
        else { return Array(member) }
        var number = weight.dropFirst(2)
        if number.contains(UInt8(ascii: ".")) {
            while number.last == UInt8(ascii: "0") { number.removeLast() }
            if number.last == UInt8(ascii: ".") { number.removeLast() }
        }
        if number.elementsEqual("1".utf8) { return Array(name) }
        return Array(name) + Array(";q=".utf8) + Array(number)
    }
    return Array(members.sorted { $0.lexicographicallyPrecedes($1) }.joined(separator: [UInt8(ascii: ",")]))
}

/// Lower-case media types, blanks outside quotes left out; a parameter's value may be case-sensitive.
private func normalisedAccept(_ value: [UInt8]) -> [UInt8] {
    var result: [UInt8] = []
    var quoted = false
    var inType = true
    var escaped = false
    for byte in value {
        if quoted {
            result.append(byte)
            if escaped {
                escaped = false
            } else if byte == UInt8(ascii: "\\") {
                escaped = true
            } else if byte == UInt8(ascii: "\"") {
                quoted = false
            }
            continue
        }
        if byte.isBlank { continue }
        if byte == UInt8(ascii: "\"") { quoted = true }
        if byte == UInt8(ascii: ";") { inType = false }
        if byte == UInt8(ascii: ",") { inType = true }
        result.append(inType ? byte.lowercased : byte)
    }
    return result
}
