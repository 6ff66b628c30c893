#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

// What is done with a file that is open.
extension DiskFileSystem {
    package func close(_ file: OpenFile) { closeDescriptor(file.number) }

    package func read(
        _ file: OpenFile, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(FileError) -> Int {
        var done = 0
        while done < buffer.count {
            let n = pread(
                file.number, buffer.baseAddress.unsafelyUnwrapped + done, min(buffer.count - done, mostAtOnce),
                off_t(offset) + off_t(done))
            if n == 0 { break }
            if n < 0 {
                if errno == EINTR { continue }
                throw failure("read", file)
            }
            done += n
        }
        return done
    }

    #if !canImport(Darwin) && !canImport(Musl)
    package func readIfCached(
        _ file: OpenFile, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(FileError) -> Int {
        guard let base = buffer.baseAddress else { return 0 }
        while true {
            let n = readCached(file.number, base, buffer.count, offset)
            if n >= 0 { return n }
            if errno != EINTR { throw failure("read", file) }
        }
    }
    #endif

    package func write(_ file: OpenFile, _ bytes: UnsafeRawBufferPointer) throws(FileError) -> Int {
        let count = min(bytes.count, mostAtOnce)
        while true {
            let n = writeDescriptor(file.number, bytes.baseAddress, count)
            if n >= 0 { return n }
            if errno != EINTR { throw failure("write", file) }
        }
    }

    package func truncate(_ file: OpenFile, to size: Int64) throws(FileError) {
        while ftruncate(file.number, off_t(size)) != 0 {
            if errno != EINTR { throw failure("truncate", file) }
        }
    }

    package func sync(_ file: OpenFile) throws(FileError) {
        #if canImport(Darwin)
        // fsync on Apple platforms leaves data in the drive's cache; F_FULLFSYNC does not, where it is supported.
        if fcntl(file.number, F_FULLFSYNC) == 0 { return }
        let result = fsync(file.number)
        #else
        let result = fdatasync(file.number)
        #endif
        if result != 0 { throw failure("sync", file) }
    }

    package func status(of file: OpenFile) throws(FileError) -> FileStatus {
        var info = stat()
        guard fstat(file.number, &info) == 0 else { throw failure("status", file) }
        return FileStatus(info)
    }

    package func length(of file: OpenFile) throws(FileError) -> Int64 {
        let end = lseek(file.number, 0, SEEK_END)
        guard end >= 0 else { throw failure("seek", file) }
        return Int64(end)
    }

    package func tryLock(_ file: OpenFile) throws(FileError) -> Bool {
        while true {
            if flock(file.number, LOCK_EX | LOCK_NB) == 0 { return true }
            if errno == EWOULDBLOCK { return false }
            if errno != EINTR { throw failure("lock", file) }
        }
    }

    package func unlock(_ file: OpenFile) { _ = flock(file.number, LOCK_UN) }

    /// What the system has just refused, with the file's path, which the system is asked for only now.
    private func failure(_ operation: String, _ file: OpenFile) -> FileError {
        let number = errno
        return FileError(operation, path(of: file) ?? location, number)
    }

    private func path(of file: OpenFile) -> String? {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX) + 1) { buffer in
            guard let start = buffer.baseAddress else { return nil }
            #if canImport(Darwin)
            guard fcntl(file.number, F_GETPATH, start) == 0 else { return nil }
            let count = strnlen(start, buffer.count)
            #else
            let count = readlink("/proc/self/fd/\(file.number)", start, buffer.count)
            #endif
            guard count > 0 else { return nil }
            return String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
        }
    }
}
