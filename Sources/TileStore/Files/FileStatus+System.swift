#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

extension FileStatus {
    init(_ info: stat) {
        let kind: FileKind =
            switch info.st_mode & S_IFMT {
            case S_IFREG: .file
            case S_IFDIR: .folder
            case S_IFLNK: .link
            default: .other
            }
        #if canImport(Darwin)
        let modified = info.st_mtimespec
        #else
        let modified = info.st_mtim
        #endif
        self.init(
            kind: kind, size: Int64(info.st_size), modified: Int64(modified.tv_sec), links: Int(info.st_nlink),
            modifiedNanoseconds: Int(modified.tv_nsec),
            isOurs: (info.st_uid == geteuid() || info.st_uid == 0) && info.st_mode & (S_IWGRP | S_IWOTH) == 0,
            number: UInt64(info.st_ino))
    }
}
