/// An entity tag as an entry carries it: its digits, until somebody asks for the text.
enum TagValue: Sendable {
    case none
    case text(String)
    case digits(PackedDigits)

    var text: String? {
        switch self {
        case .none: nil
        case .text(let text): text
        case .digits(let digits): digits.text
        }
    }
}

/// Up to 64 hexadecimal digits of a quoted tag, two to a byte.
struct PackedDigits: Sendable {
    var isWeak: Bool
    var count: UInt8
    var words: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)

    init(isWeak: Bool, count: UInt8) {
        self.isWeak = isWeak
        self.count = count
    }

    var text: String {
        withUnsafeBytes(of: words) { words in
            guard let base = words.baseAddress else { return "" }
            return Self.text(isWeak: isWeak, Int(count), base.assumingMemoryBound(to: UInt8.self))
        }
    }

    /// A quoted tag of so many packed digits.
    static func text(isWeak: Bool, _ count: Int, _ packed: UnsafePointer<UInt8>) -> String {
        let start = isWeak ? 3 : 1
        return String(unsafeUninitializedCapacity: count + start + 1) { out in
            guard let base = out.baseAddress else { return 0 }
            if isWeak { (out[0], out[1]) = (UInt8(ascii: "W"), UInt8(ascii: "/")) }
            out[start - 1] = 0x22
            HexDigits.spell(count, from: packed, to: base + start)
            out[start + count] = 0x22
            return count + start + 1
        }
    }
}

/// An entity tag on its way into the tables.
///
/// Quoted hexadecimal ones (the usual MD5 and SHA ones) go there as their digits alone.
struct TagBytes {
    enum Form: UInt8 { case none, verbatim, hex, weakHex }

    var form = Form.none
    /// The whole text, or the digits alone.
    var bytes = UnsafeRawBufferPointer(start: nil, count: 0)

    /// The longest tag that is kept, in bytes.
    static var longest: Int { 512 }

    init() {}

    @inline(__always)
    init(_ form: Form, _ bytes: UnsafeRawBufferPointer) {
        self.form = form
        self.bytes = bytes
    }

    /// Tells what kind of tag a text is; an empty one, or one that is too long, is none.
    init(text: UnsafeRawBufferPointer) {
        guard text.count > 0, text.count <= Self.longest else { return }
        (form, bytes) = (.verbatim, text)
        guard text.count > 2, text[text.count - 1] == 0x22 else { return }
        let isWeak = text.count > 3 && text[0] == UInt8(ascii: "W") && text[1] == UInt8(ascii: "/") && text[2] == 0x22
        guard isWeak || text[0] == 0x22 else { return }
        let digits = UnsafeRawBufferPointer(rebasing: text[(isWeak ? 3 : 1)..<(text.count - 1)])
        if HexDigits.run(digits) == digits.count { (form, bytes) = (isWeak ? .weakHex : .hex, digits) }
    }
}
