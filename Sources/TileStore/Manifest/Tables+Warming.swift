// Looking at what many lines will need before the first of them is carried out.
extension Tables {
    /// How many lines are looked ahead: as many as a processor can wait for at once, and a few more.
    static var linesAhead: Int { 24 }

    /// Reads the places in the tables that some lines will need, so that the processor waits for all of them at once.
    ///
    /// In a large cache each line needs four places that are nowhere near its neighbours': a cell in each index, the blob, and
    /// the entry that had the blob last. Carried out one by one, each of them is waited for.
    @inline(__always)
    func warm(_ lines: ContiguousArray<PutLine>, _ range: Range<Int>) {
        var seen: UInt32 = 0
        for i in range {
            // Where the name of a resource is cannot be told before it is entered.
            if let tile = lines[i].key.tile, let key = packed(lines[i].key, tile) { seen ^= entryIndex.cell(hash(key)) }
            if let digest = lines[i].blob { seen ^= blobIndex.cell(Self.hash(digest)) }
        }
        withUnsafeTemporaryAllocation(of: UInt32.self, capacity: range.count) { slots in
            var count = 0
            for i in range {
                guard let digest = lines[i].blob, let slot = find(digest) else { continue }
                slots[count] = slot
                count += 1
            }
            for slot in slots[..<count] {
                let first = blobs[slot].pointee.firstEntry
                if first != noSlot { seen ^= entries[first].pointee.siblingBefore }
            }
        }
        // What nobody needs is not read.
        warmth ^= seen
    }
}
