// Reading the newest checkpoint and the journals after it.
extension Ledger {
    /// Reads the newest checkpoint and the journals after it into new tables.
    ///
    /// - Parameter underLock: Whether the caller holds the lock. Without it nothing is created; `nil` means that only a
    ///   holder of the lock can tell what is the case.
    func load(underLock: Bool) throws -> Tables? {
        // Files of the manifest that are missing, and what they said with them.
        var lost = 0
        for attempt in 0..<8 {
            guard let newest = try files.newestCheckpoint() else {
                // An empty listing proves nothing without the lock.
                guard underLock else { return nil }
                if try createFirst(isNew: false) { lost = 1 }
                continue
            }
            guard let checkpoint = try openIfThere(Self.checkpointPath(newest)) else { continue }
            defer { files.close(checkpoint) }
            // A second look goes by the manifest alone.
            if attempt == 0, let tables = try loadImage(newest, checkpoint, underLock: underLock) { return tables }
            var next = try openIfThere(Self.journalPath(newest), forAppending: true)
            if next == nil, underLock {
                try noteLoss()
                try Journal.create(newest, sync: durable, in: files)
                next = try openIfThere(Self.journalPath(newest), forAppending: true)
                // There is none without it: only somebody else removes it.
                lost = 1
            }
            guard let next else { continue }
            demandLoad()
            synced.forgetJournal()
            journal.begin(next, newest)
            damage.begin(lost, in: newest)
            chain.begin(newest, bytes: try files.status(of: checkpoint).size)
            let tables = try readCheckpoint(checkpoint, newest)
            guard try advance(.direct(tables), underLock: underLock) else { continue }
            while tables.sweep(1 << 20) {}
            tables.finishLoading()
            if let bound = tables.exceeded { throw bound.loadingError(files.location, environment.bounds) }
            noteLoad()
            countShares(tables)
            note(tables)
            journal.shrinkBuffer()
            return tables
        }
        if underLock {
            throw StoreError(
                .damaged, "the manifest in \(files.location) keeps changing under the lock; see tilegc verify")
        }
        return nil
    }

    /// Counts what those sources hold that have capacities of their own.
    func countShares(_ tables: Tables) {
        if !readOnly, !sourceCapacities.isEmpty { tables.setCapacities(sourceCapacities) }
    }

    func openIfThere(_ path: String, forAppending: Bool = false) throws(FileError) -> OpenFile? {
        do throws(FileError) {
            return try files.open(path, forAppending && !readOnly ? .append : .read)
        } catch {
            if error.number == Errno.noEntry { return nil }
            throw error
        }
    }

    /// Makes the first checkpoint and journal of a new cache, or the checkpoint that is missing.
    ///
    /// One that is missing is lost, unless the cache was still being made. The journals that are left are read after it.
    /// - Parameter isNew: Whether the cache is only now being made.
    /// - Returns: Whether something is lost.
    @discardableResult
    func createFirst(isNew: Bool) throws -> Bool {
        // Gone where somebody has deleted `manifest/`.
        try CacheFolder.makeFolders(files)
        let oldest = try oldestOfNewestJournals()
        // Journal 0 alone is what an unfinished creation leaves; its checkpoint would have had nothing.
        let isLost = !isNew && oldest != 0
        if isLost { try noteLoss() }
        if oldest == nil { try Journal.create(0, sync: true, in: files) }
        let first = oldest ?? 0
        var lines = LineBuffer()
        lines.checkpointHeader(first, sequence: 1, nextSet: 1, entries: 0, blobs: 0)
        lines.checkpointEnd(0)
        let temporary = "staging/first-\(String(environment.random(), radix: 16))"
        try files.createFile(temporary, lines.bytes, sync: true)
        try files.rename(temporary, to: Self.checkpointPath(first))
        try files.syncFolder("manifest")
        return isLost
    }

    /// Where the journals begin of which the newest is the last, each leading to the next; `nil` if there is none.
    ///
    /// Files that do not begin as a journal of their number are passed over.
    private func oldestOfNewestJournals() throws(FileError) -> UInt64? {
        let found = try files.list("manifest")?.compactMap { Self.generation(of: $0, "journal-", ".jsonl") } ?? []
        var oldest: UInt64?
        for n in found.sorted(by: >) {
            if let oldest, n != oldest - 1 { break }
            guard let file = try openIfThere(Self.journalPath(n)) else { continue }
            defer { files.close(file) }
            if try JournalHeader(of: file, in: files)?.generation == n { oldest = n }
        }
        return oldest
    }

    private func readCheckpoint(_ file: OpenFile, _ number: UInt64) throws -> Tables {
        func read() throws -> (Tables, damaged: Int) {
            do { return try readInHalves(file, number) } catch is Tables.UnusualLine {
                noteLineByLine()
                return try readLineByLine(file, number)
            }
        }
        let (tables, damaged) = try read()
        damage.skip(damaged, in: number)
        return tables
    }

    /// By as many threads as there are, as long as the lines are such as this program writes.
    private func readInHalves(_ file: OpenFile, _ number: UInt64) throws -> (Tables, damaged: Int) {
        var damaged = 0
        let tables = try emptyTables(file, number, &damaged)
        // The first stage has `puts` to itself, the second one all the rest.
        var puts = 0
        var (records, ended) = (0, false)
        try readChunks(
            file,
            [
                { chunk in
                    chunk.firstPut = puts
                    try tables.enterBlobs(chunk)
                    puts += chunk.puts.count
                },
                { [self] chunk in
                    damaged += chunk.damage
                    try tables.enterEntries(chunk, reader) { count, before in
                        ended = true
                        if count != records + before { damaged += 1 }
                    }
                    records += chunk.puts.count + chunk.others.count
                },
            ])
        // A checkpoint without its last line was cut short: what it has is used, and verify tells.
        if !ended { damaged += 1 }
        return (tables, damaged)
    }

    /// Whatever the lines are: each is carried out before the next one.
    private func readLineByLine(_ file: OpenFile, _ number: UInt64) throws -> (Tables, damaged: Int) {
        var damaged = 0
        let tables = try emptyTables(file, number, &damaged)
        var (records, ended) = (0, false)
        try readChunks(
            file,
            [
                { [self] chunk in
                    damaged += chunk.damage
                    var next = 0
                    func carryOutPuts(upTo end: Int) {
                        for i in next..<end where !tables.apply(chunk.puts[i]) { damaged += 1 }
                        next = end
                    }
                    for other in chunk.others {
                        carryOutPuts(upTo: other.before)
                        switch tables.apply(other.body, reader, inCheckpoint: true) {
                        case .end(let count):
                            ended = true
                            if count != records + next { damaged += 1 }
                        case .damaged: damaged += 1
                        case .done, .rotate, .header: break
                        }
                        records += 1
                    }
                    carryOutPuts(upTo: chunk.puts.count)
                    records += chunk.puts.count
                }
            ])
        if !ended { damaged += 1 }
        return (tables, damaged)
    }

    private func readChunks(_ file: OpenFile, _ stages: [CheckpointReader.Stage]) throws {
        try CheckpointReader.read(
            files, file, helpers: CheckpointReader.helpers(for: chain.checkpointBytes), chunkSize: 1 << 18,
            stages: stages)
    }

    /// Tables for what a checkpoint's first line tells of.
    private func emptyTables(_ file: OpenFile, _ number: UInt64, _ damaged: inout Int) throws -> Tables {
        let first = UnsafeMutableRawBufferPointer.allocate(byteCount: 4096, alignment: 8)
        defer { first.deallocate() }
        let length = try files.read(file, into: first, at: 0)
        let end = first[..<length].firstIndex(of: 0x0A)
        let found = end.flatMap { CheckpointHeader(UnsafeRawBufferPointer(rebasing: first[..<$0])) }
        // Without it the lines still say everything but the number of them.
        if found == nil, end != nil || length == first.count { damaged += 1 }
        var header = found ?? CheckpointHeader()
        // An entry's line has at least 64 bytes.
        header.entries = min(header.entries, Int(clamping: chain.checkpointBytes / 64))
        header.blobs = min(header.blobs, header.entries)
        let tables = Tables(
            blockSize: files.blockSize, hashSeed: hashSeed, expectedEntries: header.entries,
            expectedBlobs: header.blobs, bounds: environment.bounds)
        tables.beginLoading(number, header)
        return tables
    }
}
