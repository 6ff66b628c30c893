/// Records of a fixed size in segments: grows without moving what is there and without ever doubling.
struct Segments<Record: BitwiseCopyable>: ~Copyable {
    private static var shift: UInt32 { 13 }
    private static var perSegment: Int { 1 << 13 }
    // A table of segment addresses for 2^27 records at most; the pages of it that are not used cost nothing.
    private let table: UnsafeMutablePointer<UnsafeMutablePointer<Record>>
    private var segments = 0
    /// Slots ever given out; those below are valid to address.
    private(set) var count: UInt32 = 0

    static var limit: UInt32 { (1 << 27) - 2 }

    init() { table = .allocate(capacity: Int(Self.limit >> Self.shift) + 1) }

    deinit {
        for i in 0..<segments { table[i].deallocate() }
        table.deallocate()
    }

    /// The address of a slot: valid as long as the table lives.
    @inline(__always)
    subscript(slot: UInt32) -> UnsafeMutablePointer<Record> {
        table[Int(slot >> Self.shift)] + Int(slot & UInt32(Self.perSegment - 1))
    }

    /// A slot that was never used; `nil` when there are 2^27.
    mutating func append() -> UInt32? {
        guard count < Self.limit else { return nil }
        if Int(count >> Self.shift) == segments {
            table[segments] = .allocate(capacity: Self.perSegment)
            segments += 1
        }
        defer { count += 1 }
        return count
    }
}
