// Reading the newest checkpoint and the journals after it.
extension Ledger {
    /// Reads the newest checkpoint and the journals after it into new tables.
    ///
    /// - Parameter underLock: Whether the caller holds the lock. Without it nothing is created; `nil` means that only a
    ///   holder of the lock can tell what is the case.
    func load(underLock: Bool) throws -> Tables? {
        for attempt in 0..<8 {
            guard let newest = try files.newestCheckpoint() else {
                // An empty listing proves nothing without the lock.
                guard underLock else { return nil }
                try createFirst()
                continue
            }
            guard let checkpoint = try openIfThere(Self.checkpointPath(newest)) else { continue }
            defer { files.close(checkpoint) }
            // A second look goes by the manifest alone.
            if attempt == 0, let tables = try loadImage(newest, checkpoint, underLock: underLock) { return tables }
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

    func openIfThere(_ path: String, forAppending: Bool = false) throws(FileError) -> OpenFile? {
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

    func readCheckpoint(_ file: OpenFile, _ number: UInt64) throws -> Tables {
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
                    let group = next..<min(next + Tables.linesAhead, end)
                    made.warm(chunk.puts, group)
                    for i in group { if !made.apply(chunk.puts[i]) { damagedLines += 1 } }
                    next = group.upperBound
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
}
