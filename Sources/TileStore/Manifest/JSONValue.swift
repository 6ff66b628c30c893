/// Any JSON value, for the lines that the fast reader does not know by their layout, and for documents of others.
package enum JSONValue: Equatable, Sendable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    /// Parses one document; nothing but white space may follow it.
    ///
    /// Depth and the number of values are bounded; duplicate names: the last counts.
    package init?(_ bytes: UnsafeRawBufferPointer, depth: Int = 16) {
        var duplicate: String?
        self.init(bytes, depth: depth, duplicate: &duplicate)
    }

    /// The same, for who refuses documents with duplicate names.
    ///
    /// - Parameter duplicate: Set to the first name that an object has twice.
    package init?(_ bytes: UnsafeRawBufferPointer, depth: Int, duplicate: inout String?) {
        var parser = JSONParser(bytes: bytes, depth: depth)
        guard let value = parser.value(depth: 0) else { return nil }
        parser.skipSpace()
        guard parser.at == bytes.count else { return nil }
        duplicate = parser.duplicate
        self = value
    }

    package var string: String? { if case .string(let s) = self { s } else { nil } }
    package var array: [JSONValue]? { if case .array(let a) = self { a } else { nil } }
    package var object: [String: JSONValue]? { if case .object(let o) = self { o } else { nil } }
    package var integer: Int64? { if case .integer(let i) = self { i } else { nil } }
    var unsigned: UInt64? { integer.flatMap { UInt64(exactly: $0) } }
    package var double: Double? {
        switch self {
        case .integer(let i): Double(i)
        case .number(let d): d
        default: nil
        }
    }
}

/// A general JSON reader (RFC 8259).
struct JSONParser {
    let bytes: UnsafeRawBufferPointer
    var at = 0
    /// The first name that an object has twice.
    private(set) var duplicate: String?
    /// How many values there may still be: twice what the region with the most rectangles and resources has.
    private var valuesLeft = 1 << 20
    /// So many values may lie in each other.
    private let deepest: Int

    init(bytes: UnsafeRawBufferPointer, depth: Int) { (self.bytes, deepest) = (bytes, depth) }

    mutating func skipSpace() {
        while at < bytes.count, bytes[at] == 0x20 || bytes[at] == 0x0A || bytes[at] == 0x0D || bytes[at] == 0x09 {
            at += 1
        }
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        skipSpace()
        guard at < bytes.count, bytes[at] == byte else { return false }
        at += 1
        return true
    }

    private mutating func word(_ text: StaticString) -> Bool {
        let length = text.utf8CodeUnitCount
        guard at + length <= bytes.count else { return false }
        for i in 0..<length where bytes[at + i] != text.utf8Start[i] { return false }
        at += length
        return true
    }

    mutating func value(depth: Int) -> JSONValue? {
        skipSpace()
        guard depth < deepest, valuesLeft > 0, at < bytes.count else { return nil }
        valuesLeft -= 1
        switch bytes[at] {
        case UInt8(ascii: "{"):
            at += 1
            var members: [String: JSONValue] = [:]
            if take(UInt8(ascii: "}")) { return .object(members) }
            repeat {
                skipSpace()
                guard let name = string(), take(UInt8(ascii: ":")), let value = value(depth: depth + 1) else {
                    return nil
                }
                if members.updateValue(value, forKey: name) != nil { duplicate = duplicate ?? name }
            } while take(UInt8(ascii: ","))
            return take(UInt8(ascii: "}")) ? .object(members) : nil
        case UInt8(ascii: "["):
            at += 1
            var items: [JSONValue] = []
            if take(UInt8(ascii: "]")) { return .array(items) }
            repeat {
                guard let value = value(depth: depth + 1) else { return nil }
                items.append(value)
            } while take(UInt8(ascii: ","))
            return take(UInt8(ascii: "]")) ? .array(items) : nil
        case UInt8(ascii: "\""): return string().map { .string($0) }
        case UInt8(ascii: "t"): return word("true") ? .bool(true) : nil
        case UInt8(ascii: "f"): return word("false") ? .bool(false) : nil
        case UInt8(ascii: "n"): return word("null") ? .null : nil
        default: return number()
        }
    }

    private mutating func number() -> JSONValue? {
        let start = at
        while at < bytes.count {
            switch bytes[at] {
            case 0x30...0x39, UInt8(ascii: "-"), UInt8(ascii: "+"), UInt8(ascii: "."), UInt8(ascii: "e"),
                UInt8(ascii: "E"):
                at += 1
                continue
            default: break
            }
            break
        }
        guard at > start, at - start < 40 else { return nil }
        let text = String(decoding: bytes[start..<at], as: UTF8.self)
        if let integer = Int64(text), !text.hasPrefix("+") { return .integer(integer) }
        if let number = Double(text), number.isFinite {
            // 1e3 and 1000.0 are integers too.
            if let exact = Int64(exactly: number) { return .integer(exact) }
            return .number(number)
        }
        return nil
    }

    mutating func string() -> String? {
        guard at < bytes.count, bytes[at] == 0x22 else { return nil }
        at += 1
        let start = at
        while at < bytes.count, bytes[at] != 0x22, bytes[at] != 0x5C, bytes[at] >= 0x20 { at += 1 }
        guard at < bytes.count else { return nil }
        if bytes[at] == 0x22 {
            defer { at += 1 }
            return String(decoding: bytes[start..<at], as: UTF8.self)
        }
        var text = Array(bytes[start..<at])
        while at < bytes.count {
            let c = bytes[at]
            at += 1
            switch c {
            case 0x22: return String(decoding: text, as: UTF8.self)
            case 0x00..<0x20: return nil
            case 0x5C:
                guard at < bytes.count else { return nil }
                let escape = bytes[at]
                at += 1
                switch escape {
                case 0x22, 0x5C, 0x2F: text.append(escape)
                case UInt8(ascii: "b"): text.append(8)
                case UInt8(ascii: "f"): text.append(12)
                case UInt8(ascii: "n"): text.append(10)
                case UInt8(ascii: "r"): text.append(13)
                case UInt8(ascii: "t"): text.append(9)
                case UInt8(ascii: "u"):
                    guard var code = unit() else { return nil }
                    if code >= 0xD800, code < 0xDC00 {
                        guard word("\\u"), let low = unit(), low >= 0xDC00, low < 0xE000 else { return nil }
                        code = 0x10000 + (code - 0xD800) << 10 + (low - 0xDC00)
                    }
                    guard let scalar = Unicode.Scalar(code) else { return nil }
                    text.append(contentsOf: String(Character(scalar)).utf8)
                default: return nil
                }
            default: text.append(c)
            }
        }
        return nil
    }

    private mutating func unit() -> UInt32? {
        guard at + 4 <= bytes.count else { return nil }
        var code: UInt32 = 0
        for i in 0..<4 {
            let c = bytes[at + i]
            let digit: UInt8
            switch c {
            case 0x30...0x39: digit = c - 0x30
            case 0x61...0x66: digit = c - 0x57
            case 0x41...0x46: digit = c - 0x37
            default: return nil
            }
            code = code << 4 | UInt32(digit)
        }
        at += 4
        return code
    }
}
