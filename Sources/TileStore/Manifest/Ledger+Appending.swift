// Adding to the journal, and beginning the next one.
extension Ledger {
    /// Appends whole lines and carries them out.
    ///
    /// Only under the lock, caught up.
    ///
    /// If the disk refuses, whole lines that got there stand (and are carried out), the rest is cut off again.
    /// - Parameters:
    ///   - known: Whose lines they are, if some of them need not be read back.
    ///   - sync: Whether they are synced in relaxed mode too.
    func append(
        _ lines: borrowing LineBuffer, knowing known: PendingRecords? = nil, sync: Bool = false, _ target: Target
    ) throws(AppendFailure) {
        let bytes = lines.bytes
        let syncs = durable || sync
        var written = 0
        do throws(FileError) {
            try journal.mend()
            if syncs { try syncManifest() }
            try journal.write(bytes, &written)
            if syncs { try journal.sync() }
            _ = take(bytes, known, target)
        } catch {
            let whole = bytes[..<written].lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
            journal.cut(keeping: whole)
            let standing = take(UnsafeRawBufferPointer(rebasing: bytes[..<whole]), nil, target)
            throw AppendFailure(
                standing: standing,
                cause: FileError(
                    error.operation, "\(files.location)/\(Self.journalPath(generation))", error.number))
        }
    }

    /// Syncs what has to survive for the current journal's lines to count: the journals since the checkpoint, whose last
    /// lines lead here, and all their names.
    ///
    /// Other stores may have begun journals in relaxed mode, which syncs neither. Done once for each journal.
    private func syncManifest() throws(FileError) {
        guard !synced.has(generation) else { return }
        for n in chain.checkpoint..<max(chain.checkpoint, generation) {
            // One that is gone was replaced by a checkpoint that has been synced.
            guard let file = try openIfThere(Self.journalPath(n)) else { continue }
            defer { files.close(file) }
            try files.sync(file)
        }
        try files.syncFolder("manifest")
        try files.syncFolder("")
        synced.note(generation)
    }

    /// Syncs the journal's lines and what they need to count: somebody may have died before they were synced.
    func syncLines() throws(FileError) {
        try syncManifest()
        try journal.sync()
    }

    /// In relaxed mode: makes sure that a mark of unsynced blobs is in the journal, and on the disk.
    ///
    /// A power cut must not take the mark and leave what it warns of. Who wrote one may have died before it was synced.
    func mark(unsyncedSince boot: String, _ target: Target) throws {
        if glance.hasBoot {
            if synced.hasMark(loads, glance.bootLines) { return }
            try syncLines()
        } else {
            var mark = LineBuffer(capacity: 128)
            mark.boot(boot)
            try append(mark, sync: true, target)
        }
        synced.noteMark(loads, glance.bootLines)
    }

    /// Carries out lines that stand in the journal: as all processes do, by reading them, but for those that are known.
    func take(_ bytes: UnsafeRawBufferPointer, _ known: PendingRecords?, _ target: Target) -> Int {
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
                        if !tables.apply(known, next, bytes) { damage.skip(1, in: generation) }
                        used = known.puts[next].end
                        next += 1
                    }
                    note(tables)
                }
                journal.pass(used - start, LineReader.checksum(bytes, at: used - 11))
            }
        }
        if used < bytes.count { used += consume(UnsafeRawBufferPointer(rebasing: bytes[used...]), target) }
        return used
    }

    /// Ends this journal and goes on in the next one.
    ///
    /// Only under both locks, caught up.
    func rotate(_ target: Target) throws {
        let next = generation + 1
        guard next <= Self.lastGeneration else {
            throw StoreError(
                .damaged,
                "\(files.location)/\(Self.checkpointPath(chain.checkpoint)) has the last number that there can be; "
                    + "remove the folder and let the cache fill again")
        }
        try Journal.create(next, after: offset, previous: journal.lastChecksum, sync: durable, in: files)
        var lines = LineBuffer(capacity: 128)
        lines.rotate(to: next)
        do throws(AppendFailure) { try append(lines, target) } catch { throw error.cause }
        guard try advance(target, underLock: true) else {
            throw StoreError(.damaged, "journal \(next) vanished from \(files.location)/manifest while it was made")
        }
        // Its name and the record that leads to it have just been synced, after all that is before them.
        if durable { synced.note(generation) }
    }

    /// Measures the newest checkpoint, whoever made it, and the journals between it and the current one.
    func measure() throws(FileError) {
        guard let newest = try files.newestCheckpoint(), newest <= generation,
            let status = try files.status(at: Self.checkpointPath(newest))
        else { return }
        var passed: Int64 = 0
        for n in newest..<generation { passed += try files.status(at: Self.journalPath(n))?.size ?? 0 }
        chain.measured(bytes: status.size, passed: passed)
    }

    /// Forgets damage that a fresh checkpoint has left behind.
    func forgetDamage() { damage.begin(0, in: generation) }
}

/// What of the manifest is known to be on the disk.
struct SyncedManifest {
    /// The journal of which it is known that a power cut leaves it and all that leads to it.
    private var generation: UInt64?
    /// The mark of unsynced blobs: of which tables, and how many there were before.
    private var mark: (loads: Int, lines: Int)?

    @inline(__always)
    func has(_ generation: UInt64) -> Bool { self.generation == generation }

    mutating func note(_ generation: UInt64) { self.generation = generation }

    /// Another journal is being loaded.
    mutating func forgetJournal() { generation = nil }

    func hasMark(_ loads: Int, _ lines: Int) -> Bool { mark.map { $0 == (loads, lines) } ?? false }

    mutating func noteMark(_ loads: Int, _ lines: Int) { mark = (loads, lines) }
}

/// An append that the disk refused: so many bytes of it stand all the same.
struct AppendFailure: Error {
    var standing: Int
    var cause: FileError
}
