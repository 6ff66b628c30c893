#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The journal as this process sees it: which file, read up to where, and the cache's locks.
///
/// Not thread-safe: ``TileStore`` keeps it behind its commit lock. "Under the lock" means the cache's `flock`. As in
/// ``Tables``, the fields that every put touches are not checked for overlapping access at run time.
final class Ledger {
    let environment: StoreEnvironment
    let files: any FileSystem
    let durable: Bool
    var readOnly = false
    var isClosed = false

    @exclusivity(unchecked) private(set) var generation: UInt64 = 0
    @exclusivity(unchecked) private(set) var offset: Int64 = 0
    @exclusivity(unchecked) private var journal: OpenFile?
    @exclusivity(unchecked) private var lastChecksum: UInt32?
    /// A rotate record was read whose journal is not there yet.
    @exclusivity(unchecked) private var awaitedGeneration: UInt64?
    /// The newest checkpoint known, its size, and the bytes of the journals between it and the current one.
    var checkpointGeneration: UInt64 = 0
    var checkpointBytes: Int64 = 0
    var chainBytes: Int64 = 0
    /// Lines that could not be read, in the files that were loaded.
    @exclusivity(unchecked) private(set) var damagedLines = 0
    /// Whether an unlocked reader met a line that only a holder of the lock may judge.
    @exclusivity(unchecked) private(set) var needsJudgement = false
    /// Counts up whenever the tables are loaded anew.
    private(set) var loads = 0
    /// Whether the tables no longer go with the journal: set before that comes about, cleared by a load that succeeded, so
    /// that no failure in between is forgotten.
    @exclusivity(unchecked) private var mustLoad = false
    /// What the tables said after the last lines were carried out: spares a holder of the lock looking again.
    @exclusivity(unchecked) private(set) var glance = Glance()
    /// Whether lines that were carried out left blobs to unlink, or entries of dropped blobs to sweep.
    @exclusivity(unchecked) var hasReleased = false
    @exclusivity(unchecked) var hasDropped = false
    /// Records that a holder of the lock is putting together: kept for their memory.
    let pending = PendingRecords()
    /// The shared fields that were asked for last, and their number: mostly the next put has the same.
    @exclusivity(unchecked) var lastSet: (fields: ResponseFields, number: UInt32, generation: UInt64, loads: Int)?
    /// The names that were looked up last.
    @exclusivity(unchecked) var names = LastNames()
    /// Whether the reserve was given up and is still to be made again.
    var reserveGone = false

    @exclusivity(unchecked) private var lock: FolderLock
    @exclusivity(unchecked) private var buffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: 1 << 16, alignment: 8)
    private let reader = LineReader()
    private let hashSeed: UInt64

    init(environment: StoreEnvironment, durable: Bool) {
        self.environment = environment
        files = environment.files
        self.durable = durable
        lock = FolderLock(environment)
        hashSeed = environment.random()
    }

    deinit {
        close()
        buffer.deallocate()
    }

    func close() {
        if let journal { files.close(journal) }
        journal = nil
        lock.close()
    }

    static func journalPath(_ n: UInt64) -> String { "manifest/journal-\(n).jsonl" }
    static func checkpointPath(_ n: UInt64) -> String { "manifest/checkpoint-\(n).json" }

    /// The generation in a manifest file's name.
    static func generation(of name: String, _ prefix: String, _ suffix: String) -> UInt64? {
        guard name.hasPrefix(prefix), name.hasSuffix(suffix) else { return nil }
        let digits = name.dropFirst(prefix.count).dropLast(suffix.count)
        guard let n = UInt64(digits), String(n) == digits else { return nil }
        return n
    }

    // MARK: The lock

    func openLock() throws(FileError) { try lock.open(readOnly: readOnly) }

    /// Takes the cache's lock, waiting a bounded time.
    ///
    /// If the folder was replaced, all will be loaded anew.
    /// - Parameter appendsOnly: That the holder means to append records and nothing else: then the look whether the folder
    ///   is still the same may be 10 ms old. Who touches blobs after all asks ``confirmFolder()``.
    func acquire(wait seconds: Double, folderIsNew: Bool = false, appendsOnly: Bool = false) throws {
        while true {
            try openLock()
            try lock.take(wait: seconds, in: files.location)
            if appendsOnly, lock.wasConfirmedLately { return }
            if try confirmFolder() { return }
            lock.close()
            guard try folderIsNew || files.status(at: "tilecache.json") != nil else {
                throw StoreError(
                    .noSuchCache,
                    "\(files.location) was removed while it was open; open the cache anew to make it again")
            }
        }
    }

    /// Whether what is locked is the folder that paths lead to.
    ///
    /// Only under the lock. If not, the next holder will load all anew.
    func confirmFolder() throws(FileError) -> Bool {
        if try lock.confirm() { return true }
        mustLoad = true
        return false
    }

    func release() { lock.release() }

    // MARK: Loading

    /// Reads the newest checkpoint and the journals after it into new tables.
    ///
    /// - Parameter underLock: Whether the caller holds the lock. Without it nothing is created; `nil` means that only a
    ///   holder of the lock can tell what is the case.
    func load(underLock: Bool) throws -> Tables? {
        for _ in 0..<8 {
            guard let newest = try files.newestCheckpoint() else {
                // An empty listing proves nothing without the lock.
                guard underLock else { return nil }
                try createFirst()
                continue
            }
            guard let checkpoint = try openIfThere(Self.checkpointPath(newest)) else { continue }
            defer { files.close(checkpoint) }
            var next = try openIfThere(Self.journalPath(newest), forAppending: true)
            if next == nil, underLock {
                try createJournal(newest, after: 0, previous: nil)
                next = try openIfThere(Self.journalPath(newest), forAppending: true)
            }
            guard let next else { continue }
            mustLoad = true
            if let journal { files.close(journal) }
            journal = next
            (generation, offset, lastChecksum, awaitedGeneration) = (newest, 0, nil, nil)
            (damagedLines, needsJudgement, chainBytes) = (0, false, 0)
            checkpointGeneration = newest
            checkpointBytes = try files.status(of: checkpoint).size
            let tables = try readCheckpoint(checkpoint, newest)
            guard try advance(.direct(tables), underLock: underLock) else { continue }
            while tables.sweep(1 << 20) {}
            tables.finishLoading()
            loads += 1
            mustLoad = false
            note(tables)
            // What follows is short, mostly.
            if buffer.count > 1 << 16 { resizeBuffer(1 << 16) }
            return tables
        }
        if underLock {
            throw StoreError(
                .damaged, "the manifest in \(files.location) keeps changing under the lock; see tilegc verify")
        }
        return nil
    }

    private func openIfThere(_ path: String, forAppending: Bool = false) throws(FileError) -> OpenFile? {
        do throws(FileError) {
            return try files.open(path, forAppending && !readOnly ? .append : .read)
        } catch {
            if error.number == Errno.noEntry { return nil }
            throw error
        }
    }

    /// Makes the first checkpoint and journal of a new cache, or the checkpoint that an unfinished creation lacks.
    func createFirst() throws {
        let journals = try files.list("manifest")?.compactMap { Self.generation(of: $0, "journal-", ".jsonl") } ?? []
        if let oldest = journals.min(), oldest > 0 {
            throw StoreError(
                .damaged,
                "\(files.location)/manifest has journal-\(oldest).jsonl but no checkpoint: restore checkpoint-\(oldest).json "
                    + "from a backup, or remove the folder and let the cache fill again")
        }
        if journals.isEmpty { try createJournal(0, after: 0, previous: nil, sync: true) }
        var lines = LineBuffer()
        lines.checkpointHeader(0, sequence: 1, nextSet: 1, entries: 0, blobs: 0)
        lines.checkpointEnd(0)
        let temporary = "staging/checkpoint-\(String(environment.random(), radix: 16))"
        try files.createFile(temporary, lines.bytes, sync: true)
        try files.rename(temporary, to: Self.checkpointPath(0))
        try files.syncFolder("manifest")
    }

    /// Makes a journal with its header, in place of any leftover of that name.
    func createJournal(_ n: UInt64, after length: Int64, previous: UInt32?, sync: Bool = false) throws {
        let path = Self.journalPath(n)
        try files.unlink(path)
        let file = try files.open(path, .createNew)
        defer { files.close(file) }
        var lines = LineBuffer()
        lines.journalHeader(n, after: length, previous: previous)
        do throws(FileError) {
            try files.writeAll(file, lines.bytes)
            if durable || sync {
                try files.sync(file)
                try files.syncFolder("manifest")
            }
        } catch {
            try files.unlink(path)
            throw error
        }
    }

    private func readCheckpoint(_ file: OpenFile, _ number: UInt64) throws -> Tables {
        var tables: Tables?
        var (records, ended) = (0, false)
        func start(_ header: CheckpointHeader) -> Tables {
            let made = Tables(
                blockSize: files.blockSize, hashSeed: hashSeed, expectedEntries: header.entries,
                expectedBlobs: header.blobs)
            made.beginLoading()
            made.generation = number
            made.nextSequence = max(1, header.sequence)
            made.nextSet = max(1, header.nextSet)
            return made
        }
        let helpers = CheckpointReader.helpers(for: checkpointBytes)
        try CheckpointReader(files, file, helpers: helpers, chunkSize: 1 << 19).forEachChunk { chunk in
            damagedLines += chunk.damage
            let header = CheckpointHeader(chunk.header)
            // Without a header the lines still say everything but the number of them.
            if header == nil, chunk.header.baseAddress != nil { damagedLines += 1 }
            let made = tables ?? start(header ?? CheckpointHeader())
            tables = made
            var next = 0
            func carryOutPuts(upTo end: Int) {
                while next < end {
                    if !made.apply(chunk.puts[next]) { damagedLines += 1 }
                    next += 1
                }
            }
            for other in chunk.others {
                carryOutPuts(upTo: other.before)
                switch made.apply(other.body, reader, inCheckpoint: true) {
                case .end(let count):
                    ended = true
                    if count != records + next { damagedLines += 1 }
                case .damaged: damagedLines += 1
                case .done, .rotate, .header: break
                }
                records += 1
            }
            carryOutPuts(upTo: chunk.puts.count)
            records += chunk.puts.count
        }
        // A checkpoint without its last line was cut short: what it has is used, and verify tells.
        if !ended { damagedLines += 1 }
        return tables ?? start(CheckpointHeader())
    }

    private func newline(_ from: Int, _ end: Int) -> Int? {
        guard let base = buffer.baseAddress, let found = memchr(base + from, 0x0A, end - from) else { return nil }
        return UnsafeRawPointer(found) - UnsafeRawPointer(base)
    }

    private func resizeBuffer(_ size: Int) {
        buffer.deallocate()
        buffer = .allocate(byteCount: size, alignment: 8)
    }

    // MARK: Catching up

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

    /// Whether the journal may have grown: one `fstat`.
    func hasNews() throws(FileError) -> Bool {
        guard let journal else { return false }
        if awaitedGeneration != nil || mustLoad { return true }
        return try files.length(of: journal) > offset
    }

    /// Reads on from where this process is, following rotate records.
    ///
    /// `false` means that a newer checkpoint must be loaded.
    func advance(_ target: Target, underLock: Bool) throws -> Bool {
        if mustLoad, case .live = target { return false }
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
            if used > 0 { continue }
            // Not one whole right line: longer than the buffer, torn, or damaged.
            if buffer[..<n].firstIndex(of: 0x0A) == nil, offset + Int64(n) < size, buffer.count < 1 << 26 {
                resizeBuffer(buffer.count * 2)
                let more = try files.read(journal, into: buffer, at: offset)
                let usedNow = consume(UnsafeRawBufferPointer(rebasing: buffer[..<more]), target)
                offset += Int64(usedNow)
                if usedNow > 0 || more < buffer.count { if usedNow > 0 { continue } } else { continue }
            }
            guard underLock else {
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
                    case .rotate(let next):
                        awaitedGeneration = next
                        stop = true
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
    private func note(_ tables: Tables) {
        hasReleased = !tables.released.isEmpty
        hasDropped = tables.hasUnswept
        glance.hasBoot = tables.boot != nil
        glance.entryRoom = tables.limits.entryLimit &- tables.unpinnedEntries
        glance.byteRoom = tables.limits.capacity.map { $0 &- tables.allocatedUnpinned }
    }

    /// Decides, under the lock, about bytes that are no right line: a tail that is torn is cut, damage in the middle skipped.
    private func judge(_ journal: OpenFile, _ size: Int64) throws {
        // Any right line further on means that what is here was damaged later, not torn while it was written.
        var at = offset
        var firstRight: Int64?
        var skipped = 0
        var partial = false
        scan: while at < size {
            let n = try files.read(journal, into: buffer, at: at)
            if n == 0 { break }
            var from = 0
            while from < n, let end = newline(from, n) {
                let line = UnsafeRawBufferPointer(rebasing: buffer[from..<end])
                if !partial, LineReader.body(of: line) != nil {
                    firstRight = at + Int64(from)
                    break scan
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
        if let firstRight {
            damagedLines += max(1, skipped)
            offset = firstRight
        } else if readOnly {
            // Without the right to write nothing is cut; what follows is nothing that can be read anyway.
            offset = size
        } else {
            try files.truncate(journal, to: offset)
        }
    }

    private enum Following { case followed, notThere, newerCheckpoint }

    /// Goes on in the next journal.
    private func follow(to next: UInt64, _ target: Target, underLock: Bool) throws -> Following {
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

    // MARK: Appending

    /// Appends whole lines and carries them out.
    ///
    /// Only under the lock, caught up.
    ///
    /// If the disk refuses, whole lines that got there stand (and are carried out), the rest is cut off again.
    /// - Parameter known: Whose lines they are, if some of them need not be read back.
    /// - Returns: How many of the bytes stand.
    func append(
        _ lines: borrowing LineBuffer, knowing known: PendingRecords? = nil, _ target: Target
    ) throws(AppendFailure) {
        guard let journal else {
            throw AppendFailure(standing: 0, cause: FileError("append", "journal", Errno.badFile))
        }
        let bytes = lines.bytes
        var written = 0
        do throws(FileError) {
            if offset == 0 { try writeHeader(journal) }
            while written < bytes.count {
                written += try files.write(journal, UnsafeRawBufferPointer(rebasing: bytes[written...]))
            }
            if durable { try files.sync(journal) }
            _ = take(bytes, known, target)
        } catch {
            let whole = bytes[..<written].lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
            // If even this fails, whoever holds the lock next cuts the torn tail.
            try? files.truncate(journal, to: offset + Int64(whole))
            let standing = take(UnsafeRawBufferPointer(rebasing: bytes[..<whole]), nil, target)
            throw AppendFailure(
                standing: standing, cause: FileError(error.operation, Self.journalPath(generation), error.number))
        }
    }

    /// Carries out lines that stand in the journal: as all processes do, by reading them, but for those that are known.
    private func take(_ bytes: UnsafeRawBufferPointer, _ known: PendingRecords?, _ target: Target) -> Int {
        var (used, next) = (0, 0)
        if let known {
            while next < known.puts.count {
                let start = known.puts[next].start
                if used < start { used += consume(UnsafeRawBufferPointer(rebasing: bytes[used..<start]), target) }
                // Not all was taken: then what follows is not to be carried out either.
                guard used == start else { break }
                target.apply { tables in
                    // Readers come in between, as in `consume`.
                    let end = min(next + 256, known.puts.count)
                    while next < end, known.puts[next].start == used {
                        if !tables.apply(known, next, bytes) { damagedLines += 1 }
                        used = known.puts[next].end
                        next += 1
                    }
                    note(tables)
                }
                lastChecksum = LineReader.checksum(bytes, at: used - 11)
            }
        }
        if used < bytes.count { used += consume(UnsafeRawBufferPointer(rebasing: bytes[used...]), target) }
        offset += Int64(used)
        return used
    }

    /// A journal that a power cut emptied gets its first line again.
    private func writeHeader(_ journal: OpenFile) throws(FileError) {
        var header = LineBuffer(capacity: 128)
        header.journalHeader(generation, after: 0, previous: nil)
        do throws(FileError) {
            try files.writeAll(journal, header.bytes)
        } catch {
            try? files.truncate(journal, to: 0)  // as above
            throw error
        }
        lastChecksum = LineReader.checksum(header.bytes, at: header.count - 11)
        offset = Int64(header.count)
    }

    /// Ends this journal and goes on in the next one.
    ///
    /// Only under both locks, caught up.
    func rotate(_ target: Target) throws {
        let next = generation + 1
        try createJournal(next, after: offset, previous: lastChecksum)
        var lines = LineBuffer(capacity: 128)
        lines.rotate(to: next)
        do throws(AppendFailure) { try append(lines, target) } catch { throw error.cause }
        guard try advance(target, underLock: true) else {
            throw StoreError(.damaged, "journal \(next) vanished from \(files.location)/manifest while it was made")
        }
    }

    /// Forgets damage that a fresh checkpoint has left behind.
    func forgetDamage() { damagedLines = 0 }
}

/// An append that the disk refused: so many bytes of it stand all the same.
struct AppendFailure: Error {
    var standing: Int
    var cause: FileError
}
