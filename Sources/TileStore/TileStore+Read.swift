#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Whether a blob's file was hashed by this process, as the tables said when its entry was looked up.
struct BlobCheck {
    var isVerified: Bool
    /// The number of those tables: what is found out about the file is noted in no others.
    var tables: UInt64
}

extension Tables {
    @inline(__always)
    func check(ofEntry slot: UInt32) -> BlobCheck {
        let blob = entries[slot].pointee.blob
        return BlobCheck(isVerified: blob != noSlot && blobs[blob].pointee.isVerified, tables: number)
    }
}

extension TileStore {
    /// What a look at the tables gives, taken under a stripe's lock.
    struct Found {
        var entry: TileEntry
        var check: BlobCheck
    }

    /// The tile under a key with its bytes, and the note that it was used.
    ///
    /// Takes no file lock. A blob that is missing or damaged is never returned: it is a miss, and the blob is dropped with
    /// all its entries. Costs about a microsecond from memory and little more than open, read and close from disk.
    /// - Returns: `nil` for a miss.
    /// - Throws: `StoreError` if the store is closed or the disk fails; never for a miss.
    public func read(_ key: TileKey) throws -> StoredTile? {
        guard let found = try find(key, recordsUse: true) else { return nil }
        guard let digest = found.entry.blob else { return StoredTile(entry: found.entry, data: nil, origin: .memory) }
        if let data = memory.data(for: digest) { return StoredTile(entry: found.entry, data: data, origin: .memory) }
        if let data = try readBlob(digest, size: found.entry.size, found.check) {
            return StoredTile(entry: found.entry, data: data, origin: .disk)
        }
        // Replaced or evicted since the look-up, by this process or another: look again.
        try catchUp()
        guard let again = try find(key, recordsUse: true), let digest = again.entry.blob else { return nil }
        if let data = try readBlob(digest, size: again.entry.size, again.check) {
            return StoredTile(entry: again.entry, data: data, origin: .disk)
        }
        do { try settleDamage(digest) } catch let error as StoreError where error.code != .closed {
            // A miss either way. What could not be recorded now (another holder of the lock, a full disk) is found again by
            // the next reader, and by verify.
        }
        return nil
    }

    /// What ``readNow(_:)`` found.
    package enum ImmediateRead {
        case tile(StoredTile)
        case miss
        /// Only ``read(_:)``, on a thread that may wait, can tell.
        case mustWait
    }

    /// Reads a tile if that needs no waiting: from memory, or from the system's page cache.
    ///
    /// For callers that must not block, such as event loops and the cooperative pool. Blobs of more than 256 KiB that have
    /// to be hashed are left to ``read(_:)``.
    package func readNow(_ key: TileKey) throws -> ImmediateRead {
        guard let found = try find(key, recordsUse: true) else { return .miss }
        return try readNow(found)
    }

    @inline(__always)
    func readNow(_ found: Found) throws -> ImmediateRead {
        guard let digest = found.entry.blob else {
            return .tile(StoredTile(entry: found.entry, data: nil, origin: .memory))
        }
        if let data = memory.data(for: digest) {
            return .tile(StoredTile(entry: found.entry, data: data, origin: .memory))
        }
        if needsCheck(found.check), found.entry.size > 256 << 10 { return .mustWait }
        do throws(FileError) {
            if let data = try loadBlob(digest, size: found.entry.size, found.check, onlyCached: true) {
                return .tile(StoredTile(entry: found.entry, data: data, origin: .disk))
            }
        } catch {
            // Said again, and properly, by the read that may wait.
        }
        return .mustWait
    }

    /// The entry under a key, without its bytes and without a note of use.
    public func entry(for key: TileKey) throws -> TileEntry? { try find(key, recordsUse: false)?.entry }

    /// The entry under a key if its blob's file is there with the right length; without a note of use.
    ///
    /// `nil` as well for an entry whose file is gone. Costs an `lstat`.
    package func entryWithBlob(_ key: TileKey) throws -> TileEntry? {
        guard let entry = try find(key, recordsUse: false)?.entry, let blob = entry.blob else {
            return try entry(for: key)
        }
        do throws(FileError) { return try blobs.reader.isThere(blob, size: entry.size) ? entry : nil } catch {
            throw StoreError(error, in: files.location)
        }
    }

    /// Notes a use of a key that was served from elsewhere, such as a cache of prepared responses.
    ///
    /// Written down later, together with others; it counts if the key still has the same blob then.
    public func touch(_ key: TileKey, _ version: EntryVersion) throws {
        guard !isReadOnly else { return }
        let first = tables.read { tables, local -> Bool in
            guard let packed = tables.packed(key) else { return false }
            return local.uses.note(PendingUse(key: packed, blob: version.blob), in: tables)
        }
        if first { maintenance?.scheduleFlush() }
    }

    @inline(__always)
    func find(_ key: TileKey, recordsUse: Bool) throws -> Found? {
        try look { tables, local, isFirstUse in
            guard let packed = tables.packed(key, &local.names), let slot = tables.find(packed) else { return nil }
            let entry = tables.entry(slot, key: key)
            if recordsUse { note(PendingUse(key: packed, blob: entry.blob), in: tables, &local, &isFirstUse) }
            return Found(entry: entry, check: tables.check(ofEntry: slot))
        }
    }

    /// Looks something up, after catching up if that is due; the body may be called twice.
    @inline(__always)
    func look<R>(_ body: (Tables, inout ReaderLocal, _ isFirstUse: inout Bool) -> R?) throws -> R? {
        var askForNews = false
        var isFirstUse = false
        var found = try look(&askForNews, &isFirstUse, body)
        if askForNews {
            try catchUpOnRead()
            found = try look(&askForNews, &isFirstUse, body)
        }
        if isFirstUse { maintenance?.scheduleFlush() }
        return found
    }

    // The two go from hand to hand: variables that a nested function captures would be watched while it runs.
    @inline(__always)
    private func look<R>(
        _ askForNews: inout Bool, _ isFirstUse: inout Bool,
        _ body: (Tables, inout ReaderLocal, _ isFirstUse: inout Bool) -> R?
    ) throws -> R? {
        try tables.read { tables, local -> R? in
            if local.isClosed { throw closedError }
            if !askForNews, catchUpIfDue(&local) { askForNews = true }
            return body(tables, &local, &isFirstUse)
        }
    }

    /// Notes a use under a stripe's lock.
    @inline(__always)
    func note(_ use: PendingUse, in tables: Tables, _ local: inout ReaderLocal, _ isFirst: inout Bool) {
        // Noting it a second time, after catching up, must not hide that it was the first.
        if !isReadOnly, local.uses.note(use, in: tables) { isFirst = true }
    }

    // MARK: Blobs

    /// Reads a blob's file.
    ///
    /// `nil` if it is missing, of another length, no plain file, or has other bytes.
    func readBlob(_ digest: BlobDigest, size: Int, _ check: BlobCheck) throws -> Data? {
        do throws(FileError) {
            return try loadBlob(digest, size: size, check, onlyCached: false)
        } catch {
            throw StoreError(error, in: files.location)
        }
    }

    @inline(__always)
    private func loadBlob(
        _ digest: BlobDigest, size: Int, _ check: BlobCheck, onlyCached: Bool
    ) throws(FileError) -> Data? {
        if size > BlobReader.mostAtOnce, try !blobs.reader.isThere(digest, size: size) { return nil }
        guard let memory = malloc(size + 1) else { throw FileError("allocate for", digest.path, ENOMEM) }
        let buffer = UnsafeMutableRawBufferPointer(start: memory, count: size + 1)
        do throws(FileError) {
            guard try fill(buffer, digest, check, onlyCached: onlyCached) else {
                free(memory)
                return nil
            }
        } catch {
            free(memory)
            throw error
        }
        let data = Data(bytesNoCopy: memory, count: size, deallocator: .free)
        self.memory.insert(data, for: digest)
        return data
    }

    /// Reads a blob's file into memory that has room for one byte more, and hashes it if that is still to be done; `false` as
    /// ``BlobReader/fill(_:_:hashes:onlyCached:)``.
    @inline(__always)
    func fill(
        _ buffer: UnsafeMutableRawBufferPointer, _ digest: BlobDigest, _ check: BlobCheck, onlyCached: Bool
    ) throws(FileError) -> Bool {
        let hashes = needsCheck(check)
        guard try blobs.reader.fill(buffer, digest, hashes: hashes, onlyCached: onlyCached) else { return false }
        if hashes, !check.isVerified { markVerified(digest, in: check.tables) }
        return true
    }

    func needsCheck(_ check: BlobCheck) -> Bool {
        switch configuration.digestCheck {
        case .always: true
        case .first: !check.isVerified
        case .never: !check.isVerified && suspicious.withLock { $0 }
        }
    }

    /// Notes that a blob's file has the right bytes, unless the tables were replaced since: these may be of another folder.
    func markVerified(_ digest: BlobDigest, in number: UInt64) {
        tables.write { tables in
            if tables.number == number { tables.note(BlobRecord.verified, of: digest) }
        }
    }
}
