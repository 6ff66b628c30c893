// Opening by the index image, where there is one that goes with the manifest.
extension Ledger {
    /// Reads the image of a checkpoint, and from the journals what came after it.
    ///
    /// - Returns: `nil` if there is none, if it cannot be read, is damaged or of another machine's making, or if the checkpoint
    ///   or the journal are not those that it was made from: then the manifest is to be read.
    func loadImage(_ newest: UInt64, _ checkpoint: OpenFile, underLock: Bool) throws -> Tables? {
        guard usesImages, let file = openImage(newest) else { return nil }
        defer { files.close(file) }
        var expected = ImagePosition()
        try files.stamp(checkpoint, newest, &expected)
        var opened: OpenFile?
        var passed: Int64 = 0
        var keeps = false
        defer { if !keeps, let opened { files.close(opened) } }
        let loaded = try IndexImageReader(files, file, newest, environment.bounds).load { state in
            let position = state.position
            (expected.journal, expected.offset, expected.lastChecksum) =
                (position.journal, position.offset, position.lastChecksum)
            guard position == expected, state.blockSize == UInt64(files.blockSize),
                position.journal >= newest, position.journal - newest < 64, position.offset < 1 << 40
            else { return false }
            for n in newest..<position.journal {
                guard let status = try files.status(at: Self.journalPath(n)) else { return false }
                passed += status.size
            }
            opened = try openIfThere(Self.journalPath(position.journal), forAppending: true)
            guard let journal = opened, try files.length(of: journal) >= Int64(position.offset),
                let checksum = try files.checksumOfLine(before: Int64(position.offset), in: journal)
            else { return false }
            return UInt64(checksum) == position.lastChecksum
        }
        guard let (tables, state) = loaded, let next = opened else { return nil }
        keeps = true
        demandLoad()
        synced.forgetJournal()
        let position = state.position
        journal.begin(
            next, position.journal, at: Int64(position.offset), after: UInt32(truncatingIfNeeded: position.lastChecksum)
        )
        // What was counted in other tables is no damage of these, and what the image counts was skipped in its journal.
        damage.begin(Int(clamping: state.damagedLines), in: generation)
        chain.begin(newest, bytes: Int64(position.checkpointLength), passed: passed)
        guard try advance(.direct(tables), underLock: underLock) else { return nil }
        while tables.sweep(1 << 20) {}
        // An image keeps names that nothing uses any more; the manifest alone may do with fewer.
        guard tables.exceeded == nil, !tables.names.areFull else { return nil }
        tables.released.forget()
        noteLoad()
        chain.noteImage(position)
        countShares(tables)
        note(tables)
        journal.shrinkBuffer()
        return tables
    }

    private func openImage(_ n: UInt64) -> OpenFile? {
        do throws(FileError) { return try openIfThere(IndexImage.path(n)) } catch {
            // A file that this user may not read spares nothing, and is missed by nobody.
            return nil
        }
    }

    /// Bytes of the manifest that an opening would have to read now.
    var bytesToRead: Int64 { chain.unread(journal) }

    /// Bytes of the journals since the checkpoint.
    var journalBytes: Int64 { chain.passedBytes + offset }

    /// A checkpoint's position with the place in the journal that the tables go with now; `nil` if there is none.
    func restingPlace(_ position: ImagePosition) -> ImagePosition? {
        guard !isClosed, !mustLoad, !damage.needsJudgement, journal.awaited == nil,
            let checksum = journal.lastChecksum
        else { return nil }
        var position = position
        (position.journal, position.offset, position.lastChecksum) = (generation, UInt64(offset), UInt64(checksum))
        return position
    }
}
