#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

// Reading on in the journal, and judging what is no right line.
extension Ledger {
    /// Where lines are applied: in tables that nobody else sees yet, or in those that readers use.
    enum Target {
        case direct(Tables)
        case live(Striped<Tables, ReaderLocal>)

        func apply(_ body: (Tables) -> Void) {
            switch self {
            case .direct(let tables): body(tables)
            case .live(let striped): striped.write { body($0) }
            }
        }
    }

    /// Whether the journal may have grown, or was removed under a store that may not write.
    func hasNews() throws(FileError) -> Bool {
        guard journal.file != nil else { return false }
        if journal.awaited != nil || mustLoad || damage.skipped(before: generation) != nil { return true }
        if try journal.length() > offset { return true }
        // Others find that out when they take the lock.
        guard readOnly else { return false }
        return try hasLostJournal()
    }

    /// Reads on from where this process is, following rotate records.
    ///
    /// `false` means that a newer checkpoint must be loaded.
    func advance(_ target: Target, underLock: Bool) throws -> Bool {
        guard case .live = target else { return try readOn(target, underLock: underLock) }
        if mustLoad { return false }
        // Lines may turn out to be more than the tables can number.
        guard try readOn(target, underLock: underLock), !mustLoad else { return false }
        // What a line said that was skipped in a journal before this one stands in the next checkpoint.
        if let skipped = damage.skipped(before: generation), try files.newestCheckpoint() ?? 0 > skipped {
            demandLoad()
        }
        return !mustLoad
    }

    private func readOn(_ target: Target, underLock: Bool) throws -> Bool {
        damage.beginReading()
        // At the end of a journal that others are in, whoever rotates is noticed by its record. Who has just come here does not
        // know whether others are.
        var mayBeLeft = if case .direct = target { true } else { false }
        while true {
            if let awaited = journal.awaited {
                switch try follow(to: awaited, target, underLock: underLock) {
                case .followed:
                    mayBeLeft = true
                    continue
                case .notThere: return true
                case .newerCheckpoint:
                    demandLoad()
                    return false
                }
            }
            guard journal.file != nil else { throw StoreError(.closed, "the store is closed") }
            let size = try journal.length()
            if size <= offset {
                if mayBeLeft, size == offset {
                    switch try takeLostRotation(at: size) {
                    case .followed: continue
                    case .notThere: break
                    case .newerCheckpoint:
                        demandLoad()
                        return false
                    }
                }
                if size == 0, offset == 0, underLock, !readOnly {
                    try noteLoss()
                    try journal.restoreHeader()
                }
                // Shorter than what was read: somebody put an older file in its place.
                return size == offset || offset == 0
            }
            let bytes = try journal.next(of: size)
            if bytes.isEmpty { return true }
            let used = consume(bytes, target)
            noteFollowed(used)
            if used > 0 { continue }
            // Not one whole right line: torn, or damaged.
            let isWhole = bytes.contains(0x0A) || bytes.count >= Journal.longestLine
            switch try underLock ? judge(size) : readOnly ? passDamage(size) : takeLostRotation(at: size) {
            case .followed: continue
            case .notThere:
                damage.leaveToHolder(isWhole)
                return true
            case .newerCheckpoint:
                demandLoad()
                return false
            }
        }
    }

    /// Applies whole lines whose checksums are right; returns how many bytes they took.
    ///
    /// Stops behind a rotate record.
    func consume(_ bytes: UnsafeRawBufferPointer, _ target: Target) -> Int {
        var from = 0
        var checksum: UInt32?
        var stop = false
        while from < bytes.count, !stop {
            // Readers come in between: a few hundred lines at a time.
            target.apply { tables in
                var lines = 0
                while from < bytes.count, lines < 256, !stop {
                    guard let base = bytes.baseAddress, let found = memchr(base + from, 0x0A, bytes.count - from) else {
                        stop = true
                        return
                    }
                    let end = UnsafeRawPointer(found) - base
                    let line = UnsafeRawBufferPointer(rebasing: bytes[from..<end])
                    guard let body = LineReader.body(of: line) else {
                        stop = true
                        return
                    }
                    checksum = LineReader.checksum(line, at: line.count - 10)
                    from = end + 1
                    lines += 1
                    switch tables.apply(body, reader) {
                    case .rotate(let next):
                        // Journals are numbered without gaps: a record that leads elsewhere is not the store's.
                        if journal.noteRotation(to: next) { stop = true } else { damage.skip(1, in: generation) }
                    case .damaged, .end: damage.skip(1, in: generation)
                    case .done, .header: break
                    }
                }
                note(tables)
            }
        }
        journal.pass(from, checksum)
        return from
    }

    /// Keeps what holders of the lock ask for at every turn.
    func note(_ tables: Tables) {
        // Fresh tables number only the names that the manifest still has; loading them fails if even these are too many.
        if tables.exceeded != nil { demandLoad() }
        glance.note(tables)
    }

    /// Decides, under the lock, about bytes that are no right line: a tail that is torn is cut, damage in the middle skipped.
    private func judge(_ size: Int64) throws -> Following {
        guard let right = try journal.nextRightLine(of: size) else {
            let next = try takeLostRotation(at: size)
            guard next == .notThere else { return next }
            // Without its first line nothing else of it is right.
            if offset == 0 { try noteLoss() }
            try journal.truncate()
            return .followed
        }
        damage.skip(right.skipped, in: generation)
        journal.skip(to: right)
        return .followed
    }

    /// Skips damage in the middle of the journal for a store that may not write, which takes no lock; `notThere` if what is
    /// there is the journal's end.
    ///
    /// A writer may be replacing a torn tail at this moment, and a read may then mix what was there with what comes. So two
    /// reads have to give the same.
    private func passDamage(_ size: Int64) throws -> Following {
        if damage.isTail(offset, size) { return .notThere }
        guard let first = try journal.nextRightLine(of: size) else {
            let next = try takeLostRotation(at: size)
            if next == .notThere { damage.noteTail(offset, size) }
            return next
        }
        guard let second = try journal.nextRightLine(of: size), second == first else { return .notThere }
        damage.skip(first.skipped, in: generation)
        journal.skip(to: first)
        return .followed
    }

    /// Goes on in the next journal although the record that leads there is damaged or gone, if it was there; what stood before the
    /// record may be lost with it.
    ///
    /// - Parameter size: The journal's length when no right line was found behind the offset.
    private func takeLostRotation(at size: Int64) throws -> Following {
        guard try journal.isContinued() else {
            // The next one may be gone already, and this one too.
            return try journal.hasLostName() && files.newestCheckpoint() ?? 0 > generation
                ? .newerCheckpoint : .notThere
        }
        // Without the lock, a record may just have come. It comes before the lines behind it, so the second look finds it.
        guard try journal.length() == size, try journal.nextRightLine(of: size) == nil,
            journal.noteRotation(to: generation &+ 1)
        else { return .notThere }
        damage.skip(1, in: generation)
        return .followed
    }

    /// What comes behind what was read: something to go on with, nothing, or all of it in a newer checkpoint.
    private enum Following { case followed, notThere, newerCheckpoint }

    /// Goes on in the next journal.
    private func follow(to next: UInt64, _ target: Target, underLock: Bool) throws -> Following {
        // A journal goes after the checkpoint that replaces it has come. Without one somebody has deleted the manifest, and a
        // journal of the next number belongs to another one.
        if try journal.hasLostName(), try files.newestCheckpoint() ?? 0 <= generation {
            return .newerCheckpoint
        }
        var file = try openIfThere(Self.journalPath(next), forAppending: true)
        if file == nil {
            if let newest = try files.newestCheckpoint(), newest > generation {
                if newest > next || !underLock { return .newerCheckpoint }
            }
            // Not there: somebody has removed it, or a power cut has. Only the lock tells.
            guard underLock, !readOnly else { return .notThere }
            // The record that leads to it was written after it: what it said is lost.
            try noteLoss()
            try Journal.create(next, after: offset, previous: journal.lastChecksum, sync: durable, in: files)
            file = try openIfThere(Self.journalPath(next), forAppending: true)
        }
        guard let file else { return .notThere }
        chain.pass(offset)
        journal.begin(file, next)
        target.apply { $0.sets.startGeneration(next) }
        return .followed
    }
}
