// What the readers of messages share. They work on bytes: every delimiter of HTTP/1.1 is ASCII.

extension UInt8 {
    @inlinable @inline(__always) package var isDigit: Bool { self &- 48 < 10 }
    @inlinable @inline(__always) package var isBlank: Bool { self == 32 || self == 9 }
    @inlinable @inline(__always) package var lowercased: UInt8 { self &- 65 < 26 ? self | 32 : self }

    /// `tchar` of RFC 9110 §5.6.2.
    @inlinable @inline(__always) package var isToken: Bool {
        let low: UInt64 = 0x03FF_6CFA_0000_0000
        let high: UInt64 = 0x57FF_FFFF_C7FF_FFFE
        return self < 64 ? low >> UInt64(self) & 1 == 1 : self < 128 && high >> UInt64(self & 63) & 1 == 1
    }

    /// What may stand in a field's value: anything but controls; the tab is no control here (RFC 9110 §5.5).
    @inlinable @inline(__always) package var isFieldText: Bool { self >= 32 ? self != 127 : self == 9 }

    /// The value of a hexadecimal digit.
    @inlinable @inline(__always) package var hexDigit: UInt8? {
        if isDigit { return self &- 48 }
        let letter = lowercased &- 97
        return letter < 6 ? letter &+ 10 : nil
    }
}

extension UnsafeRawBufferPointer {
    /// A part of it; the bounds must lie within.
    @inlinable @inline(__always) package func part(_ start: Int, _ end: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: self[start..<end])
    }

    /// Without the blanks at both ends.
    @inlinable @inline(__always) package var trimmed: UnsafeRawBufferPointer {
        var (start, end) = (0, count)
        while start < end, self[start].isBlank { start += 1 }
        while end > start, self[end - 1].isBlank { end -= 1 }
        return part(start, end)
    }

    /// Whether it is the text, whatever its case; the text is in lower case.
    @inlinable @inline(__always) package func equals(lowercase text: StaticString) -> Bool {
        guard count == text.utf8CodeUnitCount else { return false }
        let other = text.utf8Start
        for i in 0..<count where self[i].lowercased != other[i] { return false }
        return true
    }

    /// The decimal number that these digits are; `nil` for anything else and for more than 18 digits.
    package var decimal: Int? {
        guard (1...18).contains(count) else { return nil }
        var value = 0
        for byte in self {
            guard byte.isDigit else { return nil }
            value = value &* 10 &+ Int(byte &- 48)
        }
        return value
    }
}
