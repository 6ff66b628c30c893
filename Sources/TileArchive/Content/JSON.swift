#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// A JSON value that comes out as it went in: members keep their order, numbers their digits.
package enum JSON: Hashable, Sendable {
    case null
    case bool(Bool)
    case number(String)
    case string(String)
    case array([JSON])
    case object([Member])

    package struct Member: Hashable, Sendable {
        package var name: String
        package var value: JSON

        package init(_ name: String, _ value: JSON) {
            self.name = name
            self.value = value
        }
    }

    /// More values than that in one document are refused.
    private static let mostValues = 500_000

    /// Parses one document (RFC 8259); `nil` if it is none, is nested more than 64 deep, or has too many values.
    package init?(_ data: Data) {
        let parsed = data.withUnsafeBytes { bytes -> JSON? in
            var parser = Parser(bytes: bytes, values: Self.mostValues)
            guard let value = parser.value(depth: 0) else { return nil }
            parser.skipSpace()
            return parser.at == bytes.count ? value : nil
        }
        guard let parsed else { return nil }
        self = parsed
    }

    package var string: String? { if case .string(let text) = self { text } else { nil } }
    package var array: [JSON]? { if case .array(let values) = self { values } else { nil } }
    package var members: [Member]? { if case .object(let members) = self { members } else { nil } }
    package var double: Double? { if case .number(let text) = self { Double(text) } else { nil } }
    package var integer: Int? { if case .number(let text) = self { Int(text) } else { nil } }

    /// A member of an object; of several with one name, the last.
    package subscript(name: String) -> JSON? { members?.last { $0.name == name }?.value }

    /// The document without white space.
    package var text: String {
        var text = ""
        write(to: &text)
        return text
    }

    private func write(to text: inout String) {
        func list<T>(_ values: [T], _ open: String, _ close: String, _ body: (T) -> Void) {
            text += open
            for (i, value) in values.enumerated() {
                if i > 0 { text += "," }
                body(value)
            }
            text += close
        }
        switch self {
        case .null: text += "null"
        case .bool(let value): text += value ? "true" : "false"
        case .number(let digits): text += digits
        case .string(let value): Self.write(value, to: &text)
        case .array(let values): list(values, "[", "]") { $0.write(to: &text) }
        case .object(let members):
            list(members, "{", "}") {
                Self.write($0.name, to: &text)
                text += ":"
                $0.value.write(to: &text)
            }
        }
    }

    private static func write(_ value: String, to text: inout String) {
        text += "\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\n": text += "\\n"
            case _ where scalar.value < 0x20:
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: text.unicodeScalars.append(scalar)
            }
        }
        text += "\""
    }
}

private struct Parser {
    let bytes: UnsafeRawBufferPointer
    var values: Int
    var at = 0

    init(bytes: UnsafeRawBufferPointer, values: Int) {
        self.bytes = bytes
        self.values = values
    }

    mutating func skipSpace() {
        while at < bytes.count, [0x20, 0x0A, 0x0D, 0x09].contains(bytes[at]) { at += 1 }
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        skipSpace()
        guard at < bytes.count, bytes[at] == byte else { return false }
        at += 1
        return true
    }

    private mutating func word(_ text: StaticString, _ value: JSON) -> JSON? {
        let count = text.utf8CodeUnitCount
        guard at + count <= bytes.count else { return nil }
        for i in 0..<count where bytes[at + i] != text.utf8Start[i] { return nil }
        at += count
        return value
    }

    mutating func value(depth: Int) -> JSON? {
        skipSpace()
        values -= 1
        guard values >= 0, depth < 64, at < bytes.count else { return nil }
        switch bytes[at] {
        case UInt8(ascii: "{"): return object(depth)
        case UInt8(ascii: "["): return array(depth)
        case UInt8(ascii: "\""): return string().map { .string($0) }
        case UInt8(ascii: "t"): return word("true", .bool(true))
        case UInt8(ascii: "f"): return word("false", .bool(false))
        case UInt8(ascii: "n"): return word("null", .null)
        default: return number()
        }
    }

    private mutating func object(_ depth: Int) -> JSON? {
        at += 1
        var members: [JSON.Member] = []
        if take(UInt8(ascii: "}")) { return .object([]) }
        repeat {
            skipSpace()
            guard at < bytes.count, bytes[at] == UInt8(ascii: "\""), let name = string(), take(UInt8(ascii: ":")),
                let value = value(depth: depth + 1)
            else { return nil }
            members.append(JSON.Member(name, value))
        } while take(UInt8(ascii: ","))
        return take(UInt8(ascii: "}")) ? .object(members) : nil
    }

    private mutating func array(_ depth: Int) -> JSON? {
        at += 1
        var values: [JSON] = []
        if take(UInt8(ascii: "]")) { return .array([]) }
        repeat {
            guard let value = value(depth: depth + 1) else { return nil }
            values.append(value)
        } while take(UInt8(ascii: ","))
        return take(UInt8(ascii: "]")) ? .array(values) : nil
    }

    private mutating func number() -> JSON? {
        let start = at
        while at < bytes.count, isNumberByte(bytes[at]) { at += 1 }
        guard at - start <= 40, Self.isNumber(bytes[start..<at]) else { return nil }
        return .number(String(decoding: bytes[start..<at], as: UTF8.self))
    }

    /// Whether bytes are a number as JSON has it (RFC 8259 §6).
    ///
    /// By the grammar: `Double` takes `01` and `1.` too, and what is written again as it came must be JSON for others.
    private static func isNumber(_ text: Slice<UnsafeRawBufferPointer>) -> Bool {
        var rest = text
        func digits() -> Int {
            let end = rest.firstIndex { !(0x30...0x39).contains($0) } ?? rest.endIndex
            defer { rest = rest[end...] }
            return end - rest.startIndex
        }
        if rest.first == UInt8(ascii: "-") { rest = rest.dropFirst() }
        let hasZero = rest.first == UInt8(ascii: "0")
        let whole = digits()
        guard whole > 0, whole == 1 || !hasZero else { return false }
        if rest.first == UInt8(ascii: ".") {
            rest = rest.dropFirst()
            guard digits() > 0 else { return false }
        }
        if let first = rest.first, first | 0x20 == UInt8(ascii: "e") {
            rest = rest.dropFirst()
            if rest.first == UInt8(ascii: "+") || rest.first == UInt8(ascii: "-") { rest = rest.dropFirst() }
            guard digits() > 0 else { return false }
        }
        return rest.isEmpty
    }

    private func isNumberByte(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || [0x2B, 0x2D, 0x2E, 0x45, 0x65].contains(byte)
    }

    private mutating func string() -> String? {
        at += 1
        var text: [UInt8] = []
        while at < bytes.count {
            let byte = bytes[at]
            at += 1
            switch byte {
            case UInt8(ascii: "\""): return String(decoding: text, as: UTF8.self)
            case UInt8(ascii: "\\"):
                guard let scalar = escape() else { return nil }
                text.append(contentsOf: Array(String(scalar).utf8))
            case 0..<0x20: return nil
            default: text.append(byte)
            }
        }
        return nil
    }

    private mutating func escape() -> Unicode.Scalar? {
        guard at < bytes.count else { return nil }
        let byte = bytes[at]
        at += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(byte)
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{C}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"):
            guard let first = unit() else { return nil }
            guard (0xD800..<0xDC00).contains(first) else { return Unicode.Scalar(first) ?? "\u{FFFD}" }
            guard at + 1 < bytes.count, bytes[at] == UInt8(ascii: "\\"), bytes[at + 1] == UInt8(ascii: "u") else {
                return "\u{FFFD}"
            }
            at += 2
            guard let second = unit() else { return nil }
            guard (0xDC00..<0xE000).contains(second) else { return "\u{FFFD}" }
            return Unicode.Scalar(0x10000 + (first - 0xD800) << 10 + (second - 0xDC00))
        default: return nil
        }
    }

    private mutating func unit() -> UInt32? {
        guard at + 4 <= bytes.count else { return nil }
        let text = String(decoding: bytes[at..<(at + 4)], as: UTF8.self)
        at += 4
        return text.utf8.allSatisfy { isHex($0) } ? UInt32(text, radix: 16) : nil
    }

    private func isHex(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x46).contains(byte) || (0x61...0x66).contains(byte)
    }
}
