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
        let descriptor = openFolder("")
        guard descriptor >= 0 else { throw failure("open folder", "") }
        defer { closeDescriptor(descriptor) }
        if syncVolume(descriptor) != 0 { throw failure("sync the file system of", "") }
        return true
        #endif
    }
}
