#if MBTiles
import GRDB

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

/// Writes MBTiles 1.3 in its deduplicating form: `map` names for each tile its image in `images`, `tiles` is a view.
final class MBTilesWriter: ArchiveWriter {
    private let output: OutputFile
    private let queue: DatabaseQueue
    private var images: UInt64 = 0
    private var places: [(zoom: Int, column: Int, row: Int, image: Int64)] = []

    init(_ path: String) throws {
        output = try OutputFile(path)
        try ReplacedDatabase.settle(path)
        // SQLite takes an empty file for an empty database.
        close(try output.create())
        var configuration = Configuration()
        configuration.foreignKeysEnabled = false
        // One transaction from here to the end, over many calls.
        configuration.allowsUnsafeTransactions = true
        let temporary = output.temporaryPath
        do {
            queue = try DatabaseQueue(
                path: temporary.hasPrefix("/") ? temporary : "./" + temporary, configuration: configuration)
            try queue.writeWithoutTransaction { db in
                // Nobody sees the file before it is complete, and then it is synced: no journal is needed.
                try db.execute(
                    sql: """
                        PRAGMA page_size = 4096;
                        PRAGMA journal_mode = OFF;
                        PRAGMA synchronous = OFF;
                        PRAGMA locking_mode = EXCLUSIVE;
                        PRAGMA cache_size = -4096;
                        PRAGMA application_id = 0x4d504258;
                        BEGIN;
                        CREATE TABLE metadata (name TEXT NOT NULL, value TEXT);
                        CREATE TABLE images (tile_id INTEGER PRIMARY KEY, tile_data BLOB NOT NULL);
                        CREATE TABLE map (
                            zoom_level INTEGER NOT NULL, tile_column INTEGER NOT NULL, tile_row INTEGER NOT NULL,
                            tile_id INTEGER NOT NULL REFERENCES images (tile_id));
                        CREATE VIEW tiles AS
                            SELECT map.zoom_level AS zoom_level, map.tile_column AS tile_column,
                                map.tile_row AS tile_row, images.tile_data AS tile_data
                            FROM map JOIN images ON images.tile_id = map.tile_id;
                        """)
            }
        } catch let error as DatabaseError { throw ArchiveError(error, path) }
    }

    func add(_ data: Data) throws -> UInt64 {
        images += 1
        let number = Int64(clamping: images)
        try write { db in
            try db.cachedStatement(sql: "INSERT INTO images (tile_id, tile_data) VALUES (?, ?)")
                .execute(arguments: [number, data])
        }
        return images
    }

    func place(_ tile: UInt64, content: UInt64, length: Int) throws {
        guard let place = TileID.tile(tile) else {
            throw ArchiveError(.invalidValue, "\(output.path): tile \(tile) is beyond zoom 28")
        }
        places.append((place.z, place.x, (1 << place.z) - 1 - place.y, Int64(clamping: content)))
        if places.count >= 512 { try writePlaces() }
    }

    /// Many in one go: each takes less time than asking for the connection.
    private func writePlaces() throws {
        try write { db in
            let statement = try db.cachedStatement(
                sql: "INSERT INTO map (zoom_level, tile_column, tile_row, tile_id) VALUES (?, ?, ?, ?)")
            for place in places {
                // There are four, and they are numbers.
                statement.setUncheckedArguments([place.zoom, place.column, place.row, place.image])
                try statement.execute()
            }
        }
        places.removeAll(keepingCapacity: true)
    }

    func finish(_ summary: ArchiveSummary) throws {
        try writePlaces()
        try write { db in
            for row in summary.metadata.mbtilesRows {
                try db.execute(
                    sql: "INSERT INTO metadata (name, value) VALUES (?, ?)", arguments: [row.name, row.value])
            }
            try db.execute(
                sql: """
                    CREATE UNIQUE INDEX map_index ON map (zoom_level, tile_column, tile_row);
                    CREATE UNIQUE INDEX name ON metadata (name);
                    COMMIT
                    """)
        }
        do { try queue.close() } catch let error as DatabaseError { throw ArchiveError(error, output.path) }
        // Again: hours may have passed.
        try output.commit { try ReplacedDatabase.settle(output.path) }
    }

    private func write(_ body: (Database) throws -> Void) throws {
        do { try queue.writeWithoutTransaction(body) } catch let error as DatabaseError {
            throw ArchiveError(error, output.path)
        }
    }
}
#endif
