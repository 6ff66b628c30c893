#if MBTiles
import GRDB

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The database that an export is about to replace.
///
/// SQLite finds a `-wal` or a `-journal` by its name alone: one that is left of the old database would be applied to the
/// new one and destroy it. So before another file gets the name, SQLite makes the old database whole, which removes them.
/// https://www.sqlite.org/howtocorrupt.html, "Unlinking or renaming a database file while in use".
enum ReplacedDatabase {
    /// Makes sure that nothing lies beside a path that SQLite would apply to a new file there.
    ///
    /// - Throws: ``ArchiveError``: `busy` where a process has the old database open.
    static func settle(_ path: String) throws {
        guard let log = leftover(path) else { return }
        var status = stat()
        guard stat(path, &status) == 0 else {
            throw ArchiveError(
                .io,
                "\(log) is left of another database, and SQLite would apply it to the new \(path): remove \(log), or "
                    + "export to another name")
        }
        do { try makeWhole(path) } catch let error as DatabaseError {
            switch error.resultCode {
            case .SQLITE_BUSY, .SQLITE_LOCKED: throw inUse(path, log)
            default:
                throw ArchiveError(
                    .io,
                    "\(log) belongs to the \(path) that is there, and SQLite cannot merge it "
                        + "(\(error.message ?? "\(error.resultCode)")): remove both, or export to another name",
                    cause: error)
            }
        }
        if let log = leftover(path) { throw inUse(path, log) }
    }

    private static func inUse(_ path: String, _ log: String) -> ArchiveError {
        ArchiveError(
            .busy,
            "\(path) is in use: \(log) is beside it and another process has the file open. End that process, or export "
                + "to another name")
    }

    /// The file beside a path that SQLite would apply to a database there.
    private static func leftover(_ path: String) -> String? {
        var status = stat()
        // An empty one too: a process that has the file open writes to it later.
        if lstat(path + "-wal", &status) == 0 { return path + "-wal" }
        // A journal that begins with a zero is spent, and stays in some of SQLite's modes.
        if firstByte(path + "-journal").map({ $0 != 0 }) ?? false { return path + "-journal" }
        return nil
    }

    private static func firstByte(_ path: String) -> UInt8? {
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var byte: UInt8 = 0
        return pread(file, &byte, 1, 0) == 1 ? byte : nil
    }

    /// Has SQLite recover a journal, or take a log into the file, and remove it.
    private static func makeWhole(_ path: String) throws {
        var configuration = Configuration()
        configuration.foreignKeysEnabled = false
        configuration.busyMode = .timeout(2)
        let queue = try DatabaseQueue(path: path.hasPrefix("/") ? path : "./" + path, configuration: configuration)
        try queue.writeWithoutTransaction { db in
            _ = try Row.fetchOne(db, sql: "SELECT 1 FROM sqlite_master LIMIT 1")
            // Needs the database for itself.
            _ = try Row.fetchOne(db, sql: "PRAGMA journal_mode = DELETE")
        }
        try queue.close()
    }
}
#endif
