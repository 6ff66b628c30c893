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
    private let descriptor: Int32
    private let written: timespec

    init(_ path: String) throws {
        // O_NONBLOCK: opening a pipe must not wait for its writer.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw ArchiveError.system("cannot open \(path)") }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else {
            let error = ArchiveError.system("cannot examine \(path)")
            close(descriptor)
            throw error
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            close(descriptor)
            throw ArchiveError(.notAnArchive, "\(path) is not a file")
        }
        self.path = path
        self.descriptor = descriptor
        size = UInt64(clamping: status.st_size)
        modified = modificationTime(status)
        written = lastWritten(status)
    }

    deinit { close(descriptor) }

    /// Makes sure that what was read is of the file that was opened, and not of another that was written over it.
    ///
    /// A file that is replaced by renaming another one stays what it was for who has it open.
    func checkUnchanged() throws {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw ArchiveError.system("cannot examine \(path)") }
        let now = lastWritten(status)
        guard UInt64(clamping: status.st_size) == size, now.tv_sec == written.tv_sec, now.tv_nsec == written.tv_nsec
        else {
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
