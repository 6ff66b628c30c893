/// What responses share: sets of fields, each with a number that the journal defines, in a slot that entries name.
struct SharedSets {
    struct SharedSet {
        fileprivate(set) var number: UInt32
        fileprivate(set) var fields: ResponseFields
        fileprivate(set) var uses: Int
        fileprivate(set) var definedIn: UInt64
    }

    private var sets: [SharedSet?] = []
    private var slots: [UInt32: UInt32] = [:]
    private var numbers: [ResponseFields: UInt32] = [:]
    /// Above all numbers that lines have given out.
    private(set) var nextNumber: UInt32 = 1
    private var free: [UInt32] = []
    /// The number that was given out a second time last.
    private var reused: UInt32 = 0
    /// The number that was last given to a set whose own one was defined anew.
    private var moved: UInt32 = 0
    /// While the tables are copied: the sets that changed since.
    private var marks = false
    private var changed: Set<UInt32> = []
    // The set that was asked for last: mostly the next line has the same.
    private var last: (number: UInt64, slot: UInt32) = (.max, 0)
    /// The journal's generation: a set may be referred to in it once it has been defined in it.
    private(set) var generation: UInt64 = 0

    // MARK: Asking

    /// How many slots there are.
    var count: UInt32 { UInt32(sets.count) }

    @inline(__always)
    subscript(_ slot: UInt32) -> SharedSet? { sets[Int(slot)] }

    /// The slot of a set by its number; `nil` if it was never defined.
    @inline(__always)
    mutating func slot(_ number: UInt32) -> UInt32? {
        if last.number == UInt64(number) { return last.slot }
        guard let slot = slots[number] else { return nil }
        last = (UInt64(number), slot)
        return slot
    }

    /// The number of fields, whether this journal defines it or not.
    func number(of fields: ResponseFields) -> UInt32? { numbers[fields] }

    /// The number under which equal fields were defined in this generation's journal.
    func definedNumber(of fields: ResponseFields) -> UInt32? {
        guard let number = numbers[fields], let slot = slots[number], let set = sets[Int(slot)],
            set.definedIn == generation + 1
        else { return nil }
        return number
    }

    /// A number for fields that have none; `nil` if all are in use.
    ///
    /// - Parameters:
    ///   - last: The highest number that was given out and is not in the tables yet.
    ///   - pending: All such numbers.
    mutating func freeNumber(after last: UInt32, _ pending: () -> Set<UInt32>) -> UInt32? {
        let next = max(nextNumber, last + 1)
        if next < TableBounds.sets { return next }
        // All numbers have been given out once, which takes years. Those of sets that were forgotten when a journal began are
        // free: nothing from there on refers to them.
        let taken = pending()
        for _ in 0...(slots.count + taken.count) {
            reused = reused + 1 < TableBounds.sets ? reused + 1 : 1
            if slots[reused] == nil, !taken.contains(reused) { return reused }
        }
        return nil
    }

    // MARK: Lines

    /// Begins with what a checkpoint's first line says.
    mutating func begin(_ generation: UInt64, nextNumber: UInt32) {
        (self.generation, self.nextNumber) = (generation, nextNumber)
    }

    /// Counts an entry that has a set, or no longer has it.
    @inline(__always)
    mutating func count(_ slot: UInt32, by change: Int) {
        sets[Int(slot)]?.uses += change
        mark(slot)
    }

    @inline(__always)
    private mutating func mark(_ slot: UInt32) { if marks { changed.insert(slot) } }

    mutating func define(_ number: UInt32, _ fields: ResponseFields, current: Bool) {
        let definedIn = current ? generation + 1 : 0
        last = (.max, 0)
        if let slot = slots[number] {
            // Only where a definition was damaged, and read by some before that, can a number in use get other fields.
            if let old = sets[Int(slot)], old.uses > 0, old.fields != fields, move(slot) {
                return define(number, fields, current: current)
            }
            let old = sets[Int(slot)]
            // The number no longer stands for the former fields.
            if let old, old.fields != fields, numbers[old.fields] == number { numbers[old.fields] = nil }
            let latest = old?.fields == fields ? max(old?.definedIn ?? 0, definedIn) : definedIn
            sets[Int(slot)] = SharedSet(number: number, fields: fields, uses: old?.uses ?? 0, definedIn: latest)
            mark(slot)
        } else {
            let slot = free.popLast() ?? UInt32(sets.count)
            if Int(slot) == sets.count { sets.append(nil) }
            sets[Int(slot)] = SharedSet(number: number, fields: fields, uses: 0, definedIn: definedIn)
            slots[number] = slot
            mark(slot)
        }
        numbers[fields] = number
        // `TableBounds.sets` is no number: it says that all have been given out.
        nextNumber = max(nextNumber, min(number, TableBounds.sets - 1) + 1)
    }

    /// Gives a set another number, so that the entries that have it keep their fields; `false` if there is none left.
    ///
    /// Far above the numbers that anybody gives out: lines of others may refer to those.
    private mutating func move(_ slot: UInt32) -> Bool {
        guard let old = sets[Int(slot)], nextNumber < TableBounds.sets - (1 << 21) else { return false }
        var other = max(nextNumber + (1 << 20), moved) + 1
        // Those of an image that was taken over.
        while slots[other] != nil, other < TableBounds.sets { other += 1 }
        guard other < TableBounds.sets else { return false }
        moved = other
        slots[old.number] = nil
        slots[other] = slot
        if numbers[old.fields] == old.number { numbers[old.fields] = other }
        sets[Int(slot)] = SharedSet(number: other, fields: old.fields, uses: old.uses, definedIn: 0)
        mark(slot)
        return true
    }

    /// The journal goes on in a new file: sets must be defined again before they are referred to, unused ones are forgotten.
    mutating func startGeneration(_ generation: UInt64) {
        self.generation = generation
        last = (.max, 0)
        for slot in sets.indices {
            guard let set = sets[slot], set.uses == 0 else { continue }
            slots[set.number] = nil
            if numbers[set.fields] == set.number { numbers[set.fields] = nil }
            sets[slot] = nil
            mark(UInt32(slot))
            free.append(UInt32(slot))
        }
    }

    // MARK: Images

    mutating func beginMarking() { (marks, changed) = (true, []) }

    mutating func endMarking() { (marks, changed) = (false, []) }

    /// The sets that have changed since this was last asked.
    mutating func takeChanges() -> Set<UInt32> {
        defer { changed.removeAll(keepingCapacity: true) }
        return changed
    }

    /// A set by its slot, for an image; an empty line where there is none.
    func write(_ slot: UInt32, to out: inout LineBuffer) {
        guard slot < count else { return }
        let set = self[slot]
        out.word(UInt64(slot))
        out.word(UInt64(set?.number ?? 0))
        out.word(UInt64(bitPattern: Int64(set?.uses ?? 0)))
        out.word(set?.definedIn ?? 0)
        var line = LineBuffer(capacity: 512)
        if let set { line.set(set.number, set.fields) }
        out.word(UInt64(line.count))
        out.raw(line.bytes)
    }

    /// As many slots as an image has; the sets themselves follow.
    mutating func reserve(slots count: Int) { sets = Array(repeating: nil, count: count) }

    /// Enters what ``write(_:to:)`` wrote; `false` if it is something else.
    mutating func restore(_ block: UnsafeRawBufferPointer) -> Bool {
        let reader = LineReader()
        var scan = ImageScan(block)
        while !scan.isAtEnd {
            guard let slot = scan.word(), slot < UInt64(sets.count), let number = scan.word(), number <= UInt32.max,
                let uses = scan.word(), let definedIn = scan.word(), let length = scan.count(of: 1),
                let line = scan.take(length)
            else { return false }
            guard length > 0 else {
                sets[Int(slot)] = nil
                continue
            }
            guard let body = LineReader.body(of: UnsafeRawBufferPointer(rebasing: line.dropLast())),
                case .set(UInt32(number), let fields) = reader.readAny(body)
            else { return false }
            sets[Int(slot)] = SharedSet(
                number: UInt32(number), fields: fields, uses: Int(Int64(bitPattern: uses)), definedIn: definedIn)
        }
        return true
    }

    /// Enters what is known of restored sets by their numbers and fields.
    mutating func finishRestoring() {
        for (slot, set) in sets.enumerated() {
            guard let set else {
                free.append(UInt32(slot))
                continue
            }
            slots[set.number] = UInt32(slot)
            // Of equal ones the latest is referred to.
            numbers[set.fields] = max(numbers[set.fields] ?? 0, set.number)
        }
    }
}
