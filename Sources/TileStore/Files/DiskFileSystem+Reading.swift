#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

// What is at a path: the read path's own calls.
extension DiskFileSystem {
    package func status(at path: String) throws(FileError) -> FileStatus? {
        var info = stat()
        guard with(path, { fstatat($0, $1, &info, AT_SYMLINK_NOFOLLOW) }) == 0 else {
            if errno == ENOENT || errno == ENOTDIR { return nil }
            throw failure("status", path)
        }
        return FileStatus(info)
    }

    package func readFile(
        _ path: UnsafePointer<CChar>, into buffer: UnsafeMutableRawBufferPointer
    ) throws(FileError) -> Int? { try readFile(path, into: buffer, onlyCached: false) }

    package func readCachedFile(
        _ path: UnsafePointer<CChar>, into buffer: UnsafeMutableRawBufferPointer
    ) throws(FileError) -> Int? { try readFile(path, into: buffer, onlyCached: true) }

    @inline(__always)
    private func readFile(
        _ path: UnsafePointer<CChar>, into buffer: UnsafeMutableRawBufferPointer, onlyCached: Bool
    ) throws(FileError) -> Int? {
        // This runs once for every tile that is served from disk.
        let descriptor = with(path) { folder, path in
            while true {
                let result = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
                if result >= 0 || errno != EINTR { return result }
            }
        }
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw failure("open", String(cString: path))
        }
        defer { closeDescriptor(descriptor) }
        var done = 0
        while done < buffer.count {
            let wanted = min(buffer.count - done, mostAtOnce)
            let target = buffer.baseAddress.unsafelyUnwrapped + done
            #if canImport(Darwin) || canImport(Musl)
            let n = readDescriptor(descriptor, target, wanted)
            #else
            let n =
                onlyCached
                ? readCached(descriptor, target, wanted, Int64(done)) : readDescriptor(descriptor, target, wanted)
            #endif
            if n < 0 {
                if errno == EINTR { continue }
                // A pipe that somebody holds open has no bytes now and may never have any.
                if errno == EAGAIN, !onlyCached { throw FileError("read", full(String(cString: path)), ENXIO) }
                throw failure("read", String(cString: path))
            }
            done += n
            // The caller offers one byte more than it expects, so a short read is the end of the file.
            if n < wanted { break }
        }
        return done
    }
}
