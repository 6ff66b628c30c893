#if MBTiles
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

/// A database file as SQLite reads it where no disk may be waited for.
///
/// Belongs to the connection that was opened on it, and is used by whoever has that at the moment.
final class PageCacheFile {
    let input: InputFile
    /// Whether the disk may be waited for now.
    var mayWait = true
    /// Whether a page was asked for that only the disk has.
    var missed = false

    init(_ input: InputFile) { self.input = input }
}

/// A virtual file system for SQLite: it reads what the system's page cache has, and fails where the disk would have to be
/// waited for, so that SQLite's own read path becomes one that says so.
///
/// It is for reading alone, and takes a file for one that never changes: whoever opens a connection here has to look
/// afterwards whether that was so (``InputFile/isUnchanged``). https://www.sqlite.org/vfs.html
enum PageCacheFiles {
    /// Under which name SQLite has it; `nil` where it could not be registered.
    static let name: String? = register("tile-archive-page-cache")

    /// Files that are about to be opened, by name: SQLite hands on a name and nothing else.
    private static let waiting = Locked<(files: [String: PageCacheFile], next: Int)>(([:], 0))

    /// Opens a connection on a file.
    ///
    /// - Returns: `nil` where SQLite does not want to.
    static func open(_ file: PageCacheFile) -> OpaquePointer? {
        guard let name else { return nil }
        let handle = waiting.withLock { waiting in
            waiting.next += 1
            waiting.files["tiles-\(waiting.next)"] = file
            return "tiles-\(waiting.next)"
        }
        defer { waiting.withLock { $0.files[handle] = nil } }
        var connection: OpaquePointer?
        guard sqlite3_open_v2(handle, &connection, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, name) == SQLITE_OK else {
            sqlite3_close_v2(connection)
            return nil
        }
        return connection
    }

    private static func register(_ name: String) -> String? {
        guard let standard = sqlite3_vfs_find(nil), let copy = strdup(name) else { return nil }
        // Kept for as long as the process lives, as SQLite wants it; the rest is the standard one's.
        let system = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
        system.initialize(to: standard.pointee)
        system.pointee.pNext = nil
        system.pointee.zName = UnsafePointer(copy)
        system.pointee.szOsFile = Int32(MemoryLayout<OpenPageCacheFile>.size)
        system.pointee.xOpen = { _, name, file, _, flags in
            guard let file, let name, let waiting = PageCacheFiles.take(String(cString: name)) else {
                return SQLITE_CANTOPEN
            }
            file.withMemoryRebound(to: OpenPageCacheFile.self, capacity: 1) { file in
                file.initialize(
                    to: OpenPageCacheFile(
                        base: sqlite3_file(pMethods: PageCacheFiles.methods), file: .passRetained(waiting)))
            }
            flags?.pointee = SQLITE_OPEN_READONLY
            return SQLITE_OK
        }
        system.pointee.xAccess = { _, _, _, result in
            result?.pointee = 0
            return SQLITE_OK
        }
        system.pointee.xDelete = { _, _, _ in SQLITE_READONLY }
        system.pointee.xFullPathname = { _, name, capacity, result in
            guard let name, let result, strlen(name) < capacity else { return SQLITE_CANTOPEN }
            strcpy(result, name)
            return SQLITE_OK
        }
        return sqlite3_vfs_register(system, 0) == SQLITE_OK ? name : nil
    }

    private static func take(_ name: String) -> PageCacheFile? {
        waiting.withLock { $0.files.removeValue(forKey: name) }
    }

    // Written once, here, and read by SQLite ever after.
    private nonisolated(unsafe) static let methods: UnsafePointer<sqlite3_io_methods> = {
        var methods = sqlite3_io_methods()
        methods.iVersion = 1
        methods.xClose = { file in
            OpenPageCacheFile.of(file)?.release()
            return SQLITE_OK
        }
        methods.xRead = { file, target, count, offset in
            guard let file = OpenPageCacheFile.of(file)?.takeUnretainedValue(), let target, count >= 0, offset >= 0
            else {
                return IOError.read
            }
            switch file.input.read(into: target, Int(count), at: UInt64(offset), mayWait: file.mayWait) {
            case Int(count): return SQLITE_OK
            case .some(let got):
                // As the interface has it: what the file has not got is zeros.
                memset(target + got, 0, Int(count) - got)
                return IOError.shortRead
            case nil:
                file.missed = true
                return IOError.read
            }
        }
        methods.xWrite = { _, _, _, _ in SQLITE_READONLY }
        methods.xTruncate = { _, _ in SQLITE_READONLY }
        methods.xSync = { _, _ in SQLITE_OK }
        methods.xFileSize = { file, size in
            guard let file = OpenPageCacheFile.of(file)?.takeUnretainedValue() else { return IOError.status }
            size?.pointee = Int64(clamping: file.input.size)
            return SQLITE_OK
        }
        methods.xLock = { _, _ in SQLITE_OK }
        methods.xUnlock = { _, _ in SQLITE_OK }
        methods.xCheckReservedLock = { _, result in
            result?.pointee = 0
            return SQLITE_OK
        }
        methods.xFileControl = { _, _, _ in SQLITE_NOTFOUND }
        methods.xSectorSize = { _ in 4096 }
        methods.xDeviceCharacteristics = { _ in SQLITE_IOCAP_IMMUTABLE }
        let kept = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
        kept.initialize(to: methods)
        return UnsafePointer(kept)
    }()
}

/// Extended codes, which are macros that Swift does not see.
private enum IOError {
    static let read = SQLITE_IOERR | 1 << 8
    static let shortRead = SQLITE_IOERR | 2 << 8
    static let status = SQLITE_IOERR | 7 << 8
}

/// What SQLite keeps for a file that it has open: its own part first.
private struct OpenPageCacheFile {
    var base: sqlite3_file
    var file: Unmanaged<PageCacheFile>

    static func of(_ file: UnsafeMutablePointer<sqlite3_file>?) -> Unmanaged<PageCacheFile>? {
        file?.withMemoryRebound(to: OpenPageCacheFile.self, capacity: 1) { $0.pointee.file }
    }
}
#endif
