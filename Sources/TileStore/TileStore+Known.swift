#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// An entry in the state that it had at one time, for answers that are made ready once and given again and again.
///
/// To look at it again takes no text and no copy of what the tables say; it shows at once whether anything has changed. 88
/// bytes, and none elsewhere but the fields that entries share.
package struct KnownEntry: Sendable {
    /// The part of the response that entries share.
    package let response: ResponseFields
    /// The number of the tables in which the key means this entry.
    fileprivate let tables: UInt64
    fileprivate let key: PackedKey
    fileprivate let packedStoredAt: UInt32
    fileprivate let packedExpires: UInt32
    fileprivate let packedModified: UInt32
    fileprivate let packedAge: UInt32
    fileprivate let packedSize: UInt32
    fileprivate let blob: BlobDigest?

    fileprivate init(_ entry: TileEntry, _ key: PackedKey, _ tables: UInt64) {
        let metadata = entry.metadata
        response = metadata.response
        self.key = key
        self.tables = tables
        packedStoredAt = metadata.storedAt.packed
        packedExpires = metadata.expires.packed
        packedModified = metadata.lastModified?.packed ?? Timestamp.absent
        packedAge = UInt32(clamping: metadata.initialAge)
        packedSize = UInt32(clamping: entry.size)
        blob = entry.blob
    }

    /// When the response was received.
    package var storedAt: Timestamp { Timestamp(packed: packedStoredAt) }
    /// When the entry turns stale.
    package var expires: Timestamp { Timestamp(packed: packedExpires) }
    /// How old the response was when it was received, in seconds.
    package var initialAge: Int { Int(packedAge) }
    /// The body's size in bytes; 0 without one.
    package var size: Int { Int(packedSize) }
    /// Whether there is a body.
    package var hasBody: Bool { blob != nil }
}

/// Where the body of a ``KnownEntry`` is to be had.
package struct KnownBody {
    /// The bytes, if they are in memory.
    package let data: Data?
    fileprivate let blob: BlobDigest?
    fileprivate let size: Int
    fileprivate let check: BlobCheck
}

extension Tables {
    /// Where an entry is, if nothing of it has changed.
    ///
    /// The tag is not looked at: with the same bytes and the same times, a former one is as right as the new one.
    @inline(__always)
    fileprivate func find(_ known: KnownEntry) -> UInt32? {
        guard known.tables == number, let slot = find(known.key) else { return nil }
        let record = entries[slot].pointee
        guard record.storedAt == known.packedStoredAt, record.expires == known.packedExpires,
            (record.blob == noSlot ? nil : blobs[record.blob].pointee.digest) == known.blob
        else { return nil }
        let times = details.times(record.details)
        guard times.lastModified == known.packedModified, times.initialAge == known.packedAge,
            fields(record.set) == known.response
        else { return nil }
        return slot
    }
}

extension TileStore {
    /// Remembers an entry in the state that it was read in; `nil` if nothing is known of its key any more.
    package func known(_ entry: TileEntry) -> KnownEntry? {
        tables.read { tables, _ in
            tables.packed(entry.key).map { KnownEntry(entry, $0, tables.number) }
        }
    }

    /// Looks whether an entry is still as it was, and notes a use of it.
    ///
    /// Waits for nothing but, now and then, the length of a file.
    /// - Returns: `nil` if anything has changed.
    /// - Throws: ``StoreError`` if the store is closed or the disk fails.
    package func find(_ known: KnownEntry) throws -> KnownBody? {
        let check = try look { tables, local, isFirstUse -> BlobCheck? in
            guard let slot = tables.find(known) else { return nil }
            note(PendingUse(key: known.key, blob: known.blob), &local, &isFirstUse)
            return tables.check(ofEntry: slot)
        }
        guard let check else { return nil }
        let data = known.blob.flatMap { memory.data(for: $0) }
        return KnownBody(data: data, blob: known.blob, size: known.size, check: check)
    }

    /// Reads a body that is not in memory, if that needs no waiting: from the system's page cache.
    ///
    /// Blobs of more than 256 KiB that have to be hashed are left to ``read(_:)``.
    /// - Parameter buffer: Room for one byte more than the body has.
    /// - Returns: Whether the bytes are there, and are the right ones; if not, ``read(_:)`` has to look.
    package func readNow(_ body: KnownBody, into buffer: UnsafeMutableRawBufferPointer) -> Bool {
        guard let blob = body.blob, buffer.count == body.size + 1 else { return false }
        if needsCheck(body.check), body.size > 256 << 10 { return false }
        do throws(FileError) {
            guard try fill(buffer, blob, body.check, onlyCached: true) else { return false }
        } catch {
            // Said again, and properly, by the read that may wait.
            return false
        }
        if memory.takes(body.size), let base = buffer.baseAddress {
            memory.insert(Data(bytes: base, count: body.size), for: blob)
        }
        return true
    }
}
