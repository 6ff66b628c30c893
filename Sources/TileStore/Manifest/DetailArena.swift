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
    static var segmentWords: Int { 1 << 14 }
    // Segments that lie together in a piece of large memory: 8 MiB. The first ones are by themselves.
    private static var perPiece: Int { 128 }
    private static var pieceBytes: Int { perPiece * segmentWords * 4 }
    /// How many sizes of blocks there are.
    static var sizes: Int { 136 }
    /// Words that are marked, and copied again, together.
    static var group: Int { 16 }
    private static var hasModified: UInt8 { 4 }
    private static var hasDate: UInt8 { 8 }
    private static var hasAge: UInt8 { 16 }

    private var segments: UnsafeMutablePointer<UnsafeMutablePointer<UInt32>>
    private(set) var segmentCount = 0
    private var segmentLimit = 16
    private(set) var used = 0
    // The first free block of each size; the longest has a tag of 512 bytes and three times.
    private(set) var free = [UInt32](repeating: 0, count: Self.sizes)
    private var marks: ChangeMarks?

    init() { segments = .allocate(capacity: segmentLimit) }

    deinit {
        for i in 0..<min(segmentCount, Self.perPiece) { segments[i].deallocate() }
        for i in stride(from: Self.perPiece, to: segmentCount, by: Self.perPiece) {
            LargeMemory.free(segments[i], Self.pieceBytes)
        }
        segments.deallocate()
        marks?.release()
    }

    /// Marks words that are about to be changed.
    @inline(__always)
    private func mark(_ reference: UInt32, _ words: Int) {
        guard let marks else { return }
        for part in Int(reference) / Self.group...(Int(reference) + words - 1) / Self.group { marks.mark(part) }
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
        let allWords = words &+ (flags >> 2).nonzeroBitCount
        let reference = allocate(allWords)
        mark(reference, allWords)
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
        // It is written to disk as it is: nothing of what was in this memory before may be.
        let segment: UnsafeMutablePointer<UInt32>
        if segmentCount >= Self.perPiece, segmentCount % Self.perPiece != 0 {
            segment = segments[segmentCount - 1] + Self.segmentWords
        } else if segmentCount >= Self.perPiece {
            guard let piece = LargeMemory.allocate(Self.pieceBytes) else {
                preconditionFailure("the process has no memory left for its tables")
            }
            segment = piece.bindMemory(to: UInt32.self, capacity: Self.perPiece * Self.segmentWords)
        } else {
            segment = .allocate(capacity: Self.segmentWords)
            segment.initialize(repeating: 0, count: Self.segmentWords)
        }
        (segments + segmentCount).initialize(to: segment)
        segmentCount += 1
        // Reference 0 means "none", so the very first word is not given out.
        used = segmentCount == 1 ? 1 : 0
    }

    @inline(__always)
    mutating func remove(_ reference: UInt32) {
        guard reference != 0 else { return }
        let block = address(reference)
        let words = Header(block).allWords
        mark(reference, 1)
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

// Entity tags without a string.
extension DetailArena {
    /// Writes an entry's tag as text and says how long it is: 0 for none, at most ``TagBytes/longest`` bytes.
    ///
    /// - Parameter room: At least ``TagBytes/longest`` bytes; with less nothing is written.
    @inline(__always)
    func spellTag(_ reference: UInt32, to room: UnsafeMutableRawBufferPointer) -> Int {
        guard reference != 0, let out = room.baseAddress else { return 0 }
        let block = address(reference)
        let header = Header(block)
        let bytes = UnsafeRawPointer(block) + 3
        switch header.form {
        case .none: return 0
        case .verbatim:
            guard header.length <= room.count else { return 0 }
            out.copyMemory(from: bytes, byteCount: header.length)
            return header.length
        case .hex, .weakHex:
            let start = header.form == .weakHex ? 3 : 1
            let end = start &+ header.length
            guard end < room.count else { return 0 }
            if start == 3 {
                out.storeBytes(of: UInt8(ascii: "W"), as: UInt8.self)
                out.storeBytes(of: UInt8(ascii: "/"), toByteOffset: 1, as: UInt8.self)
            }
            out.storeBytes(of: 0x22, toByteOffset: start &- 1, as: UInt8.self)
            HexDigits.spell(
                header.length, from: bytes.assumingMemoryBound(to: UInt8.self),
                to: (out + start).assumingMemoryBound(to: UInt8.self))
            out.storeBytes(of: 0x22, toByteOffset: end, as: UInt8.self)
            return end &+ 1
        }
    }
}

// Copying the details while they are in use.
extension DetailArena {
    mutating func beginMarking() -> Bool {
        endMarking()
        marks = ChangeMarks(limit: 1 << 32 / Self.group)
        return marks != nil
    }

    mutating func endMarking() {
        marks?.release()
        marks = nil
    }

    /// A segment's words; from now on what changes in them is marked.
    func copy(segment i: Int, _ body: (UnsafeRawBufferPointer) -> Void) {
        let first = i * Self.segmentWords / Self.group
        marks?.clear(first..<(first + Self.segmentWords / Self.group))
        body(UnsafeRawBufferPointer(UnsafeBufferPointer(start: segments[i], count: Self.segmentWords)))
    }

    /// The groups of words that changed since they were copied, as ``ChangeMarks/take(from:upTo:most:_:)`` gives them.
    func takeChanges(from place: inout Int, most: Int, _ body: (Int, UnsafeRawBufferPointer) -> Void) -> Bool {
        guard let marks else { return false }
        let limit = segmentCount * Self.segmentWords / Self.group
        return marks.take(from: &place, upTo: limit, most: most) { part in
            if let group = group(part) { body(part, UnsafeRawBufferPointer(group)) }
        }
    }

    /// A group of words by its number; `nil` if there is none.
    func group(_ part: Int) -> UnsafeMutableRawBufferPointer? {
        let word = part * Self.group
        guard word / Self.segmentWords < segmentCount else { return nil }
        return UnsafeMutableRawBufferPointer(
            UnsafeMutableBufferPointer(
                start: segments[word / Self.segmentWords] + word % Self.segmentWords, count: Self.group))
    }

    /// Makes room for segments, whose words the caller is to read into ``memory(ofSegment:)``.
    mutating func restore(segments count: Int, used: Int, free: [UInt32]) {
        while segmentCount < count { addSegment() }
        self.used = used
        self.free = free
    }

    func memory(ofSegment i: Int) -> UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(start: segments[i], count: Self.segmentWords))
    }
}
