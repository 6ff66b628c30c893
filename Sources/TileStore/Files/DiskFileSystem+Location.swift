#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

// The way to the cache's folder: what is above it, and what keeps it from being one.
extension DiskFileSystem {
    /// Makes the folders above the cache's own.
    func makeParents() throws(FileError) {
        var at = location.startIndex
        while let slash = location[location.index(after: at)...].firstIndex(of: "/") {
            at = slash
            let parent = String(location[..<slash])
            if mkdir(parent, 0o755) != 0, errno != EEXIST, errno != EISDIR {
                var info = stat()
                // A read-only volume says EROFS even where the folder is there.
                if stat(parent, &info) != 0 { throw FileError("make folder", parent, errno) }
            }
        }
    }

    /// What keeps the location from being a folder, for messages; `nil` if nothing does.
    func obstacle() -> String? {
        var info = stat()
        if stat(location, &info) == 0 {
            return info.st_mode & S_IFMT == S_IFDIR ? nil : "\(location) is a file, not the folder of a tile cache"
        }
        let number = errno
        if lstat(location, &info) == 0 { return "\(location) is a link that leads to nothing" }
        guard number == ENOTDIR else { return nil }
        var parent = location
        while let slash = parent.lastIndex(of: "/"), slash != parent.startIndex {
            parent = String(parent[..<slash])
            if stat(parent, &info) == 0 { break }
        }
        return "\(parent) is a file, so there can be no folder \(location)"
    }

    /// Syncs the folder that the cache's own is in, so that a power cut does not take its name.
    func syncParent() throws(FileError) {
        guard let slash = location.lastIndex(of: "/"), slash != location.endIndex else { return }
        let parent = slash == location.startIndex ? "/" : String(location[..<slash])
        let descriptor = openDescriptor(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else {
            // A folder that may be passed through but not listed cannot be synced by this user.
            if errno == EACCES { return }
            throw FileError("open folder", parent, errno)
        }
        defer { closeDescriptor(descriptor) }
        // Some file systems have no sync of folders.
        if fsync(descriptor) != 0, errno != EINVAL, errno != EROFS { throw FileError("sync folder", parent, errno) }
    }
}
