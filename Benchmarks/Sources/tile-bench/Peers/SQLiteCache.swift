import Foundation
import GRDB
import TileStore

/// The peer: a tile cache as one would build it on SQLite, through GRDB.
///
/// The schema is that of a deduplicating MBTiles file (`map` and `images`) with what a cache needs besides: validators,
/// expiry, last use. One connection, prepared statements, write-ahead log, `synchronous = NORMAL` (a killed process
/// loses nothing, a power cut may take the last transactions: what the store's relaxed mode promises).
final class SQLiteCache: PeerCache {
    private let queue: DatabaseQueue
    private let statements: Statements

    private struct Statements {
        let tile: Statement
        let image: Statement
        let insertImage: Statement
        let insertEntry: Statement
        let begin: Statement
        let commit: Statement
    }

    init(at path: String) throws {
        var configuration = Configuration()
        configuration.journalMode = .wal
        configuration.prepareDatabase { try $0.execute(sql: "PRAGMA synchronous = NORMAL") }
        queue = try DatabaseQueue(path: path, configuration: configuration)
        statements = try queue.inDatabase { db in
            try db.execute(sql: SQLiteCache.schema)
            return Statements(
                tile: try db.makeStatement(
                    sql: """
                        SELECT data, etag, expires FROM map JOIN images ON images.id = map.image
                        WHERE source = ? AND zoom = ? AND col = ? AND row = ?
                        """),
                image: try db.makeStatement(sql: "SELECT id FROM images WHERE sha = ?"),
                insertImage: try db.makeStatement(sql: "INSERT INTO images (sha, data) VALUES (?, ?)"),
                insertEntry: try db.makeStatement(
                    sql: """
                        INSERT OR REPLACE INTO map (source, zoom, col, row, image, etag, expires, last_used)
                        VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                        """),
                begin: try db.makeStatement(sql: "BEGIN IMMEDIATE"),
                commit: try db.makeStatement(sql: "COMMIT"))
        }
    }

    private static let schema = """
        CREATE TABLE IF NOT EXISTS images (id INTEGER PRIMARY KEY, sha BLOB NOT NULL UNIQUE, data BLOB NOT NULL);
        CREATE TABLE IF NOT EXISTS map (
            source TEXT NOT NULL, zoom INTEGER NOT NULL, col INTEGER NOT NULL, row INTEGER NOT NULL,
            image INTEGER NOT NULL REFERENCES images (id), etag TEXT, expires INTEGER, last_used INTEGER,
            PRIMARY KEY (source, zoom, col, row)) WITHOUT ROWID;
        CREATE INDEX IF NOT EXISTS map_image ON map (image);
        CREATE INDEX IF NOT EXISTS map_last_used ON map (last_used);
        """

    /// Reads a tile.
    ///
    /// It records no use: a write for every read would be no match.
    func read(_ key: TileKey) throws -> Data? {
        guard let tile = key.tile else { return nil }
        return try queue.inDatabase { _ in
            let row = try Row.fetchOne(
                statements.tile, arguments: [key.source.description, tile.z, tile.x, tile.y])
            return row?[0]
        }
    }

    /// Puts one tile in a transaction of its own; a duplicate takes a single statement.
    func put(_ tile: TilePut, use: Int) throws {
        guard let data = tile.data else { return }
        let sha = digestBytes(data)
        try queue.inDatabase { db in
            if let image = try Int64.fetchOne(statements.image, arguments: [sha]) {
                try insertEntry(tile, image: image, use: use)
            } else {
                try statements.begin.execute()
                try insertEntry(tile, image: insertImage(data, sha: sha, db), use: use)
                try statements.commit.execute()
            }
        }
    }

    /// Puts tiles in one transaction.
    func put(_ tiles: ArraySlice<TilePut>, use: Int) throws {
        try queue.inDatabase { db in
            try statements.begin.execute()
            for (offset, tile) in tiles.enumerated() {
                guard let data = tile.data else { continue }
                let sha = digestBytes(data)
                let known = try Int64.fetchOne(statements.image, arguments: [sha])
                try insertEntry(tile, image: known ?? insertImage(data, sha: sha, db), use: use + offset)
            }
            try statements.commit.execute()
        }
    }

    /// Drops the least recently used entries and the images that nothing names any more, in one transaction.
    func evict(entries: Int) throws {
        try queue.inDatabase { db in
            try statements.begin.execute()
            let doomed = "SELECT source, zoom, col, row FROM map ORDER BY last_used LIMIT \(entries)"
            try db.execute(sql: "DELETE FROM map WHERE (source, zoom, col, row) IN (\(doomed))")
            try db.execute(
                sql: "DELETE FROM images WHERE NOT EXISTS (SELECT 1 FROM map WHERE map.image = images.id)")
            try statements.commit.execute()
        }
    }

    /// How many entries there are.
    func count() throws -> Int { try queue.inDatabase { try Int.fetchOne($0, sql: "SELECT count(*) FROM map") ?? 0 } }

    /// Moves everything from the log into the database file.
    func checkpoint() throws {
        _ = try queue.inDatabase { try Row.fetchAll($0, sql: "PRAGMA wal_checkpoint(TRUNCATE)") }
    }

    /// Closes the file.
    func close() throws {
        // Statements that are still prepared keep SQLite from closing; GRDB then closes it when the last is gone.
        try? queue.close()
    }

    private func insertImage(_ data: Data, sha: Data, _ db: Database) throws -> Int64 {
        try statements.insertImage.execute(arguments: [sha, data])
        return db.lastInsertedRowID
    }

    private func insertEntry(_ tile: TilePut, image: Int64, use: Int) throws {
        guard let address = tile.key.tile else { return }
        try statements.insertEntry.execute(arguments: [
            tile.key.source.description, address.z, address.x, address.y, image, tile.metadata.etag,
            tile.metadata.expires.seconds, use,
        ])
    }

    /// The 32 bytes of a digest.
    private func digestBytes(_ data: Data) -> Data {
        withUnsafeBytes(of: digest(data)) { Data($0) }
    }
}
