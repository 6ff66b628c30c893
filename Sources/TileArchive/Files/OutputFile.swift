#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A file that appears under its name whole or not at all.
///
/// It is written under a temporary name next to its place, synced, and renamed; without ``commit()`` nothing stays.
package final class OutputFile {
    /// The name it will have.
    let path: String
    /// The name that it has meanwhile.
    let temporaryPath: String
    private let folder: String
    private let replaced: ReplacedFile?
    private var isCommitted = false

    private static let prefix = ".tilegc-"
    private static let suffix = ".part"

    /// Finds a temporary name; ``create()`` makes the file.
    init(_ path: String) throws {
        guard !path.isEmpty else { throw ArchiveError(.invalidValue, "the file's path is empty: name a file") }
        guard !path.hasSuffix("/") else {
            throw ArchiveError(.invalidValue, "\"\(path)\" is no name for a file")
        }
        var status = stat()
        if stat(path, &status) == 0, status.st_mode & S_IFMT != S_IFREG {
            throw ArchiveError(.invalidValue, "\(path) is there and is not a file: give another name")
        }
        self.path = path
        replaced = ReplacedFile(AT_FDCWD, path)
        folder = path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
        try OutputPlace.check(folder, for: path)
        let tag = String(UInt64.random(in: .min ... .max), radix: 36)
        temporaryPath = (folder == "/" ? "/" : folder + "/") + Self.prefix + tag + Self.suffix
        try sweep()
    }

    deinit { if !isCommitted { unlink(temporaryPath) } }

    /// Makes the temporary file, empty, and opens it.
    func create() throws -> Int32 {
        let descriptor = open(
            temporaryPath, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, ReplacedFile.creationMode(replaced))
        guard descriptor >= 0 else { throw ArchiveError.system("cannot write \(path) in the folder \(folder)") }
        return descriptor
    }

    /// Syncs what was written under the temporary name and gives it its own, in one step.
    ///
    /// A file that is replaced hands on its permissions, and for root its owner.
    /// - Parameter isReady: Called right before the file gets its name; what it throws leaves the old one.
    func commit(_ isReady: () throws -> Void = {}) throws {
        let file = open(temporaryPath, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard file >= 0 else { throw ArchiveError.system("cannot open \(temporaryPath)") }
        replaced?.handOn(to: file)
        let synced = fsync(file)
        let number = errno
        close(file)
        guard synced == 0 else { throw ArchiveError.system("cannot write \(path)", number: number) }
        try isReady()
        guard rename(temporaryPath, path) == 0 else { throw ArchiveError.system("cannot put \(path) in place") }
        isCommitted = true
        let parent = open(folder, O_RDONLY | O_CLOEXEC)
        guard parent >= 0 else { throw ArchiveError.system("cannot open \(folder)") }
        defer { close(parent) }
        // Some file systems cannot sync a folder, and say so with EINVAL.
        guard fsync(parent) == 0 || errno == EINVAL else { throw ArchiveError.system("cannot sync \(folder)") }
    }

    /// Writes a whole file.
    ///
    /// - Throws: ``ArchiveError``, where something else than a file has the name, too.
    package static func write(_ data: Data, to path: String) throws {
        let output = try OutputFile(path)
        let file = try ScratchFile(creating: output)
        try file.append(data)
        try file.flush()
        try output.commit()
    }

    /// Removes what killed exports left; an hour keeps clear of one that is running.
    private func sweep() throws {
        guard let handle = try FolderHandle.open(folder) else {
            throw ArchiveError(.notFound, "there is no folder \(folder) to write \(path) in")
        }
        try handle.sweep(olderThan: 3600) { $0.hasPrefix(Self.prefix) && $0.hasSuffix(Self.suffix) }
    }
}

/// A file of our own that is written and read at positions; its bytes go with the value where nobody names it.
package final class ScratchFile {
    private let descriptor: Int32
    private let path: String
    package private(set) var size: UInt64 = 0
    private var buffer: [UInt8] = []
    private static let bufferSize = 256 << 10

    /// Makes a file that has no name and goes with the value.
    static func unnamed() throws -> ScratchFile {
        var folder = getenv("TMPDIR").map { String(cString: $0) } ?? ""
        if folder.isEmpty { folder = "/tmp" }
        var template = Array("\(folder)/tilegc-XXXXXX".utf8CString)
        let descriptor = mkstemp(&template)
        guard descriptor >= 0 else {
            let number = errno
            // The archive is there, whatever this says of the folder.
            throw ArchiveError(
                number == ENOSPC || number == EDQUOT ? .diskFull : .io,
                "cannot make a temporary file in \(folder) (\(systemText(number))): set TMPDIR to a folder with room "
                    + "that can be written")
        }
        unlink(template)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        return ScratchFile(descriptor, "a temporary file in \(folder)")
    }

    /// Makes the temporary file of an output.
    convenience init(creating output: OutputFile) throws { self.init(try output.create(), output.path) }

    private init(_ descriptor: Int32, _ path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit { close(descriptor) }

    /// Appends bytes; they are written in large pieces.
    func append(_ bytes: UnsafeRawBufferPointer) throws {
        size += UInt64(bytes.count)
        buffer.append(contentsOf: bytes)
        if buffer.count >= Self.bufferSize { try flush() }
    }

    func append(_ data: Data) throws { try data.withUnsafeBytes { try append($0) } }

    /// Leaves a hole up to a position.
    func skip(to position: UInt64) throws {
        try flush()
        size = position
    }

    /// Writes what is still in memory.
    func flush() throws {
        guard !buffer.isEmpty else { return }
        try buffer.withUnsafeBytes { try write($0, at: size - UInt64($0.count)) }
        buffer.removeAll(keepingCapacity: true)
    }

    /// Writes bytes at a position that was written or skipped before.
    func write(_ bytes: UnsafeRawBufferPointer, at offset: UInt64) throws {
        var done = 0
        while done < bytes.count {
            let count = pwrite(
                descriptor, bytes.baseAddress.map { $0 + done }, bytes.count - done,
                off_t(clamping: offset) + off_t(done))
            if count >= 0 {
                done += count
            } else if errno != EINTR {
                throw ArchiveError.system("cannot write \(path)")
            }
        }
    }

    /// Reads into a buffer; fewer bytes only at the end.
    package func read(into bytes: UnsafeMutableRawBufferPointer, at offset: UInt64) throws -> Int {
        var done = 0
        while done < bytes.count {
            let count = pread(
                descriptor, bytes.baseAddress.map { $0 + done }, bytes.count - done,
                off_t(clamping: offset) + off_t(done))
            if count > 0 {
                done += count
            } else if count == 0 {
                return done
            } else if errno != EINTR {
                throw ArchiveError.system("cannot read \(path)")
            }
        }
        return done
    }

    /// Cuts the file off.
    func truncate(to length: UInt64) throws {
        guard ftruncate(descriptor, off_t(clamping: length)) == 0 else {
            throw ArchiveError.system("cannot write \(path)")
        }
        size = length
    }
}
