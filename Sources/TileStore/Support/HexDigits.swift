/// Lower-case hexadecimal digits, eight at a time in a machine word: manifests are mostly made of them.
enum HexDigits {
    /// The eight digits of four bytes, both in the order in which they are in memory.
    @inline(__always)
    static func spell(_ bytes: UInt32) -> UInt64 {
        // Each byte onto two: its high half first.
        var x = UInt64(UInt32(littleEndian: bytes))
        x = (x | x << 16) & 0x0000_FFFF_0000_FFFF
        x = (x | x << 8) & 0x00FF_00FF_00FF_00FF
        let digits = (x >> 4 & 0x000F_000F_000F_000F) | (x & 0x000F_000F_000F_000F) << 8
        // Those from ten on are letters, which begin 39 places after where the figures end.
        let letters = (digits &+ 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101
        return UInt64(littleEndian: digits &+ 0x3030_3030_3030_3030 &+ letters &* 0x27)
    }

    /// The four bytes that eight digits spell; `nil` if one is no lower-case hexadecimal digit.
    @inline(__always)
    static func bytes(_ digits: UInt64) -> UInt32? {
        var wrong: UInt64 = 0
        let bytes = bytes(digits, &wrong)
        return wrong == 0 ? bytes : nil
    }

    /// The same where many words follow each other and are judged together: sets bits in `wrong` if one is no digit.
    @inline(__always)
    static func bytes(_ digits: UInt64, _ wrong: inout UInt64) -> UInt32 {
        let c = UInt64(littleEndian: digits)
        // In a byte below 128 these sums carry into the high bit where the byte is at least '0', ':', 'a', 'g'.
        let figures = (c &+ 0x5050_5050_5050_5050) & ~(c &+ 0x4646_4646_4646_4646)
        let letters = (c &+ 0x1F1F_1F1F_1F1F_1F1F) & ~(c &+ 0x1919_1919_1919_1919)
        wrong |= (c | ~(figures | letters)) & 0x8080_8080_8080_8080
        let values = (c & 0x0F0F_0F0F_0F0F_0F0F) &+ (c >> 6 & 0x0101_0101_0101_0101) &* 9
        var x = (values << 4 | values >> 8) & 0x00FF_00FF_00FF_00FF
        x = (x | x >> 8) & 0x0000_FFFF_0000_FFFF
        return UInt32(littleEndian: UInt32(truncatingIfNeeded: x | x >> 16))
    }

    /// The digit of a value below 16.
    @inline(__always)
    static func digit(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 &+ value : 0x57 &+ value }

    /// Spells an odd or even number of digits, two to a byte, the first in the byte's high half.
    @inline(__always)
    static func spell(_ count: Int, from packed: UnsafePointer<UInt8>, to out: UnsafeMutablePointer<UInt8>) {
        var at = 0
        while at &+ 8 <= count {
            let bytes = UnsafeRawPointer(packed).loadUnaligned(fromByteOffset: at >> 1, as: UInt32.self)
            UnsafeMutableRawPointer(out).storeBytes(of: spell(bytes), toByteOffset: at, as: UInt64.self)
            at &+= 8
        }
        while at < count {
            out[at] = digit(at & 1 == 0 ? packed[at >> 1] >> 4 : packed[at >> 1] & 15)
            at &+= 1
        }
    }

    /// Packs digits two to a byte, the first into the high half; what is left over of the last byte is 0.
    @inline(__always)
    static func pack(_ digits: UnsafeRawBufferPointer, to out: UnsafeMutableRawPointer) {
        var at = 0
        while at &+ 8 <= digits.count {
            let word = digits.loadUnaligned(fromByteOffset: at, as: UInt64.self)
            out.storeBytes(of: bytes(word) ?? 0, toByteOffset: at >> 1, as: UInt32.self)
            at &+= 8
        }
        while at < digits.count {
            let low = at &+ 1 < digits.count ? hexDigitValue(digits[at &+ 1]) ?? 0 : 0
            let value = (hexDigitValue(digits[at]) ?? 0) << 4 | low
            out.storeBytes(of: value, toByteOffset: at >> 1, as: UInt8.self)
            at &+= 2
        }
    }

    /// How many digits a text begins with.
    @inline(__always)
    static func run(_ text: UnsafeRawBufferPointer) -> Int {
        var at = 0
        while at &+ 8 <= text.count, bytes(text.loadUnaligned(fromByteOffset: at, as: UInt64.self)) != nil { at &+= 8 }
        while at < text.count, hexDigitValue(text[at]) != nil { at &+= 1 }
        return at
    }
}

/// The value of a lower-case hexadecimal digit: canonical text has no upper-case ones.
@inline(__always) func hexDigitValue(_ byte: UInt8) -> UInt8? {
    switch byte {
    case 0x30...0x39: byte &- 0x30
    case 0x61...0x66: byte &- 0x61 &+ 10
    default: nil
    }
}
