package import TileStore

/// Writes JSON in its one form: no white space, members in the order of their names, only what must be escaped is.
struct CanonicalJSON {
    private(set) var bytes: [UInt8] = []

    mutating func raw(_ text: StaticString) {
        bytes.append(contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    mutating func append(_ text: some Sequence<UInt8>) { bytes.append(contentsOf: text) }

    mutating func integer(_ number: Int) { bytes.append(contentsOf: String(number).utf8) }

    mutating func optional(_ text: String?) {
        if let text { string(text) } else { raw("null") }
    }

    mutating func string(_ text: String) {
        bytes.append(0x22)
        for byte in text.utf8 {
            switch byte {
            case 0x22, 0x5C: bytes.append(contentsOf: [0x5C, byte])
            case 0..<0x20:
                raw("\\u00")
                bytes.append(contentsOf: [Self.digit(byte >> 4), Self.digit(byte & 15)])
            default: bytes.append(byte)
            }
        }
        bytes.append(0x22)
    }

    private static func digit(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 + value : 0x57 + value }

    /// A list with commas between its items.
    mutating func list<Item>(_ items: some Sequence<Item>, _ write: (inout CanonicalJSON, Item) -> Void) {
        bytes.append(0x5B)
        var isFirst = true
        for item in items {
            if !isFirst { bytes.append(0x2C) }
            isFirst = false
            write(&self, item)
        }
        bytes.append(0x5D)
    }

    mutating func value(_ value: JSONValue) {
        switch value {
        case .null: raw("null")
        case .bool(let isTrue): isTrue ? raw("true") : raw("false")
        case .integer(let number): integer(Int(number))
        case .number(let number): bytes.append(contentsOf: String(number).utf8)
        case .string(let text): string(text)
        case .array(let items): list(items) { $0.value($1) }
        case .object(let members):
            bytes.append(0x7B)
            for (i, name) in members.keys.sorted().enumerated() {
                if i > 0 { bytes.append(0x2C) }
                string(name)
                bytes.append(0x3A)
                self.value(members[name] ?? .null)
            }
            bytes.append(0x7D)
        }
    }
}

extension [UInt8] {
    /// The SHA-256 of the bytes.
    package var digest: BlobDigest { withUnsafeBytes { BlobDigest(hashing: $0) } }

    /// The JSON value that the bytes are.
    var json: JSONValue? { withUnsafeBytes { JSONValue($0) } }
}

extension JSONValue {
    /// The value's canonical JSON.
    package var canonicalText: String {
        var json = CanonicalJSON()
        json.value(self)
        return String(decoding: json.bytes, as: UTF8.self)
    }
}
