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
        guard let journal else { return false }
        if awaitedGeneration != nil || mustLoad || hasLeftSkipped { return true }
        if try files.length(of: journal) > offset { return true }
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
        if hasLeftSkipped, let skippedIn, try files.newestCheckpoint() ?? 0 > skippedIn { mustLoad = true }
        return !mustLoad
    }

    /// Whether a line was skipped in a journal before this one: what it said stands in the next checkpoint.
    private var hasLeftSkipped: Bool { skippedIn.map { $0 < generation } ?? false }

    private func readOn(_ target: Target, underLock: Bool) throws -> Bool {
        needsJudgement = false
        while true {
            if let awaited = awaitedGeneration {
                switch try follow(to: awaited, target, underLock: underLock) {
                case .followed: continue
                case .notThere: return true
                case .newerCheckpoint:
                    mustLoad = true
                    return false
                }
            }
            guard let journal else { throw StoreError(.closed, "the store is closed") }
            let size = try files.length(of: journal)
            if size <= offset {
                // Shorter than what was read: somebody put an older file in its place.
                return size == offset || offset == 0
            }
            let wanted = Int(min(size - offset, 1 << 20))
            if buffer.count < wanted { resizeBuffer(max(wanted, 1 << 16)) }
            let n = try files.read(
                journal, into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<wanted]), at: offset)
            if n == 0 { return true }
            let used = consume(UnsafeRawBufferPointer(rebasing: buffer[..<n]), target)
            offset += Int64(used)
            followedBytes += Int64(used)
            if used > 0 { continue }
            // Not one whole right line: longer than the buffer, torn, or damaged.
            if buffer[..<n].firstIndex(of: 0x0A) == nil, offset + Int64(n) < size, buffer.count < 1 << 26 {
                resizeBuffer(buffer.count * 2)
                let more = try files.read(journal, into: buffer, at: offset)
                let usedNow = consume(UnsafeRawBufferPointer(rebasing: buffer[..<more]), target)
                offset += Int64(usedNow)
                followedBytes += Int64(usedNow)
                if usedNow > 0 || more < buffer.count { if usedNow > 0 { continue } } else { continue }
            }
            guard underLock else {
                if readOnly, try passDamage(journal, size) { continue }
                needsJudgement = buffer[..<n].contains(0x0A)
                return true
            }
            try judge(journal, size)
        }
    }

    /// Applies whole lines whose checksums are right; returns how many bytes they took.
    ///
    /// Stops behind a rotate record.
    func consume(_ bytes: UnsafeRawBufferPointer, _ target: Target) -> Int {
        var from = 0
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
                    lastChecksum = LineReader.checksum(line, at: line.count - 10)
                    from = end + 1
                    lines += 1
                    switch tables.apply(body, reader) {
                    case .rotate(let next) where next == generation &+ 1:
                        awaitedGeneration = next
                        stop = true
                    // Journals are numbered without gaps: a record that leads elsewhere is not the store's.
                    case .rotate: damagedLines += 1
                    case .damaged, .end: damagedLines += 1
                    case .done, .header: break
                    }
                }
                note(tables)
            }
        }
        return from
    }

    /// Keeps what holders of the lock ask for at every turn.
    func note(_ tables: Tables) {
        // Fresh tables number only the names that the manifest still has; loading them fails if even these are too many.
        if tables.exceeded != nil { mustLoad = true }
        hasReleased = !tables.released.isEmpty
        hasDropped = tables.hasUnswept
        glance.hasBoot = tables.boot != nil
        glance.bootLines = tables.bootLines
        glance.nextSequence = tables.nextSequence
        glance.entryRoom = tables.limits.entryLimit &- tables.unpinnedEntries
        glance.byteRoom = tables.limits.capacity.map { $0 &- tables.allocatedUnpinned }
    }

    /// Decides, under the lock, about bytes that are no right line: a tail that is torn is cut, damage in the middle skipped.
    func judge(_ journal: OpenFile, _ size: Int64) throws {
        if let right = try nextRightLine(journal, size) {
            damagedLines += right.skipped
            offset = right.start
        } else {
            try files.truncate(journal, to: offset)
        }
    }

    /// Skips damage in the middle of the journal for a store that may not write, which takes no lock; `false` if what is
    /// there is the journal's end.
    ///
    /// A writer may be replacing a torn tail at this moment, and a read may then mix what was there with what comes. So two
    /// reads have to give the same.
    private func passDamage(_ journal: OpenFile, _ size: Int64) throws -> Bool {
        if let judgedTail, judgedTail == (offset, size) { return false }
        guard let first = try nextRightLine(journal, size) else {
            judgedTail = (offset, size)
            return false
        }
        guard let second = try nextRightLine(journal, size), second == first else { return false }
        damagedLines += first.skipped
        offset = first.start
        return true
    }

    /// A line with a right checksum behind bytes that are no right line.
    struct RightLine: Equatable {
        /// Where it begins.
        var start: Int64
        /// How many lines are before it.
        var skipped: Int
        /// A checksum of what was read on the way.
        var mark: UInt64
    }

    /// No journal is as long as this: it would have become a checkpoint long before.
    private static var longestJournal: Int64 { 1 << 34 }

    /// Looks for a right line further on: it means that what is here was damaged later, not torn while it was written.
    private func nextRightLine(_ journal: OpenFile, _ size: Int64) throws -> RightLine? {
        guard size - offset < Self.longestJournal else {
            throw StoreError(
                .damaged,
                "\(files.location)/\(Self.journalPath(generation)) has \(size) bytes, of which those from \(offset) on are no "
                    + "lines of a journal; cut it to that length")
        }
        var at = offset
        var (skipped, mark, partial) = (0, UInt64(0), false)
        while at < size {
            let n = try files.read(journal, into: buffer, at: at)
            if n == 0 { break }
            mark = mark &* 0x9E37_79B9_7F4A_7C15 ^ LineChecksum.xxh64(UnsafeRawBufferPointer(rebasing: buffer[..<n]))
            var from = 0
            while from < n, let end = newline(from, n) {
                let line = UnsafeRawBufferPointer(rebasing: buffer[from..<end])
                if !partial, LineReader.body(of: line) != nil {
                    return RightLine(start: at + Int64(from), skipped: max(1, skipped), mark: mark)
                }
                if !partial { skipped += 1 }
                partial = false
                from = end + 1
            }
            if from == 0 {
                // A "line" longer than the buffer: pass over it.
                at += Int64(n)
                if !partial { skipped += 1 }
                partial = true
            } else {
                at += Int64(from)
            }
        }
        return nil
    }

    enum Following { case followed, notThere, newerCheckpoint }

    /// Goes on in the next journal.
    func follow(to next: UInt64, _ target: Target, underLock: Bool) throws -> Following {
        // A journal goes after the checkpoint that replaces it has come. Without one somebody has deleted the manifest, and a
        // journal of the next number belongs to another one.
        if let journal, try files.status(of: journal).links == 0, try files.newestCheckpoint() ?? 0 <= generation {
            return .newerCheckpoint
        }
        var file = try openIfThere(Self.journalPath(next), forAppending: true)
        if file == nil {
            if let newest = try files.newestCheckpoint(), newest > generation {
                if newest > next || !underLock { return .newerCheckpoint }
            }
            // Not there: its maker died before, or it is already deleted. Only the lock tells.
            guard underLock, !readOnly else { return .notThere }
            try createJournal(next, after: offset, previous: lastChecksum)
            file = try openIfThere(Self.journalPath(next), forAppending: true)
        }
        guard let file else { return .notThere }
        if let journal { files.close(journal) }
        chainBytes += offset
        journal = file
        (generation, offset, awaitedGeneration) = (next, 0, nil)
        lastChecksum = nil
        target.apply { $0.startGeneration(next) }
        return .followed
    }

    func newline(_ from: Int, _ end: Int) -> Int? {
        guard let base = buffer.baseAddress, let found = memchr(base + from, 0x0A, end - from) else { return nil }
        return UnsafeRawPointer(found) - UnsafeRawPointer(base)
    }

    func resizeBuffer(_ size: Int) {
        buffer.deallocate()
        buffer = .allocate(byteCount: size, alignment: 8)
    }
}
