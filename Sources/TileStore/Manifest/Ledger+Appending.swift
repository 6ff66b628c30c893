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
        guard let journal else {
            throw AppendFailure(standing: 0, cause: FileError("append", "journal", Errno.badFile))
        }
        let bytes = lines.bytes
        var written = 0
        do throws(FileError) {
            if isTorn {
                try files.truncate(journal, to: offset)
                isTorn = false
            }
            if durable || sync, syncedGeneration != generation { try syncManifest() }
            if offset == 0 { try writeHeader(journal) }
            while written < bytes.count {
                written += try files.write(journal, UnsafeRawBufferPointer(rebasing: bytes[written...]))
            }
            if durable || sync { try files.sync(journal) }
            _ = take(bytes, known, target)
        } catch {
            let whole = bytes[..<written].lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
            cut(journal, to: offset + Int64(whole))
            let standing = take(UnsafeRawBufferPointer(rebasing: bytes[..<whole]), nil, target)
            throw AppendFailure(
                standing: standing, cause: FileError(error.operation, Self.journalPath(generation), error.number))
        }
    }

    /// Cuts a torn line off the journal's end.
    ///
    /// If the disk refuses that too, nothing is appended until it has been done: by the next append of this hold of the lock,
    /// or by the next holder.
    private func cut(_ journal: OpenFile, to size: Int64) {
        do throws(FileError) { try files.truncate(journal, to: size) } catch { isTorn = true }
    }

    /// Syncs what has to survive for the current journal's lines to count: the journals since the checkpoint, whose last
    /// lines lead here, and all their names.
    ///
    /// Other stores may have begun journals in relaxed mode, which syncs neither. Done once for each journal.
    private func syncManifest() throws(FileError) {
        for n in checkpointGeneration..<max(checkpointGeneration, generation) {
            // One that is gone was replaced by a checkpoint that has been synced.
            guard let file = try openIfThere(Self.journalPath(n)) else { continue }
            defer { files.close(file) }
            try files.sync(file)
        }
        try files.syncFolder("manifest")
        try files.syncFolder("")
        syncedGeneration = generation
    }

    /// Syncs the journal's lines and what they need to count: somebody may have died before they were synced.
    func syncLines() throws(FileError) {
        guard let journal else { throw FileError("sync", "journal", Errno.badFile) }
        if syncedGeneration != generation { try syncManifest() }
        try files.sync(journal)
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
    func writeHeader(_ journal: OpenFile) throws(FileError) {
        var header = LineBuffer(capacity: 128)
        header.journalHeader(generation, after: 0, previous: nil)
        do throws(FileError) {
            try files.writeAll(journal, header.bytes)
        } catch {
            cut(journal, to: 0)
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
        guard next <= Self.lastGeneration else {
            throw StoreError(
                .damaged,
                "\(files.location)/\(Self.checkpointPath(checkpointGeneration)) has the last number that there can be; "
                    + "remove the folder and let the cache fill again")
        }
        try createJournal(next, after: offset, previous: lastChecksum)
        var lines = LineBuffer(capacity: 128)
        lines.rotate(to: next)
        do throws(AppendFailure) { try append(lines, target) } catch { throw error.cause }
        guard try advance(target, underLock: true) else {
            throw StoreError(.damaged, "journal \(next) vanished from \(files.location)/manifest while it was made")
        }
        // Its name and the record that leads to it have just been synced, after all that is before them.
        if durable { syncedGeneration = generation }
    }

    /// Measures the newest checkpoint, whoever made it, and the journals between it and the current one.
    func measure() throws(FileError) {
        guard let newest = try files.newestCheckpoint(), newest <= generation,
            let status = try files.status(at: Self.checkpointPath(newest))
        else { return }
        var chain: Int64 = 0
        for n in newest..<generation { chain += try files.status(at: Self.journalPath(n))?.size ?? 0 }
        (checkpointBytes, chainBytes) = (status.size, chain)
    }

    /// Forgets damage that a fresh checkpoint has left behind.
    func forgetDamage() { (damagedLines, skippedIn) = (0, nil) }
}

/// An append that the disk refused: so many bytes of it stand all the same.
struct AppendFailure: Error {
    var standing: Int
    var cause: FileError
}
