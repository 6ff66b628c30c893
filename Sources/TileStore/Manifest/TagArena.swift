/// Entity tags, packed: quoted hexadecimal ones (the usual MD5 and SHA ones) take half a byte a digit.
///
/// Blocks of four bytes; freed blocks are reused by tags of the same size.
struct TagArena: ~Copyable {
    private static var segmentUnits: Int { 1 << 14 }
    static var longest: Int { 512 }
    private var segments: [UnsafeMutablePointer<UInt32>] = []
    private var used = 0
    private var free = [UInt32](repeating: 0, count: 132)

    init() {}

    deinit { for segment in segments { segment.deallocate() } }

    private func address(_ reference: UInt32) -> UnsafeMutablePointer<UInt32> {
        segments[Int(reference) >> 14] + (Int(reference) & (Self.segmentUnits - 1))
    }

    // A block's first byte says how the rest is to be read, the second and third how long it is.
    private enum Form: UInt8 { case verbatim = 1, hex = 2, weakHex = 3 }

    /// Keeps a tag; 0 stands for none.
    ///
    /// The tag is at most ``longest`` bytes.
    mutating func insert(_ tag: UnsafeRawBufferPointer) -> UInt32 {
        guard tag.count > 0, tag.count <= Self.longest else { return 0 }
        var form = Form.verbatim
        var digits = 0..<0
        if tag.count > 3, tag[tag.count - 1] == 0x22 {
            if tag[0] == 0x22 { (form, digits) = (.hex, 1..<(tag.count - 1)) }
            if tag[0] == UInt8(ascii: "W"), tag[1] == UInt8(ascii: "/"), tag[2] == 0x22 {
                (form, digits) = (.weakHex, 3..<(tag.count - 1))
            }
            for i in digits where hexDigitValue(tag[i]) == nil {
                form = .verbatim
                break
            }
        }
        let length = form == .verbatim ? tag.count : digits.count
        let bytes = 3 + (form == .verbatim ? length : (length + 1) / 2)
        let units = (bytes + 3) / 4
        let reference = allocate(units)
        let block = UnsafeMutableRawPointer(address(reference)).assumingMemoryBound(to: UInt8.self)
        block[0] = form.rawValue
        block[1] = UInt8(length & 255)
        block[2] = UInt8(length >> 8)
        if form == .verbatim {
            for i in 0..<length { block[3 + i] = tag[i] }
        } else {
            var at = 3
            var i = digits.lowerBound
            while i < digits.upperBound {
                let high = hexDigitValue(tag[i]) ?? 0
                let low = i + 1 < digits.upperBound ? hexDigitValue(tag[i + 1]) ?? 0 : 0
                block[at] = high << 4 | low
                at += 1
                i += 2
            }
        }
        return reference
    }

    private mutating func allocate(_ units: Int) -> UInt32 {
        if free[units] != 0 {
            let reference = free[units]
            free[units] = address(reference).pointee
            return reference
        }
        if segments.isEmpty || used + units > Self.segmentUnits {
            segments.append(.allocate(capacity: Self.segmentUnits))
            // Reference 0 means "none", so the very first unit is not given out.
            used = segments.count == 1 ? 1 : 0
        }
        defer { used += units }
        return UInt32((segments.count - 1) << 14 + used)
    }

    mutating func remove(_ reference: UInt32) {
        guard reference != 0 else { return }
        let (form, length) = header(reference)
        let units = (3 + (form == .verbatim ? length : (length + 1) / 2) + 3) / 4
        address(reference).pointee = free[units]
        free[units] = reference
    }

    private func header(_ reference: UInt32) -> (Form, Int) {
        let block = UnsafeRawPointer(address(reference)).assumingMemoryBound(to: UInt8.self)
        return (Form(rawValue: block[0]) ?? .verbatim, Int(block[1]) | Int(block[2]) << 8)
    }

    /// The tag as it was given, without making a string of it if it is one of hexadecimal digits.
    @inline(__always)
    func packed(_ reference: UInt32) -> TagValue {
        guard reference != 0 else { return .none }
        let (form, length) = header(reference)
        guard form != .verbatim, length <= 64 else { return text(reference).map { .text($0) } ?? .none }
        var digits = PackedDigits(isWeak: form == .weakHex, count: UInt8(length))
        let block = UnsafeRawPointer(address(reference)) + 3
        withUnsafeMutableBytes(of: &digits.words) { words in
            words.baseAddress?.copyMemory(from: block, byteCount: (length + 1) / 2)
        }
        return .digits(digits)
    }

    /// The tag as it was given.
    func text(_ reference: UInt32) -> String? {
        guard reference != 0 else { return nil }
        let (form, length) = header(reference)
        let block = UnsafeRawPointer(address(reference)).assumingMemoryBound(to: UInt8.self) + 3
        if form == .verbatim {
            return String(decoding: UnsafeBufferPointer(start: block, count: length), as: UTF8.self)
        }
        let start = form == .hex ? 1 : 3
        return String(unsafeUninitializedCapacity: length + start + 1) { out in
            if form == .weakHex { (out[0], out[1]) = (UInt8(ascii: "W"), UInt8(ascii: "/")) }
            out[start - 1] = 0x22
            for i in 0..<length {
                let digit = i & 1 == 0 ? block[i >> 1] >> 4 : block[i >> 1] & 15
                out[start + i] = digit < 10 ? 0x30 + digit : 0x57 + digit
            }
            out[start + length] = 0x22
            return length + start + 1
        }
    }
}
