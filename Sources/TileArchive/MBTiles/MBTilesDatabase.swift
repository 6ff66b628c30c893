#if MBTiles
import GRDB
import GRDBSQLite
import TileStore

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

/// An SQLite file that is opened for reading, as often as need be, so that nothing is written next to it.
///
/// SQLite makes `-wal` and `-shm` files when it opens a file in WAL mode, even for reading. Without such a file next to
/// it a database in that mode is complete and has no writer: it is opened as immutable. With one it is opened in the
/// ordinary way, so that what a crash left in it, or another process is writing, is read too.
struct MBTilesDatabase: Sendable {
    let path: String
    let warnings: [String]
    /// The file as it was found; kept open.
    let file: InputFile
    /// Whether what SQLite gives is in the file alone, so that the file tells when it may be another answer.
    let isWhole: Bool
    private let isInWALMode: Bool

    init(_ path: String) throws { try self.init(InputFile(path)) }

    init(_ file: InputFile) throws {
        let path = file.path
        let start = [UInt8](try file.read(Int(min(file.size, 100)), at: 0, "the header"))
        guard start.starts(with: Array("SQLite format 3\0".utf8)) else {
            if start.isEmpty { throw ArchiveError(.damaged, "\(path) is empty") }
            if start.starts(with: Array("PMTiles".utf8)) {
                throw ArchiveError(.notAnArchive, "\(path) is PMTiles, not MBTiles (say --format pmtiles)")
            }
            throw ArchiveError(.notAnArchive, "\(path) is no MBTiles file: it is not an SQLite database")
        }
        guard start.count == 100 else {
            throw ArchiveError(.damaged, "\(path) is cut short: it has \(file.size) bytes")
        }
        self.path = path
        self.file = file
        // The file's versions for writing and reading: 2 is WAL.
        isInWALMode = start[18] == 2 || start[19] == 2
        let hasLog = Self.hasLog(path)
        isWhole = !hasLog
        warnings =
            hasLog
            ? ["\(path): what is in \(path)-wal is read too; a process is writing it, or one was killed while it did"]
            : []
    }

    /// Whether there is something in a log next to the file.
    private static func hasLog(_ path: String) -> Bool {
        var status = stat()
        return stat(path + "-wal", &status) == 0 && status.st_size > 0
    }

    /// Whether it is read without locks: without a log a file in WAL mode has no writer, and is complete.
    var isImmutable: Bool { isInWALMode && isWhole }

    /// Whether the file is as it was found: with an answer that was read before, the answer is of that file.
    ///
    /// SQLite follows a log by itself; that one begins beside a file that had none is a change.
    var isUnchanged: Bool {
        guard file.isUnchanged else { return false }
        guard isImmutable, Self.hasLog(path) else { return true }
        // Where another file has been renamed into place, the log is that one's.
        return !file.isInPlace
    }

    /// Opens a connection.
    func open() throws -> DatabaseQueue {
        var configuration = Configuration()
        configuration.readonly = true
        configuration.foreignKeysEnabled = false
        // Views of old files compare with "text" in double quotes.
        configuration.acceptsDoubleQuotedStringLiterals = true
        configuration.busyMode = .timeout(5)
        configuration.prepareDatabase { db in
            // A view from outside gets no functions with side effects, and a damaged page is seen before it is used.
            try db.execute(sql: "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA cache_size = -4096")
            // Nor values of a gigabyte that it makes up. Contents of any size that lie in a table can still be passed over.
            sqlite3_limit(db.sqliteConnection, SQLITE_LIMIT_LENGTH, 64 << 20)
        }
        let queue = try reporting { try DatabaseQueue(path: address, configuration: configuration) }
        guard file.isInPlace else {
            throw ArchiveError(.busy, "\(path) was replaced by another file while it was open: open it again")
        }
        return queue
    }

    /// The path as a URI, so that what SQLite would take for one is not, and options can be given.
    private var address: String {
        let absolute = path.hasPrefix("/") ? path : FileManager.default.currentDirectoryPath + "/" + path
        var text = "file://"
        for byte in absolute.utf8 {
            let isPlain =
                (0x61...0x7A).contains(byte) || (0x41...0x5A).contains(byte) || (0x2D...0x39).contains(byte)
                || byte == 0x5F || byte == 0x7E
            if isPlain {
                text.unicodeScalars.append(Unicode.Scalar(byte))
            } else {
                text += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
            }
        }
        return text + (isImmutable ? "?immutable=1" : "?mode=ro")
    }

    /// Where no lock was held: says whether somebody wrote meanwhile.
    func checkUnchanged() throws {
        guard !isImmutable || isUnchanged else {
            throw ArchiveError(.busy, "\(path) was changed while it was read: run it again")
        }
    }

    /// Runs a body and says in our words what SQLite found.
    func reporting<T>(_ body: () throws -> T) throws -> T {
        do { return try body() } catch let error as DatabaseError { throw ArchiveError(error, path) }
    }
}

extension ArchiveError {
    /// What SQLite said about a file.
    init(_ error: DatabaseError, _ path: String) {
        let words = error.message ?? "\(error.resultCode)"
        switch error.resultCode {
        case .SQLITE_CORRUPT:
            self.init(.damaged, "\(path) is damaged or cut short: \(words)", cause: error)
        case .SQLITE_NOTADB: self.init(.notAnArchive, "\(path) is no MBTiles file: \(words)", cause: error)
        case .SQLITE_BUSY, .SQLITE_LOCKED:
            self.init(.busy, "\(path) is being written by another process: try again when it is done", cause: error)
        case .SQLITE_FULL: self.init(.diskFull, "\(path): \(words)", cause: error)
        case .SQLITE_CANTOPEN, .SQLITE_READONLY:
            self.init(
                .io,
                "\(path) cannot be opened by SQLite: \(words); if \(path)-journal or -wal is there, a writer was killed: "
                    + "open it once with 'sqlite3' to recover it", cause: error)
        default: self.init(.io, "\(path): \(words)", cause: error)
        }
    }
}
#endif
