/// An open file.
///
/// What the number means is the file system's business.
package struct OpenFile: Hashable, Sendable {
    package var number: Int32
    package init(number: Int32) { self.number = number }
}

/// A file operation that failed: which one, on which path, and the system's error number.
package struct FileError: Error, Sendable, CustomStringConvertible {
    package var operation: String
    package var path: String
    package var number: Int32
    package init(_ operation: String, _ path: String, _ number: Int32) {
        self.operation = operation
        self.path = path
        self.number = number
    }
    package var description: String { "\(operation) \(path): \(errorText(number))" }
}

/// What kind of thing a path names; links are not followed.
package enum FileKind: Sendable, Equatable { case file, folder, link, other }

/// What `lstat` tells.
package struct FileStatus: Sendable, Equatable {
    package var kind: FileKind
    package var size: Int64
    /// Seconds since 1970.
    package var modified: Int64
    package var links: Int
    /// What ``modified`` leaves out, where the file system keeps it.
    package var modifiedNanoseconds: Int
    /// Whether nobody but this process's user and root can have written it.
    package var isOurs: Bool
    /// What tells it from the other files of its file system for as long as it is open.
    package var number: UInt64
    package init(
        kind: FileKind, size: Int64, modified: Int64, links: Int, modifiedNanoseconds: Int = 0, isOurs: Bool = true,
        number: UInt64
    ) {
        self.number = number
        self.modifiedNanoseconds = modifiedNanoseconds
        self.isOurs = isOurs
        self.kind = kind
        self.size = size
        self.modified = modified
        self.links = links
    }
}

/// How a file is opened.
package enum OpenMode: Sendable {
    /// For reading; the file must exist; a link is refused (`ELOOP`), and so are folders (`EISDIR`), pipes and devices
    /// (`ENXIO`), by the other modes too.
    case read
    /// For reading and appending; the file must exist; a link is refused.
    case append
    /// For reading and appending; made if absent, with the rights that the cache's folder has.
    case appendCreating
    /// For writing; must not exist yet.
    case createNew
    /// For reading and appending; must not exist yet. Nobody may open it for writing afterwards, as is so with
    /// ``FileSystem/createFile(_:_:sync:)``.
    case createBlob
}

/// All that the store asks of an operating system's files: the seam where tests put faults and crashes.
///
/// Paths are relative to the cache's folder, `""` being the folder itself. Every function is one system call, or the
/// few that its comment names. Handles are closed on `exec` (O_CLOEXEC).
package protocol FileSystem: AnyObject, Sendable {
    /// The folder's path, for messages.
    var location: String { get }
    /// The unit in which the disk gives out space, in bytes (4096 where it cannot be told).
    var blockSize: Int { get }

    /// Binds paths to the folder that the location leads to now, so that they stay in it whatever is renamed above it,
    /// and are shorter to look up. Where there is none, nothing changes.
    func enter() throws(FileError)

    func open(_ path: String, _ mode: OpenMode) throws(FileError) -> OpenFile
    func close(_ file: OpenFile)
    /// Reads at an offset; fewer bytes than asked for only at the end of the file.
    func read(_ file: OpenFile, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(FileError) -> Int
    /// Reads at an offset what the system's page cache has; `EAGAIN` if the disk would have to be waited for. It may read
    /// fewer bytes than asked for. A system that cannot tell reads as ``read(_:into:at:)`` does.
    func readIfCached(
        _ file: OpenFile, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(FileError) -> Int
    /// Appends; may write less than asked (then the next call says why). Returns how many bytes were written.
    func write(_ file: OpenFile, _ bytes: UnsafeRawBufferPointer) throws(FileError) -> Int
    func truncate(_ file: OpenFile, to size: Int64) throws(FileError)
    func sync(_ file: OpenFile) throws(FileError)
    /// `fstat`.
    func status(of file: OpenFile) throws(FileError) -> FileStatus
    /// The file's length, by `lseek`: an `fstat` would make the next write update the file's times through the file
    /// system's own journal (multigrain timestamps of newer Linux kernels), which costs more than the write.
    func length(of file: OpenFile) throws(FileError) -> Int64
    /// `lstat`; `nil` where there is nothing.
    func status(at path: String) throws(FileError) -> FileStatus?

    /// Opens (refusing links), reads at most `buffer.count` bytes from the start, closes. `nil` where there is no file.
    /// `path` ends with NUL and is relative. This is the read path's only call.
    func readFile(_ path: UnsafePointer<CChar>, into buffer: UnsafeMutableRawBufferPointer) throws(FileError) -> Int?
    /// The same, but only from the system's page cache: `EAGAIN` if the disk would have to be waited for. A system that
    /// cannot tell reads as ``readFile(_:into:)`` does.
    func readCachedFile(
        _ path: UnsafePointer<CChar>, into buffer: UnsafeMutableRawBufferPointer
    ) throws(FileError) -> Int?
    /// Creates a new file (must not exist) that nobody may write, with the given content, syncs it if asked, closes it.
    /// On failure the file is removed if that can be done.
    func createFile(_ path: String, _ bytes: UnsafeRawBufferPointer, sync: Bool) throws(FileError)

    func rename(_ from: String, to: String) throws(FileError)
    /// Removes a file or link; `false` where there was none.
    @discardableResult
    func unlink(_ path: String) throws(FileError) -> Bool
    /// Makes a folder; `false` where there was one already.
    @discardableResult
    func makeFolder(_ path: String) throws(FileError) -> Bool
    /// Removes an empty folder; `false` where there was none.
    @discardableResult
    func removeFolder(_ path: String) throws(FileError) -> Bool
    /// The names in a folder in no order; `nil` where there is none. Like `readdir`, it may miss what changes meanwhile.
    func list(_ path: String) throws(FileError) -> [String]?
    func syncFolder(_ path: String) throws(FileError)
    /// Syncs everything on the file system that the folder lies on.
    ///
    /// `false` where the operating system has no such call.
    func syncAll() throws(FileError) -> Bool

    /// Tries to take the exclusive advisory lock (`flock`); `false` if another holder has it.
    func tryLock(_ file: OpenFile) throws(FileError) -> Bool
    func unlock(_ file: OpenFile)
    /// Whether this user may write in the folder.
    func mayWrite() -> Bool
}

extension FileSystem {
    /// Writes all of it, in as many calls as it takes.
    package func writeAll(_ file: OpenFile, _ bytes: UnsafeRawBufferPointer) throws(FileError) {
        var done = 0
        while done < bytes.count {
            done += try write(file, UnsafeRawBufferPointer(rebasing: bytes[done...]))
        }
    }
}

extension FileSystem {
    package func readCachedFile(
        _ path: UnsafePointer<CChar>, into buffer: UnsafeMutableRawBufferPointer
    ) throws(FileError) -> Int? { try readFile(path, into: buffer) }

    package func readIfCached(
        _ file: OpenFile, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(FileError) -> Int { try read(file, into: buffer, at: offset) }

    package func enter() throws(FileError) {}

    package func syncAll() throws(FileError) -> Bool { false }

    package func length(of file: OpenFile) throws(FileError) -> Int64 { try status(of: file).size }

    /// ``createFile(_:_:sync:)`` for bytes in an array.
    func createFile(_ path: String, bytes: [UInt8], sync: Bool) throws(FileError) {
        let result = bytes.withUnsafeBytes { raw -> Result<Void, FileError> in
            do throws(FileError) { return .success(try createFile(path, raw, sync: sync)) } catch {
                return .failure(error)
            }
        }
        try result.get()
    }
}

/// Everything from outside that the store depends on, so that tests can take its place.
package struct StoreEnvironment: Sendable {
    package var files: any FileSystem
    /// The time of day.
    package var now: @Sendable () -> Timestamp
    /// Nanoseconds of a clock that never goes back, coarse (a few ms) where that is cheaper.
    package var coarseTicks: @Sendable () -> UInt64
    /// Nanoseconds of a clock that never goes back.
    package var ticks: @Sendable () -> UInt64
    /// Waits for some nanoseconds, or less.
    package var pause: @Sendable (UInt64) -> Void
    /// 64 random bits, for unique names and the salt.
    package var random: @Sendable () -> UInt64
    /// A text that is another one after each start of the machine; `nil` where that cannot be told.
    package var bootID: String?
    /// Whether the store may run work of its own in the background (compaction, flushing of uses).
    package var background: Bool
    /// Does a number of things at the same time and returns when all are done.
    package var spread: @Sendable (_ count: Int, _ body: @Sendable (Int) -> Void) -> Void
    /// How much the tables can number; tests set less.
    package var bounds = TableBounds()

    package init(
        files: any FileSystem, now: @escaping @Sendable () -> Timestamp,
        coarseTicks: @escaping @Sendable () -> UInt64, ticks: @escaping @Sendable () -> UInt64,
        pause: @escaping @Sendable (UInt64) -> Void, random: @escaping @Sendable () -> UInt64, bootID: String?,
        background: Bool, spread: @escaping @Sendable (Int, @Sendable (Int) -> Void) -> Void
    ) {
        self.files = files
        self.now = now
        self.coarseTicks = coarseTicks
        self.ticks = ticks
        self.pause = pause
        self.random = random
        self.bootID = bootID
        self.background = background
        self.spread = spread
    }
}
