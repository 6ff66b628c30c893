import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

extension FileError {
    static var noEntry: Int32 { ENOENT }
    static var tooManyLinks: Int32 { ELOOP }
}

/// How a blob's bytes get into a set without being written.
package struct BlobCopier: Sendable {
    /// What was done.
    package enum Outcome: Sendable {
        case made
        /// Not here: the file system cannot do it, or not between these two folders.
        case impossible
    }

    /// Makes a file that shares the bytes of another one; both paths are absolute.
    package let make: @Sendable (_ from: String, _ to: String) throws -> Outcome

    package init(_ make: @escaping @Sendable (_ from: String, _ to: String) throws -> Outcome) { self.make = make }

    /// Clones: the copy shares the disk's blocks until one of the two is written (btrfs, XFS, APFS, bcachefs).
    package static let cloning = BlobCopier { from, to in
        #if canImport(Darwin)
        if clonefile(from, to, 0) == 0 { return .made }
        #else
        // What has a blob's name may be a pipe, which nobody writes.
        let source = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard source >= 0 else { throw FileError("open", from, errno) }
        defer { close(source) }
        let copy = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o444)
        guard copy >= 0 else { throw FileError("create", to, errno) }
        defer { close(copy) }
        // FICLONE, which Swift does not see: _IOW(0x94, 9, int).
        if ioctl(copy, 0x4004_9409, source) == 0 { return .made }
        let number = errno
        unlink(to)
        errno = number
        #endif
        return try answer(to)
    }

    /// Makes a hard link: one file under two names.
    package static let linking = BlobCopier { from, to in
        link(from, to) == 0 ? .made : try answer(to)
    }

    private static func answer(_ path: String) throws -> Outcome {
        switch errno {
        case EOPNOTSUPP, ENOTSUP, EXDEV, EINVAL, ENOTTY, ENOSYS, EPERM, EMLINK, EACCES: return .impossible
        default: throw FileError("copy to", path, errno)
        }
    }
}
