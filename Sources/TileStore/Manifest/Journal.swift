#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The journal's file that this process is in: carried out up to where, and what its last line was.
///
/// It knows lines by their checksums and no tables: ``Ledger`` says what lines do, and tells it what was carried out. Where
/// this process is changes here alone. Fields are not checked for overlapping access at run time, as in ``Tables``.
final class Journal {
    private let files: any FileSystem
    @exclusivity(unchecked) private(set) var file: OpenFile?
    @exclusivity(unchecked) private(set) var generation: UInt64 = 0
    /// Up to where its lines were carried out.
    @exclusivity(unchecked) private(set) var offset: Int64 = 0
    /// The last line's checksum; `nil` before the first one.
    @exclusivity(unchecked) private(set) var lastChecksum: UInt32?
    /// The next journal: a rotate record was read, and its journal is not there yet.
    @exclusivity(unchecked) private(set) var awaited: UInt64?
    /// Whether a failed append left part of a line at the end that could not be cut off.
    @exclusivity(unchecked) private var isTorn = false
    /// When the file was last seen to have its name.
    @exclusivity(unchecked) private var lastSeen: UInt64?
    @exclusivity(unchecked) private var buffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: Journal.usualBuffer, alignment: 8)

    /// How much is read next: little behind damage, where more of it may follow.
    @exclusivity(unchecked) private var stride = Journal.longestRead

    private static var usualBuffer: Int { 1 << 16 }
    private static var longestRead: Int { 1 << 20 }
    private static var shortestRead: Int { 1 << 12 }
    /// No line is as long as this.
    static var longestLine: Int { 1 << 26 }
    /// No journal is as long as this: it would have become a checkpoint long before.
    private static var longestJournal: Int64 { 1 << 34 }

    init(_ files: any FileSystem) { self.files = files }

    deinit {
        close()
        buffer.deallocate()
    }

    /// The file, for who needs it open.
    func opened(to operation: String) throws(FileError) -> OpenFile {
        guard let file else { throw FileError(operation, "journal", Errno.badFile) }
        return file
    }

    // MARK: Where this process is

    /// Goes on in a journal, all of whose lines up to an offset are known.
    func begin(_ file: OpenFile, _ generation: UInt64, at offset: Int64 = 0, after checksum: UInt32? = nil) {
        close()
        self.file = file
        (self.generation, self.offset, lastChecksum, awaited) = (generation, offset, checksum, nil)
    }

    func close() {
        if let file { files.close(file) }
        file = nil
    }

    /// Takes note that lines were carried out.
    @inline(__always)
    func pass(_ count: Int, _ checksum: UInt32?) {
        guard count > 0 else { return }
        offset += Int64(count)
        lastChecksum = checksum
    }

    /// Passes over damage.
    func skip(to line: RightLine) {
        offset = line.start
        stride = Self.shortestRead
    }

    /// Takes note of a rotate record; `false` if it leads elsewhere than to the next journal, as none of the store's does.
    func noteRotation(to next: UInt64) -> Bool {
        guard next == generation &+ 1 else { return false }
        awaited = next
        return true
    }

    /// Whether the file has no name any more, or another one has its name: a backup, put there by hand.
    ///
    /// Looks at most every 10 ms.
    @inline(__always)
    func hasLostName(now: UInt64) throws(FileError) -> Bool {
        if let lastSeen, now &- lastSeen < 10_000_000 { return false }
        let hasLost = try hasLostName()
        lastSeen = hasLost ? nil : now
        return hasLost
    }

    /// The same, looked at now.
    ///
    /// Names alone tell: what was deleted may live on under others, in a copy that was made of links.
    func hasLostName() throws(FileError) -> Bool {
        guard let file else { return false }
        return try files.status(at: Ledger.journalPath(generation))?.number != files.status(of: file).number
    }

    /// Whether the file lacks its first line, or the next one is missing to which a record leads.
    ///
    /// Both were written before anything led there, so somebody, or a power cut, has taken them. For a process that has read
    /// as far as it can.
    var lacksWhatItHad: Bool { file != nil && (offset == 0 || awaited != nil) }

    // MARK: Reading

    func length() throws(FileError) -> Int64 { try files.length(of: opened(to: "read")) }

    /// The bytes from the offset on, of a journal of some length: whole lines, if there are any.
    ///
    /// They stay until the next call.
    func next(of size: Int64) throws(FileError) -> UnsafeRawBufferPointer {
        let file = try opened(to: "read")
        var wanted = Int(min(size - offset, Int64(stride)))
        stride = min(stride * 2, Self.longestRead)
        while true {
            if buffer.count < wanted { resizeBuffer(max(wanted, Self.usualBuffer)) }
            let n = try files.read(file, into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<wanted]), at: offset)
            let isWhole = n < wanted || offset + Int64(n) >= size || wanted >= Self.longestLine
            if isWhole || newline(0, n) != nil { return UnsafeRawBufferPointer(rebasing: buffer[..<n]) }
            wanted = Int(min(size - offset, Int64(wanted) * 2))
        }
    }

    /// Gives back the memory that long reads took: what follows is short, mostly.
    func shrinkBuffer() { if buffer.count > Self.usualBuffer { resizeBuffer(Self.usualBuffer) } }

    private func resizeBuffer(_ size: Int) {
        buffer.deallocate()
        buffer = .allocate(byteCount: size, alignment: 8)
    }

    private func newline(_ from: Int, _ end: Int) -> Int? {
        guard let base = buffer.baseAddress, let found = memchr(base + from, 0x0A, end - from) else { return nil }
        return UnsafeRawPointer(found) - UnsafeRawPointer(base)
    }

    /// A line with a right checksum behind bytes that are no right line.
    struct RightLine: Equatable {
        /// Where it begins.
        fileprivate(set) var start: Int64
        /// How many lines are before it.
        fileprivate(set) var skipped: Int
        /// A checksum of what was read on the way.
        fileprivate var mark: UInt64
    }

    /// Looks for a right line further on: it means that what is here was damaged later, not torn while it was written.
    ///
    /// What ``next(of:)`` gave is gone then.
    func nextRightLine(of size: Int64) throws -> RightLine? {
        guard size - offset < Self.longestJournal else {
            throw StoreError(
                .damaged,
                "\(files.location)/\(Ledger.journalPath(generation)) has \(size) bytes, of which those from \(offset) on are no "
                    + "lines of a journal; cut it to that length")
        }
        return try rightLine(in: opened(to: "read"), from: offset, to: size)
    }

    /// The first right line of a file from an offset on.
    private func rightLine(in file: OpenFile, from start: Int64, to size: Int64) throws(FileError) -> RightLine? {
        defer { if buffer.count > Self.longestRead { shrinkBuffer() } }
        var at = start
        var (skipped, mark, partial, length) = (0, UInt64(0), false, Self.shortestRead)
        while at < size {
            let n = try files.read(file, into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<length]), at: at)
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
            if from > 0 {
                at += Int64(from)
            } else if partial || n < length || length == Self.longestLine {
                // The end of the file, or a "line" longer than any: pass over it.
                at += Int64(n)
                if !partial { skipped += 1 }
                partial = true
            }
            length = min(length * 2, partial ? Self.longestRead : Self.longestLine)
            if buffer.count < length { resizeBuffer(length) }
        }
        return nil
    }

    /// Whether lines were written to the next journal, so that the record which leads there was here.
    ///
    /// Only who has read that record writes any, whatever is here now. A header alone means nothing, because it is written before
    /// the record. It says how long this journal was then: if less is here, that is lost; if more is here, lines came after it, and
    /// what is in the next journal is older than they are.
    func isContinued() throws -> Bool {
        guard generation < Ledger.lastGeneration else { return false }
        let path = Ledger.journalPath(generation + 1)
        guard let status = try files.status(at: path), status.kind == .file, status.size > 0 else { return false }
        let next: OpenFile
        do throws(FileError) { next = try files.open(path, .read) } catch {
            if error.number == Errno.noEntry { return false }
            throw error
        }
        defer { files.close(next) }
        guard let header = try JournalHeader(of: next, in: files) else {
            return try rightLine(in: next, from: 0, to: status.size) != nil
        }
        guard header.generation == generation + 1, status.size > Int64(header.length) else { return false }
        return header.after == offset ? header.previous == lastChecksum : header.after > offset
    }

    // MARK: Writing

    /// Cuts off what a failed append may have left.
    func mend() throws(FileError) {
        guard isTorn else { return }
        try truncate()
    }

    /// The next holder of the lock, this store or another one, looks at the end before it appends.
    func forgetTorn() { isTorn = false }

    /// Cuts off what is no right line.
    func truncate() throws(FileError) {
        try files.truncate(opened(to: "cut"), to: offset)
        isTorn = false
    }

    /// Writes lines at the end, and counts in `written` how much of them is there.
    func write(_ bytes: UnsafeRawBufferPointer, _ written: inout Int) throws(FileError) {
        let file = try opened(to: "append")
        while written < bytes.count {
            written += try files.write(file, UnsafeRawBufferPointer(rebasing: bytes[written...]))
        }
    }

    /// Gives a journal that somebody, or a power cut, has emptied its first line again.
    func restoreHeader() throws(FileError) {
        let file = try opened(to: "append")
        var header = LineBuffer(capacity: 128)
        header.journalHeader(generation, after: 0, previous: nil)
        do throws(FileError) {
            try files.writeAll(file, header.bytes)
        } catch {
            cut(keeping: 0)
            throw error
        }
        pass(header.count, LineReader.checksum(header.bytes, at: header.count - 11))
    }

    /// Cuts a torn line off the end, keeping so many bytes behind the offset.
    ///
    /// If the disk refuses that too, nothing is appended until it has been done: by the next append of this hold of the lock,
    /// or by the next holder.
    func cut(keeping count: Int) {
        guard let file else { return }
        do throws(FileError) { try files.truncate(file, to: offset + Int64(count)) } catch { isTorn = true }
    }

    func sync() throws(FileError) { try files.sync(opened(to: "sync")) }

    /// Makes a journal with its header, in place of any leftover of that name.
    static func create(
        _ n: UInt64, after length: Int64 = 0, previous: UInt32? = nil, sync: Bool, in files: any FileSystem
    ) throws {
        let path = Ledger.journalPath(n)
        try files.clearPlace(of: path)
        try files.unlink(path)
        let file = try files.open(path, .createNew)
        defer { files.close(file) }
        var lines = LineBuffer()
        lines.journalHeader(n, after: length, previous: previous)
        do throws(FileError) {
            try files.writeAll(file, lines.bytes)
            if sync {
                try files.sync(file)
                try files.syncFolder("manifest")
            }
        } catch {
            try files.unlink(path)
            throw error
        }
    }
}
