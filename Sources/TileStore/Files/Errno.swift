#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The error numbers that the store tells apart.
enum Errno {
    static let noEntry = ENOENT
    static let io = EIO
    static let exists = EEXIST
    static let badFile = EBADF
    static let noAccess = EACCES
    static let readOnlyVolume = EROFS
    static let notPermitted = EPERM
    static let noSpace = ENOSPC
    static let quota = EDQUOT
    static let notFolder = ENOTDIR
    static let isFolder = EISDIR
    static let tooManyLinks = ELOOP
    static let noMemory = ENOMEM
    static let notEmpty = ENOTEMPTY
}

extension FileError {
    var isFull: Bool { number == Errno.noSpace || number == Errno.quota }
    var isDenied: Bool {
        number == Errno.noAccess || number == Errno.readOnlyVolume || number == Errno.notPermitted
    }
}

extension StoreError {
    /// The same failure in the words of the public interface.
    init(_ error: FileError, in location: String) {
        if error.isFull {
            self.init(
                .diskFull,
                "the disk of \(location) is full (\(error)); free space, or evict with tilegc gc --max-bytes",
                cause: error)
        } else if error.number == Errno.readOnlyVolume {
            self.init(
                .readOnly,
                "the disk of \(location) is read-only (\(error)); mount it for writing, after an error (see the system's log) with "
                    + "fsck first", cause: error)
        } else if error.isDenied {
            self.init(
                .readOnly, "\(location) cannot be used so by this user (\(error)); see its owner and its mode",
                cause: error)
        } else if error.isForeignObject {
            self.init(
                .damaged,
                "\(error.path) is not the plain file or folder that belongs there (\(error)); move it away, then run "
                    + "tilegc verify", cause: error)
        } else if error.number == EIO {
            self.init(
                .io,
                "\(error): the disk fails there; see the system's log, and export what can be read to another disk",
                cause: error)
        } else {
            self.init(.io, "\(error)", cause: error)
        }
    }
}

extension FileError {
    /// Whether a blob's path led to something that is no plain file.
    var isForeignObject: Bool {
        number == ELOOP || number == EISDIR || number == ENOTDIR || number == ENXIO || number == EMLINK
            || number == ESPIPE
    }
}
