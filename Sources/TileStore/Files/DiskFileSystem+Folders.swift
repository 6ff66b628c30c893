#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

// Folders: listing, syncing, removing.
extension DiskFileSystem {
    package func removeFolder(_ path: String) throws(FileError) -> Bool {
        if with(path, { unlinkat($0, $1, AT_REMOVEDIR) }) == 0 { return true }
        if errno == ENOENT { return false }
        throw failure("remove folder", path)
    }

    package func list(_ path: String) throws(FileError) -> [String]? {
        let descriptor = openFolder(path)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw failure("list", path)
        }
        guard let folder = fdopendir(descriptor) else {
            let number = errno
            closeDescriptor(descriptor)
            throw FileError("list", full(path), number)
        }
        defer { closedir(folder) }
        var names: [String] = []
        while true {
            errno = 0
            guard let item = readdir(folder) else {
                if errno != 0 { throw failure("list", path) }
                return names
            }
            let name = withUnsafeBytes(of: &item.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
    }

    package func syncFolder(_ path: String) throws(FileError) {
        let descriptor = openFolder(path)
        guard descriptor >= 0 else { throw failure("open folder", path) }
        defer { closeDescriptor(descriptor) }
        if fsync(descriptor) != 0 { throw failure("sync folder", path) }
    }

    package func syncAll() throws(FileError) -> Bool {
        #if canImport(Darwin) || canImport(Musl)
        return false
        #else
        guard let syncVolume else { return false }
        var synced: [dev_t] = []
        // A disk may be mounted at the place of one of these; of a set, `objects` may be a link.
        for path in ["", "objects", "manifest"] {
            // The system tells each descriptor once what could not be written since that was opened; one that is opened now hears only
            // of what nobody else has been told. So it is the one that is open since the beginning, where there is one.
            let kept = path.isEmpty ? keptFolder : nil
            let descriptor = kept ?? with(path) { openat($0, $1, O_RDONLY | O_CLOEXEC | O_DIRECTORY) }
            guard descriptor >= 0 else {
                if errno == ENOENT, !path.isEmpty { continue }
                throw failure("open folder", path)
            }
            defer { if kept == nil { closeDescriptor(descriptor) } }
            var info = stat()
            guard fstat(descriptor, &info) == 0 else { throw failure("status", path) }
            guard !synced.contains(info.st_dev) else { continue }
            if syncVolume(descriptor) != 0 { throw failure("sync the file system of", path) }
            synced.append(info.st_dev)
        }
        return true
        #endif
    }
}
