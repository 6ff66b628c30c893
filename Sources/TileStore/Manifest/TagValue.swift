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
        let start = isWeak ? 3 : 1
        let count = Int(count)
        return withUnsafeBytes(of: words) { words in
            String(unsafeUninitializedCapacity: count + start + 1) { out in
                if isWeak { (out[0], out[1]) = (UInt8(ascii: "W"), UInt8(ascii: "/")) }
                out[start - 1] = 0x22
                for i in 0..<count {
                    let digit = i & 1 == 0 ? words[i >> 1] >> 4 : words[i >> 1] & 15
                    out[start + i] = digit < 10 ? 0x30 + digit : 0x57 + digit
                }
                out[start + count] = 0x22
                return count + start + 1
            }
        }
    }
}
