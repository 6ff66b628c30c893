#if MBTiles
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
    private let limits: MBTilesLimits
    /// Until when look-ups are refused, because one took too long.
    private let pause = Locked<UInt64>(0)

    init(_ database: MBTilesDatabase, limits: MBTilesLimits) throws {
        self.database = database
        self.limits = limits
        let queue = try database.open()
        self.queue = queue
        (shape, contents, isSearchable) = try database.reporting {
            try queue.read { db in
                let shape = try MBTilesShape(db, path: database.path)
                let contents = try MBTilesMetadata(db, path: database.path, limits: limits)
                return (shape, contents, try shape.isSearchable(db))
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
    ///
    /// Callers wait for each other here, on threads that other archives need too. So one that takes long is ended, and for
    /// a while no other is begun.
    func look(_ zoom: Int, _ column: Int, _ row: Int) throws -> Data? {
        try database.reporting {
            try queue.unsafeRead { db in
                guard pause.withLock({ $0 }) <= QueryMeter.now() else { throw tooSlow }
                let statement = try db.cachedStatement(sql: lookupSQL)
                // There are three, and they are numbers.
                statement.setUncheckedArguments([zoom, column, row])
                do {
                    return try QueryMeter(seconds: limits.lookupSeconds).watch(db) {
                        try Data.fetchOne(statement).flatMap { $0.isEmpty ? nil : $0 }
                    }
                } catch let error as DatabaseError where error.resultCode == .SQLITE_INTERRUPT {
                    let end = QueryMeter.now() &+ UInt64(limits.pauseSeconds * 1e9)
                    pause.withLock { $0 = end }
                    throw tooSlow
                }
            }
        }
    }

    private var tooSlow: ArchiveError {
        let time = "to look up one tile takes more than \(limits.lookupSeconds) seconds"
        let advice =
            isSearchable
            ? "its view 'tiles' computes too much: import it, or export it anew"
            : "it has no index on zoom_level, tile_column, tile_row: make one with 'sqlite3 \(database.path) \"CREATE INDEX "
                + "tile_index ON tiles (zoom_level, tile_column, tile_row)\"', or import it"
        return ArchiveError(.unsupported, "\(database.path): \(time); \(advice)")
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
    func count(unless isStopped: () -> Bool) throws -> Int? {
        try withoutActuallyEscaping(isStopped) { isStopped in
            let meter = QueryMeter(seconds: limits.countSeconds, isStopped: isStopped)
            return try queue.read { db in
                try meter.watch(db) { try Row.fetchOne(db, sql: shape.countSQL)?[0] as Int? }
            }
        }
    }
}
#endif
