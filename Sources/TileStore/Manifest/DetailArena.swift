/// What only some entries have besides their record: an entity tag, `Last-Modified`, `Date`, an initial age.
struct EntryDetails {
    var tag = TagBytes()
    var lastModified = Timestamp.absent
    var date = Timestamp.absent
    var initialAge: UInt32 = 0
}

/// The details of all entries, in blocks of as many four-byte words as each needs.
///
/// An entry without any has no block. Hexadecimal tags take half a byte a digit. Freed blocks are reused by details of the
/// same size.
struct DetailArena: ~Copyable {
    // A block: a byte of flags, two of the tag's length, the tag, filled up to whole words; then a word for each time that
    // is there, in the order of their flags. The two lowest bits of the flags are the tag's form.
    private static var segmentWords: Int { 1 << 14 }
    private static var hasModified: UInt8 { 4 }
    private static var hasDate: UInt8 { 8 }
    private static var hasAge: UInt8 { 16 }

    private var segments: UnsafeMutablePointer<UnsafeMutablePointer<UInt32>>
    private var segmentCount = 0
    private var segmentLimit = 16
    private var used = 0
    // The first free block of each size; the longest has a tag of 512 bytes and three times.
    private var free = [UInt32](repeating: 0, count: 136)

    init() { segments = .allocate(capacity: segmentLimit) }

    deinit {
        for i in 0..<segmentCount { segments[i].deallocate() }
        segments.deallocate()
    }

    @inline(__always)
    private func address(_ reference: UInt32) -> UnsafeMutablePointer<UInt32> {
        segments[Int(reference >> 14)] + Int(reference & UInt32(truncatingIfNeeded: Self.segmentWords - 1))
    }

    /// A block's flags and the length of its tag.
    private struct Header {
        var flags: UInt8
        var length: Int

        @inline(__always)
        init(_ block: UnsafeMutablePointer<UInt32>) {
            let word = UInt32(littleEndian: block.pointee)
            flags = UInt8(truncatingIfNeeded: word)
            length = Int(word >> 8 & 0xFFFF)
        }

        @inline(__always) var form: TagBytes.Form { TagBytes.Form(rawValue: flags & 3) ?? .none }
        @inline(__always) var tagBytes: Int { flags & 3 >= TagBytes.Form.hex.rawValue ? (length &+ 1) >> 1 : length }
        /// Words before the times.
        @inline(__always) var words: Int { (3 &+ tagBytes &+ 3) >> 2 }
        @inline(__always) var allWords: Int { words &+ (flags >> 2).nonzeroBitCount }
    }

    /// Keeps details; 0 stands for none.
    @inline(__always)
    mutating func insert(_ details: EntryDetails) -> UInt32 {
        var flags = details.tag.form.rawValue
        if details.lastModified != Timestamp.absent { flags |= Self.hasModified }
        if details.date != Timestamp.absent { flags |= Self.hasDate }
        if details.initialAge != 0 { flags |= Self.hasAge }
        guard flags != 0 else { return 0 }
        let length = details.tag.bytes.count
        let isHex = details.tag.form == .hex || details.tag.form == .weakHex
        let words = (3 &+ (isHex ? (length &+ 1) >> 1 : length) &+ 3) >> 2
        let reference = allocate(words &+ (flags >> 2).nonzeroBitCount)
        let block = address(reference)
        block.pointee = UInt32(littleEndian: UInt32(flags) | UInt32(truncatingIfNeeded: length) << 8)
        let out = UnsafeMutableRawPointer(block) + 3
        if isHex {
            HexDigits.pack(details.tag.bytes, to: out)
        } else if let base = details.tag.bytes.baseAddress {
            out.copyMemory(from: base, byteCount: length)
        }
        var at = words
        if flags & Self.hasModified != 0 {
            block[at] = details.lastModified
            at &+= 1
        }
        if flags & Self.hasDate != 0 {
            block[at] = details.date
            at &+= 1
        }
        if flags & Self.hasAge != 0 { block[at] = details.initialAge }
        return reference
    }

    @inline(__always)
    private mutating func allocate(_ words: Int) -> UInt32 {
        let freed = free[words]
        if freed != 0 {
            free[words] = address(freed).pointee
            return freed
        }
        if segmentCount == 0 || used &+ words > Self.segmentWords { addSegment() }
        let reference = UInt32(truncatingIfNeeded: (segmentCount &- 1) << 14 &+ used)
        used &+= words
        return reference
    }

    private mutating func addSegment() {
        if segmentCount == segmentLimit {
            let more = UnsafeMutablePointer<UnsafeMutablePointer<UInt32>>.allocate(capacity: segmentLimit * 2)
            more.moveInitialize(from: segments, count: segmentCount)
            segments.deallocate()
            segments = more
            segmentLimit *= 2
        }
        (segments + segmentCount).initialize(to: .allocate(capacity: Self.segmentWords))
        segmentCount += 1
        // Reference 0 means "none", so the very first word is not given out.
        used = segmentCount == 1 ? 1 : 0
    }

    @inline(__always)
    mutating func remove(_ reference: UInt32) {
        guard reference != 0 else { return }
        let block = address(reference)
        let words = Header(block).allWords
        block.pointee = free[words]
        free[words] = reference
    }

    /// An entry's `Date`, or ``Timestamp/absent``.
    @inline(__always)
    func date(_ reference: UInt32) -> UInt32 { times(reference).date }

    /// An entry's times.
    @inline(__always)
    func times(_ reference: UInt32) -> (lastModified: UInt32, date: UInt32, initialAge: UInt32) {
        var times = (lastModified: Timestamp.absent, date: Timestamp.absent, initialAge: UInt32(0))
        guard reference != 0 else { return times }
        let block = address(reference)
        let header = Header(block)
        guard header.flags > 3 else { return times }
        var at = header.words
        if header.flags & Self.hasModified != 0 {
            times.lastModified = block[at]
            at &+= 1
        }
        if header.flags & Self.hasDate != 0 {
            times.date = block[at]
            at &+= 1
        }
        if header.flags & Self.hasAge != 0 { times.initialAge = block[at] }
        return times
    }

    /// An entry's tag, without making a string of it if it is one of hexadecimal digits.
    @inline(__always)
    func tag(_ reference: UInt32) -> TagValue {
        guard reference != 0 else { return .none }
        let block = address(reference)
        let header = Header(block)
        let bytes = UnsafeRawPointer(block) + 3
        switch header.form {
        case .none: return .none
        case .verbatim:
            return .text(String(decoding: UnsafeRawBufferPointer(start: bytes, count: header.length), as: UTF8.self))
        case .hex, .weakHex:
            let isWeak = header.form == .weakHex
            guard header.length <= 64 else {
                let digits = bytes.assumingMemoryBound(to: UInt8.self)
                return .text(PackedDigits.text(isWeak: isWeak, header.length, digits))
            }
            var digits = PackedDigits(isWeak: isWeak, count: UInt8(truncatingIfNeeded: header.length))
            withUnsafeMutableBytes(of: &digits.words) { words in
                words.baseAddress?.copyMemory(from: bytes, byteCount: header.tagBytes)
            }
            return .digits(digits)
        }
    }
}
