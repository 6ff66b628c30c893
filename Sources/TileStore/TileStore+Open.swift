#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// The body of an entry, for a caller that sends it on in pieces.
package enum StoredBody: Sendable {
    /// There is none.
    case none
    /// The whole of it. Bodies of the memory tier are shared, not copied.
    case memory(Data)
    /// Its file.
    case file(BlobFile)

    /// Its size in bytes.
    package var count: Int {
        switch self {
        case .none: 0
        case .memory(let data): data.count
        case .file(let file): file.size
        }
    }
}

/// An entry with its body: whole if it is small or in memory, else as an open file.
package struct OpenedTile: Sendable {
    package let entry: TileEntry
    package let body: StoredBody

    package init(entry: TileEntry, body: StoredBody) {
        self.entry = entry
        self.body = body
    }
}

// For servers: a client that reads slowly must not keep a large body in memory.
extension TileStore {
    /// What ``openNow(_:wholeUpTo:)`` found.
    package enum ImmediateOpen {
        case tile(OpenedTile)
        case miss
        /// Only ``open(_:wholeUpTo:)``, on a thread that may wait, can tell.
        case mustWait
    }

    /// Finds an entry and its body, if that needs no waiting, and notes the use.
    ///
    /// - Parameter most: Bodies up to this size are read whole, as ``readNow(_:)`` does; of larger ones that are not in
    ///   memory the file is opened. One that has to be hashed first must wait.
    package func openNow(_ key: TileKey, wholeUpTo most: Int) throws -> ImmediateOpen {
        guard let found = try find(key, recordsUse: true) else { return .miss }
        guard let digest = found.entry.blob, found.entry.size > most else {
            switch try readNow(found) {
            case .tile(let tile): return .tile(OpenedTile(entry: tile.entry, body: StoredBody(tile.data)))
            case .miss: return .miss
            case .mustWait: return .mustWait
            }
        }
        if let data = memory.data(for: digest) {
            return .tile(OpenedTile(entry: found.entry, body: .memory(data)))
        }
        guard !needsCheck(found.check) else { return .mustWait }
        do throws(FileError) {
            guard let file = try openBlob(digest, size: found.entry.size, found.check) else { return .mustWait }
            return .tile(OpenedTile(entry: found.entry, body: .file(file)))
        } catch {
            // Ignored here: the blocking way reports the error.
            return .mustWait
        }
    }

    /// Finds an entry and its body, and notes the use; may block.
    ///
    /// A blob that is missing or damaged is a miss, and is dropped with all its entries, as by ``read(_:)``.
    /// - Parameter most: Bodies up to this size are read whole; of larger ones that are not in memory the file is opened,
    ///   after its bytes were hashed where ``read(_:)`` would hash them.
    /// - Throws: `StoreError` if the store is closed or the disk fails; never for a miss.
    package func open(_ key: TileKey, wholeUpTo most: Int) throws -> OpenedTile? {
        var damaged: BlobDigest?
        // The second look is for a blob that was replaced or evicted since the first.
        for look in 0..<2 {
            if look > 0 { try catchUp() }
            guard let found = try find(key, recordsUse: true) else { return nil }
            guard let digest = found.entry.blob, found.entry.size > most else {
                return try read(key).map { OpenedTile(entry: $0.entry, body: StoredBody($0.data)) }
            }
            if let data = memory.data(for: digest) { return OpenedTile(entry: found.entry, body: .memory(data)) }
            do throws(FileError) {
                if let file = try openBlob(digest, size: found.entry.size, found.check) {
                    return OpenedTile(entry: found.entry, body: .file(file))
                }
            } catch {
                throw StoreError(error, in: files.location)
            }
            damaged = digest
        }
        guard let damaged else { return nil }
        do { try settleDamage(damaged) } catch let error as StoreError where error.code != .closed {
            // A miss either way. The next reader, or verify, finds what could not be recorded now.
        }
        return nil
    }

    /// Opens the file of a blob that an entry names; may block.
    ///
    /// - Returns: `nil` if no entry names it, or if its file is missing or damaged.
    /// - Throws: `StoreError` if the disk fails.
    package func open(_ digest: BlobDigest) throws -> BlobFile? {
        let found = tables.read { t, _ in
            t.find(digest).map {
                let blob = t.blobs[$0]
                let check = BlobCheck(isVerified: blob.pointee.isVerified, tables: t.number)
                return (size: Int(blob.pointee.size), check: check)
            }
        }
        guard let found else { return nil }
        do throws(FileError) { return try openBlob(digest, size: found.size, found.check) } catch {
            throw StoreError(error, in: files.location)
        }
    }

    /// Opens a blob's file, or shares it with those who read it already, and hashes it if that is still to be done.
    ///
    /// `nil` if it is missing, of another length, no plain file, or has other bytes.
    func openBlob(_ digest: BlobDigest, size: Int, _ check: BlobCheck) throws(FileError) -> BlobFile? {
        let hashes = needsCheck(check)
        guard let file = try blobs.reader.open(digest, size: size, hashes: hashes) else { return nil }
        if hashes, !check.isVerified { markVerified(digest, in: check.tables) }
        return file
    }
}

extension StoredBody {
    fileprivate init(_ data: Data?) { self = data.map { .memory($0) } ?? .none }
}
