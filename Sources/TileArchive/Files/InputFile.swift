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

/// An open file that is read at positions, by any number of threads.
///
/// Nothing is mapped: a file that another process cuts short must be an error here, not a bus error.
final class InputFile: Sendable {
    let path: String
    /// Its size when it was opened.
    let size: UInt64
    /// When it was last written, in seconds since 1970.
    let modified: Int64
    private let open: Descriptor
    private var descriptor: Int32 { open.number }
    private let written: timespec
    private let identity: FileIdentity

    convenience init(_ path: String) throws {
        guard !path.isEmpty else { throw ArchiveError(.invalidValue, "the archive's path is empty: name a file") }
        // O_NONBLOCK: opening a pipe must not wait for its writer.
        let number = openFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard number >= 0 else { throw ArchiveError.system("cannot open \(path)") }
        try self.init(path, Descriptor(number))
    }

    private init(_ path: String, _ open: Descriptor) throws {
        var status = stat()
        guard fstat(open.number, &status) == 0 else { throw ArchiveError.system("cannot examine \(path)") }
        guard status.st_mode & S_IFMT == S_IFREG else {
            let isFolder = status.st_mode & S_IFMT == S_IFDIR
            throw ArchiveError(
                .notAnArchive,
                "\(path) is \(isFolder ? "a folder (--format folder reads one)" : "not a file")")
        }
        self.path = path
        self.open = open
        size = UInt64(clamping: status.st_size)
        modified = modificationTime(status)
        written = lastWritten(status)
        identity = FileIdentity(status)
    }

    /// The same open file with the size and times that it has now.
    func examinedAnew() throws -> InputFile { try InputFile(path, open) }

    /// Whether its size and the time when it was last written are what they were.
    var isUnchanged: Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return false }
        let now = lastWritten(status)
        return UInt64(clamping: status.st_size) == size && now.tv_sec == written.tv_sec
            && now.tv_nsec == written.tv_nsec
    }

    /// Whether the path still leads to this file, and not to another that was renamed into its place.
    var isInPlace: Bool {
        var status = stat()
        return stat(path, &status) == 0 && FileIdentity(status) == identity
    }

    /// Whether a later writing gives it another time for certain.
    ///
    /// A file system's clock goes in ticks, of some milliseconds or of two seconds where it has whole seconds only: what is
    /// written twice within one has the same time twice.
    var hasSettled: Bool {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        let (seconds, overflow) = Int64(now.tv_sec).subtractingReportingOverflow(Int64(written.tv_sec))
        if overflow || seconds.magnitude > 3 { return true }
        let age = seconds * 1_000_000_000 + Int64(now.tv_nsec) - Int64(written.tv_nsec)
        return age.magnitude > (written.tv_nsec == 0 ? 2_100_000_000 : 100_000_000)
    }

    /// Makes sure that what was read is of the file that was opened, and not of another that was written over it.
    ///
    /// A file that is replaced by renaming another one stays what it was for who has it open.
    func checkUnchanged() throws {
        guard isUnchanged else {
            throw ArchiveError(
                .busy, "\(path) was written over while it was open: open it again (and replace it by renaming)")
        }
    }

    /// Reads exactly so many bytes if the page cache has them; `nil` where the disk would have to be waited for.
    ///
    /// What is wrong with the file is for ``read(_:at:_:)`` to find out and to say.
    func readNow(_ count: Int, at offset: UInt64) -> Data? {
        #if canImport(Darwin) || canImport(Musl)
        return nil
        #else
        guard count > 0, let end = offset.adding(UInt64(count)), end <= size, let memory = malloc(count) else {
            return nil
        }
        guard readCached(descriptor, memory, count, Int64(clamping: offset)) == count else {
            free(memory)
            return nil
        }
        return Data(bytesNoCopy: memory, count: count, deallocator: .free)
        #endif
    }

    /// Whether this system tells what its page cache has.
    static var tellsWhatIsCached: Bool {
        #if canImport(Darwin) || canImport(Musl)
        false
        #else
        true
        #endif
    }

    /// Reads so many bytes into memory, fewer only at the end of the file.
    ///
    /// - Returns: `nil` where they cannot be had, or not without waiting for the disk where that must not be.
    func read(into target: UnsafeMutableRawPointer, _ count: Int, at offset: UInt64, mayWait: Bool) -> Int? {
        let count = Int(clamping: min(UInt64(clamping: count), size > offset ? size - offset : 0))
        if !mayWait {
            #if canImport(Darwin) || canImport(Musl)
            return nil
            #else
            return count == 0 || readCached(descriptor, target, count, Int64(clamping: offset)) == count ? count : nil
            #endif
        }
        var done = 0
        while done < count {
            let got = pread(descriptor, target + done, count - done, off_t(clamping: offset) + off_t(done))
            if got > 0 {
                done += got
            } else if got == 0 {
                break
            } else if errno != EINTR {
                return nil
            }
        }
        return done
    }

    /// Reads exactly so many bytes.
    ///
    /// - Parameter what: What they are, for the message where the file has not got them.
    func read(_ count: Int, at offset: UInt64, _ what: @autoclosure () -> String) throws -> Data {
        guard count >= 0, let end = offset.adding(UInt64(count)), end <= size else {
            throw ArchiveError(
                .damaged,
                "\(path): \(what()) should be \(count) bytes at \(offset), but the file ends at \(size): it is cut short "
                    + "or its directory is damaged")
        }
        guard count > 0 else { return Data() }
        guard let memory = malloc(count) else { throw ArchiveError(.io, "\(path): no memory for \(count) bytes") }
        var done = 0
        while done < count {
            let got = pread(descriptor, memory + done, count - done, off_t(clamping: offset) + off_t(done))
            if got > 0 {
                done += got
            } else if got == 0 {
                free(memory)
                throw ArchiveError(
                    .damaged, "\(path): \(what()) is cut short: the file was shortened while it was read")
            } else if errno != EINTR {
                let error = ArchiveError.system("cannot read \(path) at \(offset)")
                free(memory)
                throw error
            }
        }
        return Data(bytesNoCopy: memory, count: count, deallocator: .free)
    }
}

/// An open file; closed with the value.
///
/// Closing any descriptor of a file gives up all locks that the process has on it (POSIX), SQLite's too. So one of a
/// database is kept for as long as that is read.
private final class Descriptor: Sendable {
    let number: Int32
    init(_ number: Int32) { self.number = number }
    deinit { close(number) }
}

private func openFile(_ path: String, _ flags: Int32) -> Int32 { open(path, flags) }

/// What tells one file from another.
private struct FileIdentity: Equatable, Sendable {
    private let device: dev_t
    private let number: ino_t

    init(_ status: stat) {
        device = status.st_dev
        number = status.st_ino
    }
}

/// When a file was last written, in seconds since 1970.
func modificationTime(_ status: stat) -> Int64 { Int64(lastWritten(status).tv_sec) }

private func lastWritten(_ status: stat) -> timespec {
    #if canImport(Darwin)
    status.st_mtimespec
    #else
    status.st_mtim
    #endif
}

extension UInt64 {
    /// The sum, or `nil` where it does not fit.
    @inline(__always)
    func adding(_ other: UInt64) -> UInt64? {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? nil : sum
    }
}
