#if canImport(CLMDB)
import CLMDB
import Foundation
import TileStore

/// A tile cache as one would build it on LMDB.
///
/// Four tables: `map` (key: digest, expiry, last use, entity tag), `images` (digest: bytes), `counts` (digest: number of
/// entries), `uses` (last use and key, for eviction in that order). `MDB_NOSYNC`: a killed process loses nothing, while a
/// power cut may damage the whole file, which is more than the store's relaxed mode may lose.
final class LMDBCache: PeerCache {
    private let environment: OpaquePointer
    private let map: MDB_dbi
    private let images: MDB_dbi
    private let counts: MDB_dbi
    private let uses: MDB_dbi
    /// Kept and renewed, as LMDB's documentation advises.
    private let reading: OpaquePointer

    init(at path: String) throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        var made: OpaquePointer?
        try check(mdb_env_create(&made), "mdb_env_create")
        let environment = try made.orThrow()
        try check(mdb_env_set_maxdbs(environment, 4), "mdb_env_set_maxdbs")
        // Address space, and a file with holes: what is not used takes no memory and no disk.
        try check(mdb_env_set_mapsize(environment, 32 << 30), "mdb_env_set_mapsize")
        try check(
            mdb_env_open(environment, path, UInt32(MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD), 0o644), "mdb_env_open")
        var transaction: OpaquePointer?
        try check(mdb_txn_begin(environment, nil, 0, &transaction), "mdb_txn_begin")
        func table(_ name: String) throws -> MDB_dbi {
            var table = MDB_dbi()
            try check(mdb_dbi_open(transaction, name, UInt32(MDB_CREATE), &table), "mdb_dbi_open")
            return table
        }
        (map, images) = (try table("map"), try table("images"))
        (counts, uses) = (try table("counts"), try table("uses"))
        try check(mdb_txn_commit(transaction), "mdb_txn_commit")
        var reader: OpaquePointer?
        try check(mdb_txn_begin(environment, nil, UInt32(MDB_RDONLY), &reader), "mdb_txn_begin")
        reading = try reader.orThrow()
        mdb_txn_reset(reading)
        self.environment = environment
    }

    func read(_ key: TileKey) throws -> Data? {
        try check(mdb_txn_renew(reading), "mdb_txn_renew")
        defer { mdb_txn_reset(reading) }
        guard let record = try get(reading, map, bytes(of: key)), record.count >= 32,
            let image = try get(reading, images, Array(record.prefix(32)))
        else { return nil }
        return Data(image)
    }

    func put(_ tile: TilePut, use: Int) throws { try write { try put(tile, use: use, in: $0) } }

    func put(_ tiles: ArraySlice<TilePut>, use: Int) throws {
        try write { transaction in
            for (offset, tile) in tiles.enumerated() { try put(tile, use: use + offset, in: transaction) }
        }
    }

    func evict(entries: Int) throws {
        try write { transaction in
            var opened: OpaquePointer?
            try check(mdb_cursor_open(transaction, uses, &opened), "mdb_cursor_open")
            let cursor = try opened.orThrow()
            defer { mdb_cursor_close(cursor) }
            for _ in 0..<entries {
                var (key, value) = (MDB_val(), MDB_val())
                let result = mdb_cursor_get(cursor, &key, &value, MDB_FIRST)
                if result == MDB_NOTFOUND { return }
                try check(result, "mdb_cursor_get")
                let name = Array(UnsafeRawBufferPointer(start: key.mv_data, count: key.mv_size).dropFirst(8))
                try check(mdb_cursor_del(cursor, 0), "mdb_cursor_del")
                guard let record = try get(transaction, map, name), record.count >= 32 else { continue }
                let digest = Array(record.prefix(32))
                try delete(name, from: map, transaction)
                try release(digest, transaction)
            }
        }
    }

    func count() throws -> Int {
        try check(mdb_txn_renew(reading), "mdb_txn_renew")
        defer { mdb_txn_reset(reading) }
        var statistics = MDB_stat()
        try check(mdb_stat(reading, map, &statistics), "mdb_stat")
        return statistics.ms_entries
    }

    func checkpoint() throws { try check(mdb_env_sync(environment, 1), "mdb_env_sync") }

    func close() throws {
        mdb_txn_abort(reading)
        mdb_env_close(environment)
    }

    // MARK: In a transaction

    private func put(_ tile: TilePut, use: Int, in transaction: OpaquePointer) throws {
        guard let data = tile.data else { return }
        let key = bytes(of: tile.key)
        let digest = withUnsafeBytes(of: digest(data)) { Array($0) }
        // What LMDB returns is good until the next change: copied at once.
        if let old = try get(transaction, map, key).map({ Array($0) }), old.count >= 48 {
            try delete(Array(old[40..<48]) + key, from: uses, transaction)
            try release(Array(old.prefix(32)), transaction)
        }
        if let count = try get(transaction, counts, digest).map(Self.number) {
            try set(digest, Self.eight(count + 1), in: counts, transaction)
        } else {
            try set(digest, Self.eight(1), in: counts, transaction)
            try data.withUnsafeBytes { try set(digest, $0, in: images, transaction) }
        }
        let record =
            digest + Self.eight(UInt64(bitPattern: tile.metadata.expires.seconds)) + Self.eight(UInt64(use))
            + Array((tile.metadata.etag ?? "").utf8)
        try set(key, record, in: map, transaction)
        try set(Self.eight(UInt64(use)) + key, [], in: uses, transaction)
    }

    private func release(_ digest: [UInt8], _ transaction: OpaquePointer) throws {
        guard let count = try get(transaction, counts, digest).map(Self.number) else { return }
        if count == 1 {
            try delete(digest, from: counts, transaction)
            try delete(digest, from: images, transaction)
        } else {
            try set(digest, Self.eight(count - 1), in: counts, transaction)
        }
    }

    private func write(_ body: (OpaquePointer) throws -> Void) throws {
        var opened: OpaquePointer?
        try check(mdb_txn_begin(environment, nil, 0, &opened), "mdb_txn_begin")
        let transaction = try opened.orThrow()
        do { try body(transaction) } catch {
            mdb_txn_abort(transaction)
            throw error
        }
        try check(mdb_txn_commit(transaction), "mdb_txn_commit")
    }

    private func get(_ transaction: OpaquePointer, _ table: MDB_dbi, _ key: [UInt8]) throws -> UnsafeRawBufferPointer? {
        var found = MDB_val()
        let result = withValue(key) { mdb_get(transaction, table, &$0, &found) }
        if result == MDB_NOTFOUND { return nil }
        try check(result, "mdb_get")
        return UnsafeRawBufferPointer(start: found.mv_data, count: found.mv_size)
    }

    private func set(_ key: [UInt8], _ value: [UInt8], in table: MDB_dbi, _ transaction: OpaquePointer) throws {
        try value.withUnsafeBytes { try set(key, $0, in: table, transaction) }
    }

    private func set(
        _ key: [UInt8], _ value: UnsafeRawBufferPointer, in table: MDB_dbi, _ transaction: OpaquePointer
    ) throws {
        var data = MDB_val(mv_size: value.count, mv_data: UnsafeMutableRawPointer(mutating: value.baseAddress))
        try check(withValue(key) { mdb_put(transaction, table, &$0, &data, 0) }, "mdb_put")
    }

    private func delete(_ key: [UInt8], from table: MDB_dbi, _ transaction: OpaquePointer) throws {
        let result = withValue(key) { mdb_del(transaction, table, &$0, nil) }
        if result != MDB_NOTFOUND { try check(result, "mdb_del") }
    }

    private func withValue<R>(_ bytes: [UInt8], _ body: (inout MDB_val) -> R) -> R {
        bytes.withUnsafeBytes {
            var value = MDB_val(mv_size: $0.count, mv_data: UnsafeMutableRawPointer(mutating: $0.baseAddress))
            return body(&value)
        }
    }

    // MARK: Bytes

    /// Source, zoom, column and row, so that neighbours lie together.
    private func bytes(of key: TileKey) -> [UInt8] {
        guard let tile = key.tile else { return Array(key.description.utf8) }
        let place = UInt64(tile.z) << 58 | UInt64(tile.x) << 29 | UInt64(tile.y)
        return Array(key.source.description.utf8) + [0] + Self.eight(place)
    }

    /// With the highest byte first, so that numbers sort as such.
    private static func eight(_ number: UInt64) -> [UInt8] { withUnsafeBytes(of: number.bigEndian) { Array($0) } }

    private static func number(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
}

private func check(_ result: Int32, _ call: String) throws {
    if result != 0 { throw BenchError("\(call): \(String(cString: mdb_strerror(result)))") }
}
#endif
