// What is known to be on the disk, where relaxed and durable stores share a folder.
//
// The last `boot` record says it: while there is none, or it is `null`, every blob that an entry names has been synced.
// A durable store keeps that so without any record, because it syncs a blob before an entry names it. A relaxed store
// writes a record before its first new blob, and syncs that one record. From then on a durable store writes a blob anew that
// is there already, before it counts on it, until all has been synced and a `null` record says so.
extension TileStore {
    /// Stands in the place of the machine's start where that cannot be told: it is never the present one.
    static var unknownBoot: String { "unknown" }

    /// Under the lock, in relaxed mode: records that from now on blobs may be there that have not been synced.
    func markUnsynced(_ ledger: Ledger) throws {
        try ledger.mark(unsyncedSince: environment.bootID ?? Self.unknownBoot, .live(tables))
    }

    /// Under the lock, in durable mode: syncs the file of a live blob, if its bytes are right.
    func syncLive(_ digest: BlobDigest, _ size: Int) throws -> Bool {
        guard try blobs.reader.isIntact(digest, size: size) else { return false }
        try blobs.sync(digest)
        noteSynced(digest)
        return true
    }

    /// Takes note that a blob's file has been synced, where that is not known of all.
    func noteSynced(_ digest: BlobDigest) {
        guard tables.read({ t, _ in t.find(digest).map { t.mayBeUnsynced($0) } ?? false }) else { return }
        tables.write { $0.note(BlobRecord.synced, of: digest) }
    }

    /// Syncs what relaxed stores have written and records that, so that nobody has to doubt it any more.
    ///
    /// In durable mode, where there is something to doubt; else nothing. Blobs that were written before the machine's last
    /// start have to be hashed first, which ``verify(quick:repair:progress:)`` does.
    func syncEverything() throws {
        guard isDurable, !isReadOnly, !suspicious.withLock({ $0 }) else { return }
        try catchUp()
        guard tables.read({ t, _ in t.boot != nil }) else { return }
        for _ in 0..<3 {
            let seen = try hold { ledger in (isMarked(ledger), ledger.loads, ledger.followedBytes) }
            guard seen.0 else { return }
            // Not under the lock: it may take long.
            do throws(FileError) { guard try files.syncAll() else { return } } catch {
                throw StoreError(error, in: files.location)
            }
            let isDone = try hold { ledger -> Bool in
                guard isMarked(ledger) else { return true }
                // Another store has written meanwhile: once more.
                guard ledger.loads == seen.1, ledger.followedBytes == seen.2 else { return false }
                var lines = LineBuffer(capacity: 64)
                lines.boot(nil)
                try ledger.append(lines, .live(tables))
                return true
            }
            if isDone { return }
        }
    }

    /// Waits until all that has been stored in the cache is on its disk, so that a power cut takes none of it.
    ///
    /// For the end of a download or an import. In durable mode that holds after each put; in relaxed mode the system may take half a minute
    /// by itself. On Linux the whole file system of the folder is synced, with what others have written there; elsewhere one blob after the other.
    /// It blocks for as long as the disk takes, and keeps nobody from reading or writing meanwhile. Does nothing in a store that is open for reading alone.
    /// - Throws: `StoreError` with what the disk reports; then nothing can be said of what was stored before.
    public func sync() throws {
        guard !isReadOnly else { return }
        try catchUp()
        if hasPendingUses { try flush() }
        do throws(FileError) {
            if try !files.syncAll() {
                for digest in liveBlobs() { try blobs.syncIfThere(digest) }
                try blobs.shards.syncAll()
            }
        } catch { throw StoreError(error, in: files.location) }
        try hold { try $0.syncLines() }
    }

    private func liveBlobs() -> [BlobDigest] {
        let t = tables.read { t, _ in t }
        var (found, from, more): ([BlobDigest], UInt32, Bool) = ([], 0, true)
        while more {
            more = tables.read { _, _ in
                let end = min(t.blobs.count, from + 16384)
                for slot in from..<max(from, end) where t.blobs[slot].pointee.isLive {
                    found.append(t.blobs[slot].pointee.digest)
                }
                from = max(from, end)
                return end < t.blobs.count
            }
            giveWay()
        }
        return found
    }

    private func isMarked(_ ledger: Ledger) -> Bool { ledger.glance.hasBoot }
}

extension StoreEnvironment {
    /// Whether the machine was started anew since unsynced blobs were written, going by the last record of that.
    ///
    /// A start that cannot be told from others may be another one.
    func mayHaveLost(_ tables: Tables) -> Bool { tables.boot != nil && tables.boot != bootID }
}

extension Tables {
    /// Takes note of what this process knows of a blob's file, by a flag of its record.
    func note(_ flag: UInt16, of digest: BlobDigest) {
        if let slot = find(digest) { blobs.change(slot).pointee.flags |= flag }
    }

    func forget(_ flag: UInt16, of digest: BlobDigest) {
        if let slot = find(digest) { blobs.change(slot).pointee.flags &= ~flag }
    }

    /// Whether a power cut might still take a live blob's file, as far as is known.
    @inline(__always)
    func mayBeUnsynced(_ blob: UInt32) -> Bool {
        boot != nil && blobs[blob].pointee.flags & BlobRecord.synced == 0
    }
}
