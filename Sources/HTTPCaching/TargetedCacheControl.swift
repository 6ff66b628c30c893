package import HTTPTypes

extension HTTPField.Name {
    /// `CDN-Cache-Control` (RFC 9213 §3.1).
    package static let cdnCacheControl = HTTPField.Name(known: "CDN-Cache-Control")
}

extension CacheControl {
    /// Reads a targeted field, such as `CDN-Cache-Control`, from all its lines.
    ///
    /// It is a dictionary of structured fields, and strictly so: what does not parse, and what is empty, is `nil` and
    /// the field is to be ignored (RFC 9213 §2.1). Keys are lower case, the last of several counts, parameters are
    /// passed over. Numbers must be integers: a directive with a value of another type is not consumed; a negative
    /// number is 0.
    package init?(targeted name: HTTPField.Name, in fields: HTTPFields) {
        var line: [UInt8] = []
        for field in fields where field.name == name {
            if !line.isEmpty { line += [UInt8(ascii: ","), UInt8(ascii: " ")] }
            line += Array(field.value.utf8)
        }
        var reader = StructuredFieldReader(line)
        guard let dictionary = reader.dictionary(), !dictionary.isEmpty else { return nil }
        self.init()
        for (key, value) in dictionary { set(key, to: value) }
    }

    private mutating func set(_ key: String, to value: StructuredFieldReader.Value) {
        // `?0` says that the directive is not there.
        if case .boolean(false) = value { return }
        func scope() -> Scope {
            let names: [String]
            switch value {
            case .boolean(true): return .response
            case .string(let text):
                names = text.split(separator: ",").map { String(decoding: Array($0.utf8).trimmed, as: UTF8.self) }
            case .token(let text): names = [text]
            case .list(let members): names = members
            default: return .response
            }
            let valid = names.compactMap { HTTPField.Name($0) }
            return valid.isEmpty || valid.count != names.count ? .response : .fields(valid)
        }
        var seconds: Int? {
            if case .integer(let number) = value { return DeltaSeconds.clamp(number) }
            return nil
        }
        switch key {
        case "max-age": maxAge = seconds
        case "s-maxage": sharedMaxAge = seconds
        case "stale-while-revalidate": staleWhileRevalidate = seconds
        case "stale-if-error": staleIfError = seconds
        case "no-cache": noCache = scope()
        case "private": self.private = scope()
        case "no-store": noStore = true
        case "public": self.public = true
        case "must-revalidate": mustRevalidate = true
        case "proxy-revalidate": proxyRevalidate = true
        case "must-understand": mustUnderstand = true
        case "no-transform": noTransform = true
        case "immutable": immutable = true
        default: if extensions.count < 32 { extensions.append(Extension(name: key)) }
        }
    }
}

/// Reads dictionaries of structured fields: RFC 9651, which is RFC 8941 and two more types.
struct StructuredFieldReader {
    /// A value, as far as cache directives tell types apart.
    enum Value: Hashable {
        case boolean(Bool)
        case integer(Int)
        case string(String)
        case token(String)
        /// An inner list; strings and tokens of it.
        case list([String])
        /// A decimal, date, byte sequence or display string.
        case other
    }

    private let bytes: [UInt8]
    private var index = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    private var next: UInt8? { index < bytes.count ? bytes[index] : nil }

    private mutating func take(_ byte: Character) -> Bool {
        guard let next, next == byte.asciiValue else { return false }
        index += 1
        return true
    }

    private mutating func skip(tabs: Bool = false) {
        while let next, next == 32 || (tabs && next == 9) { index += 1 }
    }

    /// The whole input as a dictionary, `nil` if it is not one.
    ///
    /// A key's last value counts, in the place of its first.
    mutating func dictionary() -> [(String, Value)]? {
        var members: [(String, Value)] = []
        var places: [String: Int] = [:]
        skip()
        while next != nil {
            guard let key = key() else { return nil }
            var value = Value.boolean(true)
            if take("=") {
                guard let given = take("(") ? innerList() : bareItem() else { return nil }
                value = given
            }
            guard parameters() else { return nil }
            if let place = places[key] {
                members[place].1 = value
            } else {
                places[key] = members.count
                members.append((key, value))
            }
            skip(tabs: true)
            guard next != nil else { break }
            guard take(",") else { return nil }
            skip(tabs: true)
            guard next != nil else { return nil }
        }
        return members
    }

    private mutating func key() -> String? {
        guard let first = next, first.isLowercaseLetter || first == UInt8(ascii: "*") else { return nil }
        let start = index
        while let byte = next,
            byte.isLowercaseLetter || byte.isDigit || byte == UInt8(ascii: "_") || byte == UInt8(ascii: "-")
                || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "*")
        {
            index += 1
        }
        return String(decoding: bytes[start..<index], as: UTF8.self)
    }

    private mutating func parameters() -> Bool {
        while take(";") {
            skip()
            guard key() != nil else { return false }
            if take("="), bareItem() == nil { return false }
        }
        return true
    }

    private mutating func innerList() -> Value? {
        var members: [String] = []
        while next != nil {
            skip()
            if take(")") { return .list(members) }
            guard let item = bareItem(), parameters() else { return nil }
            switch item {
            case .string(let text), .token(let text): members.append(text)
            default: break
            }
            guard let next, next == 32 || next == UInt8(ascii: ")") else { return nil }
        }
        return nil
    }

    private mutating func bareItem() -> Value? {
        guard let first = next else { return nil }
        if first == UInt8(ascii: "-") || first.isDigit { return number() }
        if first.isLetter || first == UInt8(ascii: "*") { return token() }
        if take("\"") { return string().map { .string($0) } }
        if take("?") {
            if take("1") { return .boolean(true) }
            return take("0") ? .boolean(false) : nil
        }
        if take(":") {
            return byteSequence() ? .other : nil
        }
        if take("@") {
            if case .integer = number() { return .other }
            return nil
        }
        if take("%") {
            guard take("\"") else { return nil }
            return displayString() ? .other : nil
        }
        return nil
    }

    /// The rest of a byte sequence: base64, whose padding may be missing (RFC 9651 §4.2.7).
    private mutating func byteSequence() -> Bool {
        var (digits, padding) = (0, 0)
        while let byte = next, byte != UInt8(ascii: ":") {
            if byte == UInt8(ascii: "=") {
                padding += 1
            } else {
                guard padding == 0, byte.isLetter || byte.isDigit || byte == 43 || byte == 47 else { return false }
                digits += 1
            }
            index += 1
        }
        // A digit has six bits: one alone is no byte.
        guard digits % 4 != 1, padding == 0 || (digits + padding) % 4 == 0 && padding < 3 else { return false }
        return take(":")
    }

    /// The rest of a display string: UTF-8, of which what is not ASCII is percent-encoded (RFC 9651 §4.2.10).
    private mutating func displayString() -> Bool {
        var text: [UInt8] = []
        while var byte = next, byte != UInt8(ascii: "\"") {
            guard byte >= 32, byte < 127 else { return false }
            index += 1
            if byte == UInt8(ascii: "%") {
                byte = 0
                for _ in 0..<2 {
                    guard let digit = next, digit.isDigit || (97...102).contains(digit) else { return false }
                    byte = byte << 4 | (digit.isDigit ? digit - 48 : digit - 87)
                    index += 1
                }
            }
            text.append(byte)
        }
        // What is no UTF-8 comes out as something else.
        return take("\"") && String(decoding: text, as: UTF8.self).utf8.elementsEqual(text)
    }

    private mutating func number() -> Value? {
        let negative = take("-")
        var value = 0
        var digits = 0
        while let byte = next, byte.isDigit {
            digits += 1
            guard digits <= 15 else { return nil }
            value = value * 10 + Int(byte - 48)
            index += 1
        }
        guard digits > 0 else { return nil }
        guard take(".") else { return .integer(negative ? -value : value) }
        var fraction = 0
        while let byte = next, byte.isDigit {
            fraction += 1
            index += 1
        }
        return digits <= 12 && (1...3).contains(fraction) ? .other : nil
    }

    private mutating func token() -> Value {
        let start = index
        while let byte = next,
            byte.isTokenCharacter || byte == UInt8(ascii: ":") || byte == UInt8(ascii: "/")
        {
            index += 1
        }
        return .token(String(decoding: bytes[start..<index], as: UTF8.self))
    }

    private mutating func string() -> String? {
        var text: [UInt8] = []
        while let byte = next {
            index += 1
            switch byte {
            case UInt8(ascii: "\""): return String(decoding: text, as: UTF8.self)
            case UInt8(ascii: "\\"):
                guard let escaped = next, escaped == UInt8(ascii: "\"") || escaped == UInt8(ascii: "\\") else {
                    return nil
                }
                text.append(escaped)
                index += 1
            case 32..<127: text.append(byte)
            default: return nil
            }
        }
        return nil
    }
}
