#if MBTiles
import GRDBSQLite
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Looks up tiles of an SQLite file without waiting for the disk, by one prepared statement.
///
/// It takes the file for one that never changes. Costs a third of a look-up that takes SQLite's locks, and less than a
/// change of threads.
final class CachedLookup: Sendable {
    /// A connection with its statement; closed with the value.
    private final class Connection {
        let file: PageCacheFile
        private let database: OpaquePointer
        let statement: OpaquePointer

        init?(_ input: InputFile, sql: String) {
            file = PageCacheFile(input)
            guard let database = PageCacheFiles.open(file) else { return nil }
            var statement: OpaquePointer?
            // As for the other connection: nothing but reading, and a damaged page is seen before it is used.
            let settings = "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA cache_size = -4096"
            _enableDoubleQuotedStringLiterals(database)
            sqlite3_limit(database, SQLITE_LIMIT_LENGTH, 64 << 20)
            guard sqlite3_exec(database, settings, nil, nil, nil) == SQLITE_OK,
                sqlite3_prepare_v2(database, sql, -1, &statement, nil) == SQLITE_OK, let statement
            else {
                sqlite3_finalize(statement)
                sqlite3_close_v2(database)
                return nil
            }
            self.database = database
            self.statement = statement
            // A view may compute for ever: after some 50 µs it is none that is looked up on the spot.
            sqlite3_progress_handler(database, 2000, { _ in 1 }, nil)
            file.mayWait = false
        }

        deinit {
            sqlite3_finalize(statement)
            sqlite3_close_v2(database)
        }
    }

    /// What is known at once.
    enum Result {
        case bytes(Data)
        case absent
        case mustWait
    }

    private let connection: Locked<Connection>

    /// Opens the file once more; may wait for the disk.
    ///
    /// - Parameter sql: A statement with three parameters, for a blob, or NULL where it has to be looked at otherwise.
    /// - Returns: `nil` where it cannot be had, on systems that cannot tell what is in the page cache for example.
    init?(_ input: InputFile, sql: String) {
        guard InputFile.tellsWhatIsCached, let connection = Connection(input, sql: sql) else { return nil }
        self.connection = Locked(connection)
    }

    /// Looks up a row.
    func look(_ zoom: Int, _ column: Int, _ row: Int) -> Result {
        connection.withLock { connection in
            let statement = connection.statement
            defer { sqlite3_reset(statement) }
            // The steps that are allowed are counted over the statement's whole life otherwise.
            sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 1)
            sqlite3_bind_int64(statement, 1, Int64(zoom))
            sqlite3_bind_int64(statement, 2, Int64(column))
            sqlite3_bind_int64(statement, 3, Int64(row))
            switch sqlite3_step(statement) {
            case SQLITE_DONE: return .absent
            case SQLITE_ROW:
                // What is no blob of a tile's size, the other way of looking has the words for.
                guard sqlite3_column_type(statement, 0) == SQLITE_BLOB, let bytes = sqlite3_column_blob(statement, 0)
                else { return .mustWait }
                return .bytes(Data(bytes: bytes, count: Int(sqlite3_column_bytes(statement, 0))))
            // A page that is not in memory, or damage, which is for the other way to find again and to report.
            default: return .mustWait
            }
        }
    }
}
#endif
