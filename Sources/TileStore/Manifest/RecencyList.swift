/// What both kinds of record have for their place in the order of use.
protocol RecencyListed: BitwiseCopyable {
    var before: UInt32 { get set }
    var after: UInt32 { get set }
    var recency: UInt64 { get }
    var flags: UInt16 { get set }
    static var listed: UInt16 { get }
}
extension EntryRecord: RecencyListed {}
extension BlobRecord: RecencyListed {}

/// The order of use as a list through the records: the first was used longest ago.
struct RecencyList<Record: RecencyListed> {
    private(set) var first = noSlot
    private(set) var last = noSlot

    init() {}

    /// A list whose records are linked already.
    init(first: UInt32, last: UInt32) { (self.first, self.last) = (first, last) }

    func contains(_ slot: UInt32, in table: borrowing Segments<Record>) -> Bool {
        table[slot].pointee.flags & Record.listed != 0
    }

    /// Puts a record where its recency belongs; at the end, mostly, which costs nothing.
    mutating func insert(_ slot: UInt32, in table: borrowing Segments<Record>) {
        var behind = last
        let recency = table[slot].pointee.recency
        while behind != noSlot, table[behind].pointee.recency > recency { behind = table[behind].pointee.before }
        link(slot, behind: behind, in: table)
    }

    private mutating func link(_ slot: UInt32, behind: UInt32, in table: borrowing Segments<Record>) {
        let ahead = behind == noSlot ? first : table[behind].pointee.after
        let record = table.change(slot)
        record.pointee.before = behind
        record.pointee.after = ahead
        record.pointee.flags |= Record.listed
        if behind == noSlot { first = slot } else { table.change(behind).pointee.after = slot }
        if ahead == noSlot { last = slot } else { table.change(ahead).pointee.before = slot }
    }

    mutating func remove(_ slot: UInt32, in table: borrowing Segments<Record>) {
        guard contains(slot, in: table) else { return }
        let (before, after) = (table[slot].pointee.before, table[slot].pointee.after)
        if before == noSlot { first = after } else { table.change(before).pointee.after = after }
        if after == noSlot { last = before } else { table.change(after).pointee.before = before }
        let record = table.change(slot)
        record.pointee.flags &= ~Record.listed
        record.pointee.before = noSlot
        record.pointee.after = noSlot
    }

    /// Puts many records in, in one pass over the list.
    mutating func merge(_ slots: [UInt32], in table: borrowing Segments<Record>) {
        var order = slots.map { (recency: table[$0].pointee.recency, slot: $0) }
        order.sort { $0.recency > $1.recency }
        var behind = last
        for item in order {
            while behind != noSlot, table[behind].pointee.recency > item.recency {
                behind = table[behind].pointee.before
            }
            link(item.slot, behind: behind, in: table)
            behind = item.slot
            behind = table[behind].pointee.before
        }
    }
}

// A whole table at once.
extension RecencyList {
    /// The list of all records of a table that belong in one, by their recency.
    ///
    /// Costs two passes over the table where records lie in that order already, else a sort.
    init(of table: borrowing Segments<Record>, _ belongs: (Record) -> Bool) {
        self.init()
        var (latest, earliest, count, isSorted) = (UInt64(0), UInt64.max, 0, true)
        for slot in 0..<table.count {
            let record = table[slot].pointee
            guard belongs(record) else { continue }
            if record.recency < latest { isSorted = false }
            latest = max(latest, record.recency)
            earliest = min(earliest, record.recency)
            count += 1
        }
        if isSorted {
            for slot in 0..<table.count where belongs(table[slot].pointee) { append(slot, in: table) }
        } else if latest - earliest < 1 << 37 {
            // The recency and the slot, whose 27 bits are in order already, in one word.
            var words: [UInt64] = []
            words.reserveCapacity(count)
            for slot in 0..<table.count where belongs(table[slot].pointee) {
                words.append((table[slot].pointee.recency - earliest) << 27 | UInt64(slot))
            }
            words.sortStably(byBits: 27..<(64 - (latest - earliest).leadingZeroBitCount + 27))
            for word in words { append(UInt32(truncatingIfNeeded: word & 0x07FF_FFFF), in: table) }
        } else {
            var order: [(recency: UInt64, slot: UInt32)] = []
            order.reserveCapacity(count)
            for slot in 0..<table.count where belongs(table[slot].pointee) {
                order.append((table[slot].pointee.recency, slot))
            }
            order.sort { ($0.recency, $0.slot) < ($1.recency, $1.slot) }
            for item in order { append(item.slot, in: table) }
        }
    }

    /// Puts a record behind all others.
    private mutating func append(_ slot: UInt32, in table: borrowing Segments<Record>) {
        link(slot, behind: last, in: table)
    }
}

extension [UInt64] {
    /// Sorts by a range of bits, lower digits first: each pass keeps the order of the one before.
    fileprivate mutating func sortStably(byBits bits: Range<Int>) {
        let digit = 11
        var other = [UInt64](repeating: 0, count: count)
        var starts = [Int](repeating: 0, count: 1 << digit)
        for shift in stride(from: bits.lowerBound, to: bits.upperBound, by: digit) {
            for i in starts.indices { starts[i] = 0 }
            for word in self { starts[Int(word >> UInt64(shift)) & (1 << digit - 1)] += 1 }
            var sum = 0
            for i in starts.indices { (starts[i], sum) = (sum, sum + starts[i]) }
            for word in self {
                let place = Int(word >> UInt64(shift)) & (1 << digit - 1)
                other[starts[place]] = word
                starts[place] += 1
            }
            swap(&self, &other)
        }
    }
}
