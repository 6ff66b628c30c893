/// An element of a small XML document: as much of XML as S3's answers have, and nothing else.
///
/// Everything else is an error: document types (and with them entities of their own), processing instructions, comments and
/// CDATA, encodings other than UTF-8, text beside elements. Depth and number of the elements are bounded; the bytes are by who
/// reads them.
struct XMLElement: Hashable, Sendable {
    /// The name as it is written.
    var name: String
    /// The text between the tags, decoded; empty where there are elements.
    var text = ""
    var children: [XMLElement] = []

    static let depthLimit = 16
    static let countLimit = 50_000

    /// Why a document cannot be read, and where.
    struct Defect: Error, Hashable, CustomStringConvertible {
        var reason: String
        var offset: Int
        var description: String { "\(reason) at byte \(offset)" }
    }

    init(_ name: String) { self.name = name }

    /// Parses a document.
    init(parsing bytes: [UInt8]) throws(Defect) {
        var reader = XMLReader(bytes)
        self = try reader.document()
    }
}

/// Reads a document from its first byte to its last.
private struct XMLReader {
    private let bytes: [UInt8]
    private var at = 0
    private var count = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    mutating func document() throws(XMLElement.Defect) -> XMLElement {
        skip("\u{FEFF}")
        if follows("<?xml"), at + 5 < bytes.count, Self.isBlank(bytes[at + 5]) { try declaration() }
        skipBlanks()
        let root = try element(depth: 1)
        skipBlanks()
        guard at == bytes.count else { throw defect("something after the document's end") }
        return root
    }

    private func defect(_ reason: String) -> XMLElement.Defect { .init(reason: reason, offset: at) }

    private static func isBlank(_ byte: UInt8) -> Bool { byte == 32 || byte == 9 || byte == 10 || byte == 13 }

    private func follows(_ text: String) -> Bool { bytes[at...].starts(with: text.utf8) }

    @discardableResult
    private mutating func skip(_ text: String) -> Bool {
        guard follows(text) else { return false }
        at += text.utf8.count
        return true
    }

    @discardableResult
    private mutating func skipBlanks() -> Bool {
        let start = at
        while at < bytes.count, Self.isBlank(bytes[at]) { at += 1 }
        return at > start
    }

    /// The first line: `<?xml version="1.0" encoding="UTF-8"?>`.
    private mutating func declaration() throws(XMLElement.Defect) {
        at += 5
        let fields = try attributes()
        guard skip("?>") else { throw defect("an XML declaration without an end") }
        if let encoding = fields["encoding"], encoding.lowercased() != "utf-8" {
            throw defect("an encoding other than UTF-8")
        }
    }

    private mutating func name() throws(XMLElement.Defect) -> String {
        let start = at
        while at < bytes.count {
            let byte = bytes[at]
            switch byte {
            case 0x41...0x5A, 0x61...0x7A, 0x5F: break
            case 0x30...0x39, 0x2D, 0x2E, 0x3A: guard at > start else { throw defect("no name") }
            default:
                guard at > start, byte < 128 else { throw defect("no name") }
                return String(decoding: bytes[start..<at], as: UTF8.self)
            }
            at += 1
            guard at - start <= 128 else { throw defect("a name of more than 128 bytes") }
        }
        throw defect("the document is cut off")
    }

    private mutating func attributes() throws(XMLElement.Defect) -> [String: String] {
        var found: [String: String] = [:]
        while skipBlanks(), at < bytes.count, bytes[at] != 0x3E, bytes[at] != 0x2F, bytes[at] != 0x3F {
            let name = try name()
            skipBlanks()
            guard skip("=") else { throw defect("an attribute without a value") }
            skipBlanks()
            guard at < bytes.count, bytes[at] == 0x22 || bytes[at] == 0x27 else {
                throw defect("a value without quotes")
            }
            let quote = bytes[at]
            at += 1
            let value = try text(until: quote)
            at += 1
            guard found.count < 16, found.updateValue(value, forKey: name) == nil else {
                throw defect("too many attributes, or one twice")
            }
        }
        return found
    }

    private mutating func element(depth: Int) throws(XMLElement.Defect) -> XMLElement {
        guard depth <= XMLElement.depthLimit else {
            throw defect("more than \(XMLElement.depthLimit) elements within each other")
        }
        count += 1
        guard count <= XMLElement.countLimit else { throw defect("more than \(XMLElement.countLimit) elements") }
        guard skip("<") else { throw defect("no element") }
        var element = XMLElement(try name())
        _ = try attributes()
        if skip("/>") { return element }
        guard skip(">") else { throw defect("a tag without an end") }
        while true {
            let text = try text(until: 0x3C)
            let isBlank = text.utf8.allSatisfy(Self.isBlank)
            guard isBlank || element.children.isEmpty else { throw defect("text beside elements") }
            if skip("</") {
                guard try name() == element.name else { throw defect("an end tag of another element") }
                skipBlanks()
                guard skip(">") else { throw defect("an end tag without an end") }
                if element.children.isEmpty { element.text = text }
                return element
            }
            guard isBlank else { throw defect("text beside elements") }
            element.children.append(try self.element(depth: depth + 1))
        }
    }

    /// Text up to a byte, decoded; the byte itself stays.
    private mutating func text(until end: UInt8) throws(XMLElement.Defect) -> String {
        var out: [UInt8] = []
        while at < bytes.count, bytes[at] != end {
            let byte = bytes[at]
            switch byte {
            case 0x26: try reference(into: &out)
            case 0x3C: throw defect("a < within a value")
            case 0x0D:
                // A line end is one LF, however it is written (XML 1.0 §2.11).
                out.append(10)
                at += at + 1 < bytes.count && bytes[at + 1] == 10 ? 2 : 1
            case 0x00...0x08, 0x0B, 0x0C, 0x0E...0x1F: throw defect("a control character")
            default:
                out.append(byte)
                at += 1
            }
        }
        guard at < bytes.count else { throw defect("the document is cut off") }
        let text = String(decoding: out, as: UTF8.self)
        guard text.utf8.elementsEqual(out), text.unicodeScalars.allSatisfy(Self.isCharacter) else {
            throw defect("text that is not UTF-8, or has characters that XML has not")
        }
        return text
    }

    /// One of the five entities that need no declaration, or a character's number.
    private mutating func reference(into out: inout [UInt8]) throws(XMLElement.Defect) {
        for (name, byte) in [("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'")]
        where skip(name) {
            out += Array(byte.utf8)
            return
        }
        guard skip("&#") else { throw defect("an entity that is not declared") }
        let radix: UInt32 = skip("x") ? 16 : 10
        var (value, digits): (UInt32, Int) = (0, 0)
        while at < bytes.count, let digit = Self.digit(bytes[at]), digit < radix {
            digits += 1
            guard digits <= 8 else { break }
            value = value &* radix &+ digit
            at += 1
        }
        guard (1...8).contains(digits), let scalar = UnicodeScalar(value), Self.isCharacter(scalar), skip(";") else {
            throw defect("a reference to no character")
        }
        out += Array(String(scalar).utf8)
    }

    private static func digit(_ byte: UInt8) -> UInt32? {
        switch byte {
        case 0x30...0x39: UInt32(byte - 0x30)
        case 0x41...0x46: UInt32(byte - 0x37)
        case 0x61...0x66: UInt32(byte - 0x57)
        default: nil
        }
    }

    private static func isCharacter(_ scalar: UnicodeScalar) -> Bool { XMLText.isCharacter(scalar) }
}

/// Text as documents have it.
enum XMLText {
    /// Whether a document may have the character, in whatever way (XML 1.0 §2.2).
    static func isCharacter(_ scalar: UnicodeScalar) -> Bool {
        switch scalar.value {
        case 0x09, 0x0A, 0x0D, 0x20...0xFFFD, 0x10000...0x10FFFF: true
        default: false
        }
    }

    /// Writes a text so that a reader finds the same; `nil` if it has characters that no document may have.
    static func escape(_ text: String) -> String? {
        var out = ""
        for scalar in text.unicodeScalars {
            guard isCharacter(scalar) else { return nil }
            switch scalar {
            case "&": out += "&amp;"
            case "<": out += "&lt;"
            case ">": out += "&gt;"
            case "\t", "\n", "\r": out += "&#\(scalar.value);"
            default: out.unicodeScalars.append(scalar)
            }
        }
        return out
    }
}
