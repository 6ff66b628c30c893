#if MBTiles
import GRDB
import GRDBSQLite

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// How much SQLite may do for one question about an MBTiles file: a view in it may compute without end.
package struct MBTilesLimits: Sendable {
    /// For the schema and the metadata.
    package var metadataSeconds = 10.0
    /// For one tile.
    package var lookupSeconds = 2.0
    /// After a look-up that took too long, others are refused for so long.
    package var pauseSeconds = 60.0
    /// For counting the tiles, which is only for showing progress.
    package var countSeconds = 5.0
    /// SQLite's steps between two rows while going through all tiles: what sorts a hundred million rows first is below.
    package var stepsBetweenRows = 4_000_000_000

    package init() {}
}

/// Ends a statement that takes too long or is not wanted any more, with SQLITE_INTERRUPT.
final class QueryMeter {
    /// SQLite asks after so many of its steps: some microseconds of a plain scan.
    private static let interval = 1000

    private let end: UInt64?
    private let mostCalls: Int?
    private let isStopped: () -> Bool
    private var calls = 0
    /// Whether the caller wanted no more.
    private(set) var wasStopped = false

    init(seconds: Double? = nil, steps: Int? = nil, isStopped: @escaping () -> Bool = { false }) {
        end = seconds.map { Self.now() &+ UInt64(max(0, $0) * 1e9) }
        mostCalls = steps.map { $0 / Self.interval }
        self.isStopped = isStopped
    }

    /// The steps count anew from here.
    func restart() { calls = 0 }

    private var isOver: Bool {
        calls += 1
        if isStopped() {
            wasStopped = true
            return true
        }
        if let mostCalls, calls > mostCalls { return true }
        if let end, Self.now() > end { return true }
        return false
    }

    /// Nanoseconds of a clock that nobody sets.
    static func now() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
    }

    /// Runs a body under the meter.
    func watch<R>(_ db: Database, _ body: () throws -> R) rethrows -> R {
        let handler: @convention(c) (UnsafeMutableRawPointer?) -> Int32 = { context in
            guard let context else { return 0 }
            return Unmanaged<QueryMeter>.fromOpaque(context).takeUnretainedValue().isOver ? 1 : 0
        }
        let connection = db.sqliteConnection
        sqlite3_progress_handler(connection, Int32(Self.interval), handler, Unmanaged.passUnretained(self).toOpaque())
        defer { sqlite3_progress_handler(connection, 0, nil, nil) }
        return try withExtendedLifetime(self) { try body() }
    }
}
#endif
