/// A hash index from keys (which live in the records) to slots: open addressing in 1,024 segments, each of which grows
/// by a quarter, so that no growth moves more than a thousandth of it.
///
/// A cell holds the slot in 27 bits and five bits of the hash, so that most mismatches are seen without touching a record.
/// While the index is copied, changes are marked by groups of 16 cells.
struct SlotIndex: ~Copyable {
    static var segmentCount: Int { 1024 }
    /// Cells that are marked, and copied again, together.
    static var group: Int { 16 }
    // Groups that a segment can ever have, at least, as a power of two: 2^27 slots in 1,024 segments, with their slack.
    static var groupShift: Int { 14 }

    private struct Segment {
        var cells: UnsafeMutablePointer<UInt32>
        var capacity: UInt32
        var count: UInt32
    }
    private static var empty: UInt32 { .max }
    private let segments: UnsafeMutablePointer<Segment>
    /// Large memory for the cells of all segments as they are at first; those that grow leave it.
    private var block: (start: UnsafeMutableRawPointer, bytes: Int, used: Int)?
    private var marks: ChangeMarks?
    /// Segments that were made anew since they were copied.
    private(set) var grown: [Int] = []

    /// - Parameter expected: How many slots will be entered, if known: spares growing step by step.
    init(expecting expected: Int = 0) {
        segments = .allocate(capacity: 1024)
        let each = UInt32(min(expected, 1 << 27) / 1024)
        let capacity = each == 0 ? 0 : Self.rounded(each + each / 4 + 16)
        reserve(cells: Int(capacity) * 1024)
        for i in 0..<1024 {
            let cells = makeCells(Int(capacity))
            cells.initialize(repeating: Self.empty, count: Int(capacity))
            (segments + i).initialize(to: Segment(cells: cells, capacity: capacity, count: 0))
        }
    }

    deinit {
        for i in 0..<1024 { freeCells(segments[i].cells) }
        segments.deallocate()
        if let block { LargeMemory.free(block.start, block.bytes) }
        marks?.release()
    }

    /// Has the segments that are made next share one piece of large memory, if they have so many cells that it pays.
    mutating func reserve(cells: Int) {
        let bytes = cells * MemoryLayout<UInt32>.stride
        guard block == nil, bytes >= 4 << 20, let start = LargeMemory.allocate(bytes) else { return }
        block = (start, bytes, 0)
    }

    private mutating func makeCells(_ capacity: Int) -> UnsafeMutablePointer<UInt32> {
        let bytes = capacity * MemoryLayout<UInt32>.stride
        guard let block, block.bytes - block.used >= bytes else { return .allocate(capacity: capacity) }
        self.block?.used += bytes
        return (block.start + block.used).bindMemory(to: UInt32.self, capacity: capacity)
    }

    private func freeCells(_ cells: UnsafeMutablePointer<UInt32>) {
        if let block, UnsafeMutableRawPointer(cells) >= block.start,
            UnsafeMutableRawPointer(cells) < block.start + block.bytes
        {
            return
        }
        cells.deallocate()
    }

    /// Whole groups of cells.
    private static func rounded(_ capacity: UInt32) -> UInt32 { (capacity &+ 15) & ~15 }

    @inline(__always)
    private func mark(_ segment: Int, _ cell: UInt32) {
        marks?.mark(segment << Self.groupShift | Int(cell) / Self.group)
    }

    @inline(__always) private func segment(_ hash: UInt64) -> Int { Int(hash >> 54) }
    @inline(__always) private func home(_ hash: UInt64, _ capacity: UInt32) -> UInt32 {
        UInt32(truncatingIfNeeded: ((hash >> 22 & 0xFFFF_FFFF) &* UInt64(capacity)) >> 32)
    }
    @inline(__always) private func tag(_ hash: UInt64) -> UInt32 { UInt32(truncatingIfNeeded: hash & 31) << 27 }

    @inline(__always)
    func find(_ hash: UInt64, _ matches: (UInt32) -> Bool) -> UInt32? {
        let segment = segments[segment(hash)]
        guard segment.count > 0 else { return nil }
        let tag = tag(hash)
        var at = home(hash, segment.capacity)
        while true {
            let cell = segment.cells[Int(at)]
            if cell == Self.empty { return nil }
            if cell & 0xF800_0000 == tag, matches(cell & 0x07FF_FFFF) { return cell & 0x07FF_FFFF }
            at &+= 1
            if at == segment.capacity { at = 0 }
        }
    }

    /// What is in the cell where a key would be first looked for: nothing to go by, but it is near then.
    @inline(__always)
    func cell(_ hash: UInt64) -> UInt32 {
        let segment = segments[segment(hash)]
        return segment.capacity == 0 ? Self.empty : segment.cells[Int(home(hash, segment.capacity))]
    }

    /// The slot that a cell holds; of an empty one, a slot that no table has.
    @inline(__always) static func slot(_ cell: UInt32) -> UInt32 { cell & 0x07FF_FFFF }

    /// Enters a slot whose key is not there yet.
    ///
    /// `hashOf` gives the hash of slots that are, when the segment grows.
    mutating func insert(_ slot: UInt32, _ hash: UInt64, hashOf: (UInt32) -> UInt64) {
        let i = segment(hash)
        if segments[i].count &+ 1 > segments[i].capacity &- segments[i].capacity / 8 { grow(i, hashOf) }
        mark(i, place(slot | tag(hash), hash, segments[i]))
        segments[i].count &+= 1
    }

    @discardableResult
    private func place(_ cell: UInt32, _ hash: UInt64, _ segment: Segment) -> UInt32 {
        var at = home(hash, segment.capacity)
        while segment.cells[Int(at)] != Self.empty {
            at &+= 1
            if at == segment.capacity { at = 0 }
        }
        segment.cells[Int(at)] = cell
        return at
    }

    private mutating func grow(_ i: Int, _ hashOf: (UInt32) -> UInt64) {
        let old = segments[i]
        let capacity = Self.rounded(old.capacity + old.capacity / 4 + 8)
        let cells = makeCells(Int(capacity))
        cells.initialize(repeating: Self.empty, count: Int(capacity))
        segments[i] = Segment(cells: cells, capacity: capacity, count: old.count)
        for at in 0..<Int(old.capacity) where old.cells[at] != Self.empty {
            place(old.cells[at], hashOf(old.cells[at] & 0x07FF_FFFF), segments[i])
        }
        freeCells(old.cells)
        if marks != nil, grown.last != i { grown.append(i) }
    }

    /// Takes a slot out.
    ///
    /// Those behind it move up, so that no tombstones are needed.
    mutating func remove(_ slot: UInt32, _ hash: UInt64, hashOf: (UInt32) -> UInt64) {
        let i = segment(hash)
        let (cells, capacity) = (segments[i].cells, segments[i].capacity)
        let cell = slot | tag(hash)
        guard segments[i].count > 0 else { return }
        var hole = home(hash, capacity)
        while cells[Int(hole)] != cell {
            if cells[Int(hole)] == Self.empty { return }
            hole &+= 1
            if hole == capacity { hole = 0 }
        }
        var at = hole
        while true {
            at &+= 1
            if at == capacity { at = 0 }
            let next = cells[Int(at)]
            if next == Self.empty { break }
            // It may move into the hole unless its home lies cyclically after the hole.
            let home = home(hashOf(next & 0x07FF_FFFF), capacity)
            let between = hole <= at ? (home > hole && home <= at) : (home > hole || home <= at)
            if !between {
                cells[Int(hole)] = next
                mark(i, hole)
                hole = at
            }
        }
        cells[Int(hole)] = Self.empty
        mark(i, hole)
        segments[i].count &-= 1
    }
}

extension SlotIndex {
    /// How many cells are looked at to find a slot that is there.
    func probes(_ slot: UInt32, _ hash: UInt64) -> Int {
        let segment = segments[segment(hash)]
        var at = home(hash, segment.capacity)
        var count = 1
        while segment.cells[Int(at)] != slot | tag(hash), count < segment.capacity {
            at = at &+ 1 == segment.capacity ? 0 : at &+ 1
            count += 1
        }
        return count
    }
}

// Copying an index while it is in use.
extension SlotIndex {
    mutating func beginMarking() -> Bool {
        endMarking()
        marks = ChangeMarks(limit: Self.segmentCount << Self.groupShift)
        return marks != nil
    }

    mutating func endMarking() {
        marks?.release()
        marks = nil
        grown = []
    }

    func count(ofSegment i: Int) -> UInt32 { segments[i].count }

    /// The first segment from a number on that has cells; the number behind the last one if there is none.
    func segmentWithCells(from i: Int) -> Int {
        var i = i
        while i < Self.segmentCount, segments[i].capacity == 0 { i += 1 }
        return i
    }

    /// A segment's cells; from now on what changes in them is marked.
    func copy(segment i: Int, _ body: (UnsafeRawBufferPointer) -> Void) {
        let first = i << Self.groupShift
        marks?.clear(first..<(first + Int(segments[i].capacity) / Self.group))
        body(UnsafeRawBufferPointer(UnsafeBufferPointer(start: segments[i].cells, count: Int(segments[i].capacity))))
    }

    /// The segments that were made anew, which have to be copied again as a whole.
    mutating func takeGrown() -> [Int] {
        defer { grown = [] }
        return grown
    }

    /// The groups of cells that changed since they were copied, as ``ChangeMarks/take(from:upTo:most:_:)`` gives them.
    func takeChanges(from place: inout Int, most: Int, _ body: (Int, UnsafeRawBufferPointer) -> Void) -> Bool {
        guard let marks else { return false }
        var left = most
        while true {
            let segment = (place << 6) >> Self.groupShift
            guard segment < Self.segmentCount else { return false }
            // Only as far as the segment has cells.
            let end = segment << Self.groupShift + Int(segments[segment].capacity) / Self.group
            let more = marks.take(from: &place, upTo: end, most: left) { part in
                left -= 1
                if let group = group(part) { body(part, UnsafeRawBufferPointer(group)) }
            }
            if more { return true }
            place = ((segment + 1) << Self.groupShift) >> 6
        }
    }

    /// A group of cells by its number; `nil` if the segment is not that long.
    func group(_ part: Int) -> UnsafeMutableRawBufferPointer? {
        let segment = segments[part >> Self.groupShift]
        let at = (part & (1 << Self.groupShift - 1)) * Self.group
        guard at + Self.group <= Int(segment.capacity) else { return nil }
        return UnsafeMutableRawBufferPointer(
            UnsafeMutableBufferPointer(start: segment.cells + at, count: Self.group))
    }

    /// Gives a segment so many cells, whose values the caller is to read into the memory that is returned.
    ///
    /// `nil` if it cannot have that many.
    mutating func restore(segment i: Int, cells capacity: Int, count: UInt32) -> UnsafeMutableRawBufferPointer? {
        guard capacity % Self.group == 0, capacity <= Self.group << Self.groupShift,
            capacity == 0 ? count == 0 : Int(count) < capacity
        else { return nil }
        freeCells(segments[i].cells)
        segments[i] = Segment(
            cells: makeCells(capacity), capacity: UInt32(capacity), count: count)
        return UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(start: segments[i].cells, count: capacity))
    }
}
