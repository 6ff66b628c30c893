/// Sorts any number of fixed-size records in bounded memory: sorted runs in a temporary file, then one merge.
///
/// What fits into the memory allowed never touches a file.
package final class RecordSorter<Record: BitwiseCopyable & Comparable> {
    private let recordsInMemory: Int
    private var records: [Record] = []
    private var file: ScratchFile?
    private var runs: [Range<UInt64>] = []

    /// How many records were added.
    package private(set) var count = 0

    package init(memory: Int = 2 << 20) {
        recordsInMemory = max(2, memory / MemoryLayout<Record>.stride)
    }

    package func add(_ record: Record) throws {
        if records.count >= recordsInMemory { try spill() }
        // Never doubled beyond what may be used.
        if records.count == records.capacity, records.count * 2 > recordsInMemory {
            records.reserveCapacity(recordsInMemory)
        }
        records.append(record)
        count += 1
    }

    private func spill() throws {
        records.sort()
        let file = try self.file ?? ScratchFile.unnamed()
        self.file = file
        let start = file.size
        try records.withUnsafeBytes { try file.append($0) }
        runs.append(start..<file.size)
        records.removeAll(keepingCapacity: true)
    }

    /// Visits all records in order, once; none can be added afterwards.
    package func forEach(_ body: (Record) throws -> Void) throws {
        guard let file else {
            records.sort()
            for record in records { try body(record) }
            return
        }
        if !records.isEmpty { try spill() }
        records = []
        try file.flush()
        // With many runs the buffers get smaller, so that all of them together stay as they are.
        let each = max(16, recordsInMemory / runs.count)
        var heap: [RunReader<Record>] = []
        for run in runs {
            let reader = RunReader<Record>(file, run, records: each)
            if try reader.advance() { heap.append(reader) }
        }
        for i in stride(from: heap.count / 2 - 1, through: 0, by: -1) { Self.sink(&heap, i) }
        while let first = heap.first {
            try body(first.current)
            if try !first.advance() {
                heap[0] = heap[heap.count - 1]
                heap.removeLast()
            }
            Self.sink(&heap, 0)
        }
    }

    private static func sink(_ heap: inout [RunReader<Record>], _ start: Int) {
        var at = start
        while true {
            var least = at
            for child in [2 * at + 1, 2 * at + 2] where child < heap.count && heap[child].current < heap[least].current
            {
                least = child
            }
            if least == at { return }
            heap.swapAt(at, least)
            at = least
        }
    }
}

/// One sorted run in a temporary file, read through a buffer of its own.
private final class RunReader<Record: BitwiseCopyable> {
    private let file: ScratchFile
    private var left: Range<UInt64>
    private let capacity: Int
    private var buffer: [Record] = []
    private var at = 0

    init(_ file: ScratchFile, _ run: Range<UInt64>, records: Int) {
        self.file = file
        left = run
        capacity = records
    }

    var current: Record { buffer[at] }

    /// Goes to the next record; `false` at the end.
    func advance() throws -> Bool {
        at += 1
        if at < buffer.count { return true }
        let stride = MemoryLayout<Record>.stride
        let wanted = min(capacity, left.count / stride)
        guard wanted > 0 else { return false }
        buffer = try [Record](unsafeUninitializedCapacity: wanted) { records, count in
            let bytes = UnsafeMutableRawBufferPointer(records)
            let whole = UnsafeMutableRawBufferPointer(rebasing: bytes[..<(wanted * stride)])
            guard try file.read(into: whole, at: left.lowerBound) == whole.count else {
                throw ArchiveError(.io, "a temporary file was cut short by somebody else")
            }
            count = wanted
        }
        left = (left.lowerBound + UInt64(wanted * stride))..<left.upperBound
        at = 0
        return true
    }
}
