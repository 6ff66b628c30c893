/// Records of a fixed size in segments: grows without moving what is there and without ever doubling.
///
/// What is changed goes through ``change(_:)``, which marks it while the table is being copied.
struct Segments<Record: BitwiseCopyable>: ~Copyable {
    private static var shift: UInt32 { 13 }
    static var perSegment: Int { 1 << 13 }
    // A table of segment addresses for 2^27 records at most; the pages of it that are not used cost nothing.
    private let table: UnsafeMutablePointer<UnsafeMutablePointer<Record>>
    private(set) var segments = 0
    /// Slots ever given out; those below are valid to address.
    private(set) var count: UInt32 = 0
    private var marks: ChangeMarks?

    static var limit: UInt32 { (1 << 27) - 2 }

    init() { table = .allocate(capacity: Int(Self.limit >> Self.shift) + 1) }

    // Segments that lie together in a piece of large memory: as many as 8 MiB hold. The first ones are by themselves.
    private static var perPiece: Int { max(1, (8 << 20) / (perSegment * MemoryLayout<Record>.stride)) }
    private static var pieceBytes: Int { perPiece * perSegment * MemoryLayout<Record>.stride }

    deinit {
        for i in 0..<min(segments, Self.perPiece) { table[i].deallocate() }
        for i in stride(from: Self.perPiece, to: segments, by: Self.perPiece) {
            LargeMemory.free(table[i], Self.pieceBytes)
        }
        table.deallocate()
        marks?.release()
    }

    @inline(__always)
    private func address(_ slot: UInt32) -> UnsafeMutablePointer<Record> {
        table[Int(slot >> Self.shift)] + Int(slot & UInt32(Self.perSegment - 1))
    }

    /// The address of a slot: valid as long as the table lives.
    @inline(__always)
    subscript(slot: UInt32) -> UnsafePointer<Record> { UnsafePointer(address(slot)) }

    /// The address of a slot whose record is about to be changed.
    @inline(__always)
    func change(_ slot: UInt32) -> UnsafeMutablePointer<Record> {
        marks?.mark(Int(slot))
        return address(slot)
    }

    /// A slot that was never used; `nil` when there are 2^27, or no memory for more.
    mutating func append() -> UInt32? {
        guard count < Self.limit else { return nil }
        if Int(count >> Self.shift) == segments, !addSegment() { return nil }
        defer { count += 1 }
        return count
    }

    private mutating func addSegment() -> Bool {
        if segments < Self.perPiece {
            table[segments] = .allocate(capacity: Self.perSegment)
        } else if segments % Self.perPiece == 0 {
            guard let piece = LargeMemory.allocate(Self.pieceBytes) else { return false }
            table[segments] = piece.bindMemory(to: Record.self, capacity: Self.perPiece * Self.perSegment)
        } else {
            table[segments] = table[segments - 1] + Self.perSegment
        }
        segments += 1
        return true
    }

    // MARK: Copying

    /// Begins to mark what changes; `false` without memory for it.
    mutating func beginMarking() -> Bool {
        endMarking()
        marks = ChangeMarks(limit: Int(Self.limit))
        return marks != nil
    }

    mutating func endMarking() {
        marks?.release()
        marks = nil
    }

    /// A segment's records that were given out; from now on what changes in them is marked.
    func copy(segment: Int, _ body: (UnsafeBufferPointer<Record>) -> Void) {
        let first = segment * Self.perSegment
        let end = min(Int(count), first + Self.perSegment)
        marks?.clear(first..<end)
        body(UnsafeBufferPointer(start: table[segment], count: end - first))
    }

    /// The records that changed since they were copied, as ``ChangeMarks/take(from:upTo:most:_:)`` gives them.
    func takeChanges(from place: inout Int, most: Int, _ body: (UInt32, UnsafePointer<Record>) -> Void) -> Bool {
        guard let marks else { return false }
        return marks.take(from: &place, upTo: Int(count), most: most) { part in
            guard part < Int(count) else { return }
            body(UInt32(truncatingIfNeeded: part), self[UInt32(truncatingIfNeeded: part)])
        }
    }

    /// Makes room for so many records, whose values the caller is to read into ``memory(ofSegment:)``.
    ///
    /// `false` without memory.
    mutating func restore(count: UInt32) -> Bool {
        self.count = min(count, Self.limit)
        while segments * Self.perSegment < Int(self.count) { if !addSegment() { return false } }
        return true
    }

    func memory(ofSegment segment: Int) -> UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(start: table[segment], count: Self.perSegment))
    }
}
