#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// A key in the form in which the tables find it without any text: 24 bytes.
///
/// It belongs to the tables that gave it out; in others it finds nothing.
package struct KnownKey: Hashable, Sendable {
    fileprivate let key: OfTables<PackedKey>

    fileprivate init(_ key: OfTables<PackedKey>) { self.key = key }

    /// The key of another tile of the same source, scale and format; the tile must be one that a ``TileAddress`` can have.
    @inline(__always)
    package func tile(z: Int, x: Int, y: Int) -> KnownKey {
        KnownKey(key.map { PackedKey(source: $0.source, z: z, x: x, y: y, variant: $0.variant) })
    }
}

/// What the tables say of an entry, without references to count: what an answer needs that is made anew for each hit.
package struct KnownEntry {
    /// The ``ResponseFields/identity`` of the part of the response that entries share.
    package let fields: ObjectIdentifier
    /// How many bytes of entity tag were written; 0 without one.
    package let tagLength: Int
    fileprivate let blob: BlobDigest?
    fileprivate let check: BlobCheck
    fileprivate let packedStoredAt: UInt32
    fileprivate let packedExpires: UInt32
    fileprivate let packedModified: UInt32
    fileprivate let packedAge: UInt32
    fileprivate let packedSize: UInt32

    /// When the response was received.
    package var storedAt: Timestamp { Timestamp(packed: packedStoredAt) }
    /// When the entry turns stale.
    package var expires: Timestamp { Timestamp(packed: packedExpires) }
    /// The `Last-Modified` time.
    package var lastModified: Timestamp? {
        packedModified == Timestamp.absent ? nil : Timestamp(packed: packedModified)
    }
    /// How old the response was when it was received, in seconds.
    package var initialAge: Int { Int(packedAge) }
    /// The body's size in bytes; 0 without one.
    package var size: Int { Int(packedSize) }
    /// Whether there is a body.
    package var hasBody: Bool { blob != nil }

    /// The room that an entity tag needs.
    package static let tagRoom = TagBytes.longest + 8

    /// Writes the 64 digits of the body's digest; `false` without a body or with less room.
    package func spellDigest(to room: UnsafeMutableRawBufferPointer) -> Bool {
        guard let blob, room.count >= 64, let base = room.baseAddress else { return false }
        blob.spell(to: base)
        return true
    }
}

/// Where the body of a ``KnownEntry`` is to be had.
package struct KnownBody {
    /// The bytes, if they are in memory.
    package let data: Data?
    fileprivate let blob: BlobDigest?
    fileprivate let size: Int
    fileprivate let check: BlobCheck
}

extension ResponseFields {
    /// The same for copies of one value; equal values that were made apart may differ.
    ///
    /// It stays this value's own for as long as a copy of it exists.
    package var identity: ObjectIdentifier { ObjectIdentifier(storage) }
}

extension Tables {
    @inline(__always)
    fileprivate func find(_ known: KnownKey) -> (slot: UInt32, key: PackedKey)? {
        guard let key = known.key.value(in: self), let slot = find(key) else { return nil }
        return (slot, key)
    }

    /// What is said of an entry; its tag is written to the room.
    @inline(__always)
    fileprivate func known(_ slot: UInt32, _ room: UnsafeMutableRawBufferPointer) -> KnownEntry? {
        let record = entries[slot].pointee
        guard let fields = sets[record.set]?.fields.identity else { return nil }
        let blob = record.blob == noSlot ? nil : blobs[record.blob].pointee
        let times = details.times(record.details)
        return KnownEntry(
            fields: fields, tagLength: details.spellTag(record.details, to: room), blob: blob?.digest,
            check: BlobCheck(isVerified: blob?.isVerified ?? false, tables: number), packedStoredAt: record.storedAt,
            packedExpires: record.expires, packedModified: times.lastModified, packedAge: times.initialAge,
            packedSize: blob?.size ?? 0)
    }
}

extension TileStore {
    /// The form of a key that is found without text; `nil` if nothing is known of its names.
    package func known(_ key: TileKey) -> KnownKey? {
        tables.read { tables, _ in tables.packed(key).map { KnownKey(OfTables($0, tables)) } }
    }

    /// What is stored under a key, if it is not stale at a time, and a note of its use.
    ///
    /// Takes no file lock and reads no file, except that it asks now and then for the journal's length.
    /// - Parameters:
    ///   - now: The time that decides, as by ``TileMetadata/isStale(at:)``.
    ///   - room: Where the entity tag is written: at least ``KnownEntry/tagRoom`` bytes.
    /// - Returns: `nil` for a miss and for a stale entry.
    /// - Throws: ``StoreError`` if the store is closed or the disk fails.
    package func find(
        _ key: KnownKey, at now: Timestamp, tag room: UnsafeMutableRawBufferPointer
    ) throws -> KnownEntry? {
        guard room.count >= KnownEntry.tagRoom else { return nil }
        return try look { tables, local, isFirstUse -> KnownEntry? in
            guard let (slot, key) = tables.find(key), let entry = tables.known(slot, room), entry.expires > now,
                entry.storedAt.seconds <= now.adding(seconds: 60).seconds
            else { return nil }
            note(PendingUse(key: key, blob: entry.blob), in: tables, &local, &isFirstUse)
            return entry
        }
    }

    /// Whether the entry under a key has these shared fields, with a note of its use if so.
    ///
    /// - Throws: ``StoreError`` if the store is closed or the disk fails.
    package func has(_ fields: ResponseFields, under key: KnownKey) throws -> Bool {
        let found = try look { tables, local, isFirstUse -> Bool? in
            guard let (slot, key) = tables.find(key) else { return nil }
            let record = tables.entries[slot].pointee
            guard tables.fields(record.set) == fields else { return nil }
            let blob = record.blob == noSlot ? nil : tables.blobs[record.blob].pointee.digest
            note(PendingUse(key: key, blob: blob), in: tables, &local, &isFirstUse)
            return true
        }
        return found ?? false
    }

    /// The shared fields of the entry under a key.
    package func fields(under key: KnownKey) -> ResponseFields? {
        tables.read { tables, _ in tables.find(key).map { tables.fields(tables.entries[$0.slot].pointee.set) } }
    }

    /// Where an entry's body is to be had.
    @inline(__always)
    package func body(of entry: KnownEntry) -> KnownBody {
        KnownBody(
            data: entry.blob.flatMap { memory.data(for: $0) }, blob: entry.blob, size: entry.size, check: entry.check)
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
            // Ignored here: the blocking read reports the error.
            return false
        }
        if memory.takes(body.size), let base = buffer.baseAddress {
            memory.insert(Data(bytes: base, count: body.size), for: blob)
        }
        return true
    }
}
