import GRDB
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// An MBTiles file as it was found at one time, with a connection to it.
///
/// A reader has one after another, where the file is written meanwhile.
final class MBTilesSession: Sendable {
    let database: MBTilesDatabase
    let shape: MBTilesShape
    let contents: MBTilesMetadata
    /// Whether a look-up goes through an index.
    let isSearchable: Bool
    private let queue: DatabaseQueue
    private let lookupSQL: String
    private let cached = Locked<CachedLookup?>(nil)

    init(_ database: MBTilesDatabase) throws {
        self.database = database
        let queue = try database.open()
        self.queue = queue
        (shape, contents, isSearchable) = try database.reporting {
            try queue.read { db in
                let shape = try MBTilesShape(db, path: database.path)
                return (shape, try MBTilesMetadata(db, path: database.path), try shape.isSearchable(db))
            }
        }
        lookupSQL = shape.lookupSQL
    }

    /// A row without waiting for the disk.
    func lookNow(_ zoom: Int, _ column: Int, _ row: Int) -> CachedLookup.Result {
        guard let cached = cached.withLock({ $0 }) else { return .mustWait }
        let result = cached.look(zoom, column, row)
        // Nobody's lock was asked for: it is an answer if nobody has written.
        return database.isUnchanged ? result : .mustWait
    }

    /// A row; `nil` if there is none, or nothing usable in it.
    func look(_ zoom: Int, _ column: Int, _ row: Int) throws -> Data? {
        try database.reporting {
            try queue.unsafeRead { db in
                let statement = try db.cachedStatement(sql: lookupSQL)
                // There are three, and they are numbers.
                statement.setUncheckedArguments([zoom, column, row])
                return try Data.fetchOne(statement).flatMap { $0.isEmpty ? nil : $0 }
            }
        }
    }

    /// Sees to it that the next look-ups need not wait, if that can be had.
    func prepareCached() throws {
        guard isSearchable, database.isWhole, cached.withLock({ $0 == nil }), database.file.hasSettled else { return }
        // While SQLite's lock for reading is held nobody writes to the file: as it is now it is whole.
        let opened = try database.reporting {
            try queue.read { db -> CachedLookup? in
                _ = try Row.fetchOne(db, sql: "SELECT 1 FROM sqlite_master LIMIT 1")
                guard database.isUnchanged else { return nil }
                return CachedLookup(database.file, sql: shape.cachedLookupSQL)
            }
        }
        if let opened { cached.withLock { $0 = $0 ?? opened } }
    }

    /// How many tiles there are, or nearly.
    func count() throws -> Int? {
        try queue.read { db in try Row.fetchOne(db, sql: shape.countSQL)?[0] as Int? }
    }
}
