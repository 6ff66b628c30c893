import Dispatch

extension TileStore {
    /// Checks everything: every line of the manifest, every blob's bytes against its name, every count and account,
    /// every file in `objects/`.
    ///
    /// Others may go on reading and writing; what looks wrong is confirmed under the lock.
    ///
    /// Hashes on all cores. With `repair`, bad blobs are dropped with their entries and put into `quarantine/`, orphans
    /// removed, and a manifest with damaged lines rewritten.
    /// - Parameters:
    ///   - quick: Looks at the blobs' sizes instead of hashing them.
    ///   - repair: Whether to mend what can be mended.
    ///   - progress: Called now and then with the number of blobs done and of all.
    public func verify(
        quick: Bool = false, repair: Bool = false, progress: ((_ done: Int, _ total: Int) -> Void)? = nil
    ) throws -> VerifyReport {
        if repair, isReadOnly {
            throw StoreError(.readOnly, "\(files.location) is open for reading alone; it cannot be repaired")
        }
        // A store that is open for reading alone looks without the lock, whose holders report in the same way.
        do { return try check(quick: quick, repair: repair, progress) } catch let error as FileError {
            throw StoreError(error, in: files.location)
        }
    }

    private func check(quick: Bool, repair: Bool, _ progress: ((Int, Int) -> Void)?) throws -> VerifyReport {
        // Only under the lock is it judged what the journal's end is, if that is no right line.
        if isReadOnly { try catchUp() } else { try hold { _ in } }
        var report = VerifyReport()
        report.journalDamage = try manifestDamage()
        let (entries, mismatches) = tables.read { t, _ in (t.entryAccount.count, t.accountMismatches().count) }
        report.entries = entries
        report.countMismatches = mismatches
        let suspects = try checkBlobs(quick: quick, &report, progress)
        var work = beginLongWork()
        for (digest, size) in suspects {
            work.letOthersIn()
            try confirm(digest, size, quick, repair, &report)
        }
        for path in try orphanCandidates() {
            work.letOthersIn()
            // A name that is no Unicode cannot be looked up as it was read.
            if path.unicodeScalars.contains("\u{FFFD}") {
                report.foreign.append(path)
                continue
            }
            let isOrphan =
                isReadOnly
                ? try orphan(at: path) != nil
                : try hold { ledger in
                    guard let orphan = try orphan(at: path) else { return false }
                    if repair, let folder = try ledger.confirmFolder() {
                        if isDurable { try ledger.syncLines() }
                        try blobs.remove(orphan, folder)
                    }
                    return true
                }
            if isOrphan { report.orphans.append(path) }
        }
        report.foreign = try (report.foreign + foreignFiles()).sorted()
        if repair { try mend(&report) }
        if !quick, report.damaged.isEmpty, suspicious.withLock({ $0 }), !isReadOnly { try settleSuspicion() }
        return report
    }

    private func mend(_ report: inout VerifyReport) throws {
        if report.journalDamage > 0 {
            _ = try compact()
            try hold { ledger in
                ledger.forgetDamage()
                try ledger.forgetLoss()
            }
        }
        if report.countMismatches > 0 { try hold { try reload($0, underLock: true) } }
        report.repaired = true
    }

    /// All blobs were just hashed: what the power cut before the last start may have damaged is known to be right.
    private func settleSuspicion() throws {
        try hold { ledger in
            var lines = LineBuffer(capacity: 128)
            lines.boot(environment.bootID ?? Self.unknownBoot)
            try appendRecords(lines, ledger)
        }
        suspicious.withLock { $0 = false }
        try syncEverything()
    }

    // MARK: Blobs

    /// Looks at every blob's file; returns those that are not as they should be, to be looked at again under the lock.
    private func checkBlobs(
        quick: Bool, _ report: inout VerifyReport, _ progress: ((Int, Int) -> Void)?
    ) throws -> [(BlobDigest, Int)] {
        // Slots are those of these tables. If they are replaced meanwhile, the walk goes on in the old ones: all blobs that
        // were there at the beginning are looked at, and what looks wrong is confirmed against the current tables.
        let t = tables.read { t, _ in t }
        let total = tables.read { _, _ in t.blobAccount.count }
        let replaced: Set<UInt8>
        do throws(FileError) { replaced = try blobs.shards.replaced() } catch {
            throw StoreError(error, in: files.location)
        }
        var suspects: [(BlobDigest, Int)] = []
        var from: UInt32 = 0
        var more = true
        while more {
            // In the order of their names, a folder's files come together; here a slice of the table is enough.
            let slice = tables.read { _, _ -> [(BlobDigest, Int)] in
                var slice: [(BlobDigest, Int)] = []
                while from < t.blobs.count, slice.count < 4096 {
                    let blob = t.blobs[from].pointee
                    if blob.isLive { slice.append((blob.digest, Int(blob.size))) }
                    from += 1
                }
                more = from < t.blobs.count
                return slice
            }
            let bad = Locked<[(BlobDigest, Int)]>([])
            let hashed = Locked(0)
            let chunk = 64
            DispatchQueue.concurrentPerform(iterations: (slice.count + chunk - 1) / chunk) { part in
                var bytes = 0
                for (digest, size) in slice[(part * chunk)..<min(slice.count, (part + 1) * chunk)] {
                    if !replaced.contains(digest.shard), looksRight(digest, size, quick) {
                        if !quick { bytes += size }
                    } else {
                        bad.withLock { $0.append((digest, size)) }
                    }
                }
                hashed.withLock { $0 += bytes }
            }
            suspects += bad.withLock { $0 }
            report.bytesChecked += hashed.withLock { $0 }
            report.blobsChecked += slice.count
            progress?(min(report.blobsChecked, total), total)
        }
        return suspects.sorted { $0.0 < $1.0 }
    }

    private func looksRight(_ digest: BlobDigest, _ size: Int, _ quick: Bool) -> Bool {
        // A failing disk is as bad as a missing file here: both are confirmed later.
        do throws(FileError) {
            return try quick ? blobs.reader.isThere(digest, size: size) : blobs.reader.isIntact(digest, size: size)
        } catch { return false }
    }

    private func confirm(
        _ digest: BlobDigest, _ size: Int, _ quick: Bool, _ repair: Bool, _ report: inout VerifyReport
    ) throws {
        func look() throws -> DamagedBlob? {
            guard tables.read({ t, _ in t.find(digest) != nil }) else { return nil }
            // A disk that fails, or too many open files, is no reason to drop a blob: that error is the caller's.
            return try blobs.reader.damage(of: digest, size: size, quick: quick)
        }
        let found =
            isReadOnly
            ? try look()
            : try hold { ledger in
                let found = try look()
                if repair, let found { try drop(found, ledger) }
                return found
            }
        guard let found else { return }
        if found.isThere { report.damaged.append(digest) } else { report.missing.append(digest) }
    }

    /// What lies in the cache's folder and in `manifest/` that the store does not make, and passes over.
    private func foreignFiles() throws -> [String] {
        do throws(FileError) {
            var found = try (files.list("") ?? []).filter { !CacheFolder.belongs($0) }
            let last = try max(commit.withLock { $0.generation }, files.newestCheckpoint() ?? 0)
            for name in try files.list("manifest") ?? [] {
                let path = "manifest/" + name
                guard let status = try files.status(at: path) else {
                    // A name that is no Unicode cannot be looked up as it was read.
                    if name.unicodeScalars.contains("\u{FFFD}") { found.append(path) }
                    continue
                }
                let isOurs =
                    name == "reserve" || path == Ledger.lossPath
                    || Ledger.generation(of: name, "checkpoint-", ".json").map { $0 <= last } ?? false
                    // The next one is left behind by a rotation that was broken off.
                    || Ledger.generation(of: name, "journal-", ".jsonl").map { $0 <= last + 1 } ?? false
                    || Ledger.generation(of: name, "index-", ".bin").map { $0 <= last } ?? false
                if !isOurs || status.kind != .file { found.append(path) }
            }
            return found.sorted()
        } catch {
            throw StoreError(error, in: files.location)
        }
    }

    // MARK: The manifest

    /// Whether lines of the manifest could not be read, or a file of it was missing and no repair was asked for since.
    ///
    /// Of the lines, what this process has met; ``verify(quick:repair:progress:)`` reads them all.
    package var hasLosses: Bool {
        get throws {
            do { return try commit.withLock { try $0.damagedLines > 0 || $0.hasLoss() } } catch let error as FileError {
                throw StoreError(error, in: files.location)
            }
        }
    }

    /// Counts lines that cannot be read, from the newest checkpoint to the journal's end as this process has read it.
    private func manifestDamage() throws -> Int {
        do {
            let known = commit.withLock { ($0.chain.checkpoint, $0.generation, $0.offset, $0.damagedLines) }
            guard let newest = try files.newestCheckpoint() else { return 1 }
            var damage = try damagedLines(Ledger.checkpointPath(newest), upTo: nil, isCheckpoint: true)
            var generation = newest
            while generation <= known.1 {
                damage += try damagedLines(
                    Ledger.journalPath(generation), upTo: generation == known.1 ? known.2 : nil, isCheckpoint: false)
                generation += 1
            }
            let isLost = try commit.withLock { try $0.hasLoss() }
            return max(damage, newest == known.0 ? known.3 : 0, isLost ? 1 : 0)
        } catch let error as FileError {
            throw StoreError(error, in: files.location)
        }
    }

    private func damagedLines(_ path: String, upTo limit: Int64?, isCheckpoint: Bool) throws -> Int {
        let file: OpenFile
        do throws(FileError) { file = try files.open(path, .read) } catch {
            // Compacted away meanwhile: what it said stands in a newer checkpoint.
            if error.number == Errno.noEntry { return 0 }
            throw error
        }
        defer { files.close(file) }
        let limit = try min(limit ?? .max, files.status(of: file).size)
        var damage = 0
        var buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 8)
        defer { buffer.deallocate() }
        var at: Int64 = 0
        while at < limit {
            let wanted = Int(min(Int64(buffer.count), limit - at))
            let n = try files.read(file, into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<wanted]), at: at)
            if n == 0 { break }
            var from = 0
            while let newline = buffer[from..<n].firstIndex(of: 0x0A) {
                let line = UnsafeRawBufferPointer(rebasing: buffer[from..<newline])
                if !isRight(line, isCheckpoint, isFirst: at == 0 && from == 0) { damage += 1 }
                from = newline + 1
            }
            if from == 0, n == wanted, buffer.count < 1 << 26, at + Int64(n) < limit {
                buffer.deallocate()
                buffer = .allocate(byteCount: wanted * 2, alignment: 8)
                continue
            }
            at += Int64(from == 0 ? n : from)
            if from == 0 {
                damage += 1
                // A line longer than any, or one without an end: what is behind its line break counts.
                var end: Int?
                while end == nil, at < limit {
                    let n = try files.read(file, into: buffer, at: at)
                    if n == 0 { return damage }
                    end = buffer[..<n].firstIndex(of: 0x0A)
                    at += Int64(end.map { $0 + 1 } ?? n)
                }
            }
        }
        return damage
    }

    private func isRight(_ line: UnsafeRawBufferPointer, _ isCheckpoint: Bool, isFirst: Bool) -> Bool {
        guard isCheckpoint else { return LineReader.body(of: line) != nil }
        if isFirst { return CheckpointHeader(line) != nil }
        if line.elementsEqual("]}".utf8) { return true }
        let bare = line.last == 0x2C ? UnsafeRawBufferPointer(rebasing: line.dropLast()) : line
        return LineReader.body(of: bare) != nil
    }

    // MARK: Invariants

    /// Everything that must always hold, checked against the disk; empty when it does.
    ///
    /// Docs/invariants.md names them.
    package func invariantViolations() throws -> [String] {
        try catchUp()
        var found = tables.read { t, _ in t.accountMismatches() + t.structureFaults() }
        let (blobs, limits) = tables.read { t, _ -> ([(BlobDigest, Int)], String?) in
            var blobs: [(BlobDigest, Int)] = []
            for slot in 0..<t.blobs.count where t.blobs[slot].pointee.isLive {
                blobs.append((t.blobs[slot].pointee.digest, Int(t.blobs[slot].pointee.size)))
            }
            return (blobs, t.limitViolation())
        }
        if let limits { found.append(limits) }
        for (digest, size) in blobs {
            guard let damaged = try self.blobs.reader.damage(of: digest, size: size) else { continue }
            found.append(
                damaged.isThere
                    ? "I10: blob \(digest) has bytes that are not its own"
                    : "I2: blob \(digest) has entries and no file")
        }
        for path in try orphanCandidates() { found.append("I4: \(path) is named by no entry") }
        return found
    }
}

extension Tables {
    /// I1, from what is there and not from the accounts by which eviction goes.
    fileprivate func limitViolation() -> String? {
        var (bytes, count) = (0, 0)
        for slot in 0..<blobs.count {
            let blob = blobs[slot].pointee
            if blob.isLive, blob.pins == 0 { bytes += allocated(blob.size) }
        }
        for slot in 0..<entries.count {
            let record = entries[slot].pointee
            guard record.isLive, record.blob == noSlot || blobs[record.blob].pointee.isLive else { continue }
            if !record.isPinned { count += 1 }
        }
        for share in shares where allocatedUnpinned(of: share.source) > share.capacity {
            return "I1: \(names.sources[Int(share.source)]) holds \(share.allocated) bytes of its \(share.capacity)"
        }
        let isKept = bytes <= limits.capacity ?? .max && count <= limits.entryLimit
        return isKept ? nil : "I1: \(bytes) bytes and \(count) entries are not pinned; the limits are \(limits)"
    }

    /// I3 and I6: counts and accounts against what they count.
    func accountMismatches() -> [String] {
        var found: [String] = []
        var references: [UInt32: (all: UInt32, pinned: UInt32)] = [:]
        var (live, unpinned, logical) = (0, 0, 0)
        for slot in 0..<entries.count {
            let record = entries[slot].pointee
            guard record.isLive, record.blob == noSlot || blobs[record.blob].pointee.isLive else { continue }
            live += 1
            if !record.isPinned { unpinned += 1 }
            if record.isPinned != isPinned(record.key) {
                found.append("I7: \(key(record.key)) pinned: \(record.isPinned)")
            }
            guard record.blob != noSlot else { continue }
            references[record.blob, default: (0, 0)].all += 1
            if record.isPinned { references[record.blob, default: (0, 0)].pinned += 1 }
            logical += Int(blobs[record.blob].pointee.size)
        }
        var (count, bytes, free, pinned) = (0, 0, 0, 0)
        for slot in 0..<blobs.count {
            let blob = blobs[slot].pointee
            guard blob.isLive else { continue }
            count += 1
            bytes += Int(blob.size)
            if blob.pins > 0 { pinned += allocated(blob.size) } else { free += allocated(blob.size) }
            let counted = references[slot] ?? (0, 0)
            if counted.all != blob.references || counted.pinned != blob.pins || blob.references == 0 {
                found.append("I3: blob \(blob.digest) counts \(blob.references)/\(blob.pins), has \(counted)")
            }
        }
        func compare(_ name: String, _ account: Int, _ sum: Int) {
            if account != sum { found.append("I6: \(name) is \(account), the sum \(sum)") }
        }
        compare("entryCount", entryAccount.count, live)
        compare("unpinnedEntries", entryAccount.unpinned, unpinned)
        compare("logicalBytes", blobAccount.logicalBytes, logical)
        compare("blobCount", blobAccount.count, count)
        compare("blobBytes", blobAccount.bytes, bytes)
        compare("allocatedUnpinned", blobAccount.allocatedUnpinned, free)
        compare("allocatedPinned", blobAccount.allocatedPinned, pinned)
        for share in shares {
            let name = names.sources[Int(share.source)]
            compare("allocated of \(name)", share.allocated, allocatedUnpinned(of: share.source))
        }
        return found
    }

    /// What the unpinned blobs come to that entries of a source name.
    private func allocatedUnpinned(of source: UInt16) -> Int {
        var named: Set<UInt32> = []
        for slot in 0..<entries.count {
            let record = entries[slot].pointee
            guard record.isLive, record.key.source == source, record.blob != noSlot else { continue }
            if blobs[record.blob].pointee.isLive, blobs[record.blob].pointee.pins == 0 { named.insert(record.blob) }
        }
        return named.reduce(0) { $0 + allocated(blobs[$1].pointee.size) }
    }

    /// The order of use holds every unpinned record once, in order; the indexes find every record.
    func structureFaults() -> [String] {
        var found: [String] = []
        func check<R: RecencyListed>(
            _ name: String, _ list: RecencyList<R>, _ table: borrowing Segments<R>, _ expected: Int
        ) {
            var (slot, before, count) = (list.first, noSlot, 0)
            var recency: UInt64 = 0
            while slot != noSlot, count <= expected {
                let record = table[slot].pointee
                if record.before != before || record.recency < recency {
                    found.append("I5: \(name) out of order at \(slot)")
                }
                (recency, before, slot, count) = (record.recency, slot, record.after, count + 1)
            }
            if count != expected || list.last != before {
                found.append("I5: \(name) has \(count), expected \(expected)")
            }
        }
        var (entriesExpected, blobsExpected) = (0, 0)
        for slot in 0..<entries.count {
            let record = entries[slot].pointee
            guard record.isLive, record.blob == noSlot || blobs[record.blob].pointee.isLive else { continue }
            if !record.isPinned { entriesExpected += 1 }
            if find(record.key) != slot { found.append("I3: entry \(key(record.key)) is not found by its key") }
        }
        for slot in 0..<blobs.count where blobs[slot].pointee.isLive {
            if blobs[slot].pointee.pins == 0 { blobsExpected += 1 }
            if find(blobs[slot].pointee.digest) != slot {
                found.append("I3: blob \(blobs[slot].pointee.digest) is not found")
            }
        }
        check("the order of entries", entryOrder, entries, entriesExpected)
        check("the order of blobs", blobOrder, blobs, blobsExpected)
        return found
    }
}
