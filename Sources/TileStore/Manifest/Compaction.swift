/// A checkpoint being written while others read and write: the tables are walked in short slices.
///
/// It may be fuzzy, because records are absolute: what changes while it is written stands in the journal that begins where
/// the checkpoint begins. Entries come before the recency of blobs, so that a use that only an entry removed meanwhile
/// remembers is still seen. Holding `compact.lock` makes it the only one.
package final class Compaction {
    private let store: TileStore
    private let lock: CompactionLock
    private let generation: UInt64
    private let loads: Int
    /// Whether the checkpoint's journal was new when the checkpoint was begun, so that it has nothing that the checkpoint has.
    let beganJournal: Bool
    /// Whether it is finished even while the store is being closed.
    private let isOverdue: Bool
    private let temporary: String
    private var file: OpenFile?
    private var lines = LineBuffer(capacity: 1 << 16)
    private var bytes = 0
    private var unsynced = 0
    private var records = 0
    private var entries = 0
    private var definedSets: Set<UInt32> = []
    private var firstSequence: UInt64 = 0
    private var phase = Phase.entries(0)
    private var isOver = false

    private enum Phase { case entries(UInt32), blobs(UInt32), done }

    /// A journal of so many bytes has its header and at most a line.
    private static let emptyJournal: Int64 = 256
    /// How many journals compactions may begin without finishing; the next compaction writes the last one's checkpoint.
    ///
    /// Each is a file for an opening to read, and for a durable store to sync.
    static let mostUnfinished: UInt64 = 16

    fileprivate init?(_ store: TileStore) throws {
        self.store = store
        let files = store.files
        guard let lock = try CompactionLock(files, store.gate) else { return nil }
        self.lock = lock
        // A checkpoint is as large as the manifest: one that a killed process left must not wait for an hour.
        try StagingFolder.removeUnfinished(["checkpoint-", "index-"], in: files)
        (generation, loads, beganJournal, isOverdue) = try store.hold(within: lock) { ledger in
            let isOverdue = store.isCompactionOverdue(ledger)
            // The checkpoint replaces the journals before its own. A compaction that was given up has begun a journal
            // already, and much may have been appended to it since: it ends here too.
            let newest = try files.newestCheckpoint() ?? 0
            let unfinished = ledger.generation - min(newest, ledger.generation)
            let isEmpty = unfinished > 0 && ledger.offset <= Self.emptyJournal
            if !isEmpty, unfinished < Self.mostUnfinished {
                try ledger.rotate(.live(store.tables))
                return (ledger.generation, ledger.loads, true, isOverdue)
            }
            return (ledger.generation, ledger.loads, isEmpty, isOverdue)
        }
        // The checkpoint's journal never loses its first line, not even where a power cut may take others.
        if beganJournal, !store.isDurable {
            let journal = try files.open(Ledger.journalPath(generation), .read)
            defer { files.close(journal) }
            try files.sync(journal)
        }
        temporary = "staging/checkpoint-\(String(store.environment.random(), radix: 16))"
        file = try files.inStaging { [temporary] () throws(FileError) in
            try files.open(temporary, .createNew)
        }
        let header = store.tables.read { t, _ in
            (t.nextSequence, t.sets.nextNumber, t.entryAccount.count, t.blobAccount.count)
        }
        firstSequence = header.0
        lines.checkpointHeader(
            generation, sequence: header.0, nextSet: header.1, entries: header.2, blobs: header.3)
        let (limits, regions) = store.tables.read { t, _ in
            (t.limits, t.regions.values.sorted { $0.name < $1.name })
        }
        lines.limits(limits, tail: ",")
        records += 1
        for region in regions {
            lines.region(region, tail: ",")
            records += 1
        }
    }

    deinit { abandon() }

    /// Walks on by so many slots.
    ///
    /// `false` when all is written.
    package func step(entries count: Int = 1024) throws -> Bool {
        guard !isOver else { return false }
        let end = UInt32(clamping: max(1, count))
        store.tables.read { t, _ in
            switch phase {
            case .entries(let from):
                let to = min(t.entries.count, from &+ end)
                for slot in from..<max(from, to) { write(slot, t) }
                phase = to >= t.entries.count ? .blobs(0) : .entries(to)
            case .blobs(let from):
                let to = min(t.blobs.count, from &+ end)
                for slot in from..<max(from, to) { writeRecency(slot, t) }
                phase = to >= t.blobs.count ? .done : .blobs(to)
            case .done: break
            }
        }
        if lines.count > 1 << 18 { try drain() }
        if case .done = phase { return false }
        return true
    }

    private func write(_ slot: UInt32, _ t: Tables) {
        let record = t.entries[slot].pointee
        guard record.isLive, record.blob == noSlot || t.blobs[record.blob].pointee.isLive,
            let set = t.sets[record.set]
        else { return }
        if definedSets.insert(set.number).inserted {
            lines.set(set.number, set.fields, tail: ",")
            records += 1
        }
        let entry = t.entry(slot)
        lines.put(
            entry.key, blob: entry.blob, size: entry.size, set: set.number, entry.metadata, recency: entry.recency,
            lastUsed: entry.lastUsed, tail: ",")
        records += 1
        entries += 1
    }

    /// A blob remembers uses through entries that it no longer has.
    private func writeRecency(_ slot: UInt32, _ t: Tables) {
        let blob = t.blobs[slot].pointee
        guard blob.isLive else { return }
        // Entries carry theirs with them; only a blob that was used later needs a line, and one that was used since the
        // walk began, because entries may be in the checkpoint as they were before or after. Long chains are not walked.
        var entry = blob.firstEntry
        var steps = 0
        while entry != noSlot, steps < 64, blob.recency < firstSequence {
            if t.entries[entry].pointee.recency == blob.recency { return }
            entry = t.entries[entry].pointee.sibling
            steps += 1
        }
        lines.blobRecency(blob.digest, blob.recency, tail: ",")
        records += 1
    }

    private func drain() throws {
        guard let file else { return }
        do throws(FileError) { try store.files.writeAll(file, lines.bytes) } catch {
            let path = "\(store.files.location)/\(temporary)"
            throw StoreError(FileError(error.operation, path, error.number), in: store.files.location)
        }
        bytes += lines.count
        unsynced += lines.count
        lines.removeAll()
        // In portions: other processes' appends would have to wait for the whole of it at the end.
        if unsynced > 4 << 20 {
            do throws(FileError) { try store.files.sync(file) } catch {
                throw StoreError(error, in: store.files.location)
            }
            unsynced = 0
        }
    }

    /// Puts the checkpoint in its place and removes what it replaces.
    ///
    /// `nil` if a newer one is there already.
    package func finish() throws -> CompactionReport? {
        guard !isOver else { return nil }
        while try step(entries: 256) {
            if store.isStopping, !isOverdue || store.maintenance?.isAbandoned ?? false { return nil }
            if store.gate.isShut { return nil }
            store.giveWay()
        }
        defer { abandon() }
        // After the walk: a relaxed store may have begun to write meanwhile, and its blobs may be among the entries.
        if let boot = store.tables.read({ t, _ in t.boot }) {
            lines.boot(boot, tail: ",")
            records += 1
        }
        lines.checkpointEnd(records)
        try drain()
        let files = store.files
        do {
            if let file {
                try files.sync(file)
                files.close(file)
                self.file = nil
            }
            let installed = try store.hold(within: lock) { ledger -> Bool in
                // The walk was over tables that were replaced meanwhile: slots may have been missed.
                guard ledger.loads == loads, try (files.newestCheckpoint() ?? 0) < generation else { return false }
                // The damaged lines go with the journal: after that only the note says that something was lost.
                if ledger.damagedLines > 0 { try ledger.noteLoss() }
                do throws(FileError) {
                    try files.clearPlace(of: Ledger.checkpointPath(generation))
                    try files.rename(temporary, to: Ledger.checkpointPath(generation))
                } catch {
                    // Another opening took the file for one left over: this process was asleep for an hour.
                    guard error.number == Errno.noEntry else { throw error }
                    return false
                }
                // At once: what else would be learned from it, if lines were skipped before, would be loaded anew.
                ledger.noteCheckpoint(generation, bytes: bytes)
                return true
            }
            guard installed else { return nil }
            try files.syncFolder("manifest")
            // A large file takes the file system long to free: its name goes under the lock, the rest with its last handle.
            var replaced: [OpenFile] = []
            defer { for file in replaced { files.close(file) } }
            try store.hold(within: lock) { ledger in
                // In a folder that has taken this one's place the numbers of generations mean other files.
                guard ledger.loads == loads else { return }
                try removeOlder(files, &replaced)
            }
        } catch let error as FileError {
            throw StoreError(error, in: files.location)
        }
        return CompactionReport(entries: entries, checkpointBytes: bytes)
    }

    private func removeOlder(_ files: any FileSystem, _ replaced: inout [OpenFile]) throws(FileError) {
        for name in try files.list("manifest") ?? [] {
            for (prefix, suffix) in [("journal-", ".jsonl"), ("checkpoint-", ".json"), ("index-", ".bin")] {
                if let n = Ledger.generation(of: name, prefix, suffix), n < generation {
                    // A folder of that name is nobody's file: it is in no one's way, and not ours to empty.
                    if try files.status(at: "manifest/" + name)?.kind == .folder { continue }
                    do throws(FileError) { replaced.append(try files.open("manifest/" + name, .read)) } catch {
                        // Without a handle it takes longer, and that is all.
                    }
                    try files.unlink("manifest/" + name)
                }
            }
        }
    }

    /// Gives up: nothing is lost, the journals go on as they are.
    package func abandon() {
        guard !isOver else { return }
        isOver = true
        if let file { store.files.close(file) }
        file = nil
        // Nobody reads it; what stays behind is swept when the cache is opened an hour later.
        _ = try? store.files.unlink(temporary)
        lock.release()
    }
}

extension FileSystem {
    /// The number of the newest checkpoint.
    ///
    /// Where there are several, a newer file whose first line is not that of a checkpoint of its number is passed over for an
    /// older one that is whole: the store never leaves one like that, but people and other programs do.
    func newestCheckpoint() throws(FileError) -> UInt64? {
        guard let names = try list("manifest") else { return nil }
        let found = names.compactMap { Ledger.generation(of: $0, "checkpoint-", ".json") }.sorted(by: >)
        guard found.count > 1 else { return found.first }
        for n in found where try hasCheckpointHeader(n) {
            if n == found.first { return n }
            // An older one is of use only with the journal that goes on from it.
            if try status(at: Ledger.journalPath(n))?.kind == .file { return n }
        }
        return found.first
    }

    private func hasCheckpointHeader(_ n: UInt64) throws(FileError) -> Bool {
        let file: OpenFile
        do throws(FileError) { file = try open(Ledger.checkpointPath(n), .read) } catch {
            if error.number == Errno.noEntry || error.isForeignObject { return false }
            throw error
        }
        defer { close(file) }
        let first = UnsafeMutableRawBufferPointer.allocate(byteCount: 4096, alignment: 8)
        defer { first.deallocate() }
        let length = try read(file, into: first, at: 0)
        guard let end = first[..<length].firstIndex(of: 0x0A) else { return false }
        return CheckpointHeader(UnsafeRawBufferPointer(rebasing: first[..<end]))?.number == n
    }
}

extension TileStore {
    /// Rewrites the manifest as a fresh checkpoint.
    ///
    /// Readers and writers go on meanwhile.
    ///
    /// - Throws: `StoreError.Code.busy` if another process is at it.
    public func compact() throws -> CompactionReport {
        for attempt in 1...3 {
            // The store's own compaction in the background is no other process: its turn comes to an end.
            maintenance?.waitForPending()
            guard !gate.isShut else { throw StoreError.suspended(files.location) }
            guard let compaction = try beginCompaction() else {
                if attempt < 3, maintenance != nil { continue }
                throw StoreError(.busy, "another process is compacting \(files.location); it does the same work")
            }
            if let report = try compaction.finish() {
                // After many unfinished ones it could begin no journal of its own; now one can.
                if !compaction.beganJournal, attempt < 3 { continue }
                // It spares the next opening some time, and nothing depends on it.
                _ = try? writeImageIfDue()
                return report
            }
        }
        throw StoreError(.busy, "the manifest of \(files.location) changed too fast to be compacted; try again")
    }

    package func beginCompaction() throws -> Compaction? {
        guard !isReadOnly else {
            throw StoreError(.readOnly, "\(files.location) is open for reading alone; it cannot be compacted")
        }
        do { return try Compaction(self) } catch let error as FileError {
            throw StoreError(error, in: files.location)
        }
    }

    /// Compacts if that is due by what is in the folder: this store's figures lack a checkpoint that another process has
    /// made since.
    func compactIfDue() throws {
        try catchUp()
        let isDue = try commit.withLock { ledger in
            guard !ledger.isClosed else { return false }
            do throws(FileError) { try ledger.measure() } catch { throw StoreError(error, in: files.location) }
            return isStopping ? isCompactionOverdue(ledger) : isCompactionDue(ledger)
        }
        if isDue { _ = try beginCompaction()?.finish() }
    }

    /// Due when the journals are larger than half the checkpoint, and than 8 MiB, which are read in 20 ms.
    func isCompactionDue(_ ledger: Ledger) -> Bool {
        ledger.journalBytes > compactionThreshold(ledger)
    }

    /// Overdue at twice that: then even a store that is being closed finishes its compaction, because processes that each live
    /// shorter than one takes would never get one done.
    func isCompactionOverdue(_ ledger: Ledger) -> Bool {
        ledger.journalBytes > 2 * compactionThreshold(ledger)
    }

    private func compactionThreshold(_ ledger: Ledger) -> Int64 { max(8 << 20, ledger.chain.checkpointBytes / 2) }
}
