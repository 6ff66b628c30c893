#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

func errorText(_ number: Int32) -> String {
    guard let text = strerror(number) else { return "error \(number)" }
    return String(cString: text)
}

/// The real file system: plain system calls on paths below one folder.
///
/// Paths are absolute until ``enter()`` has bound them to the folder that its location leads to.
package final class DiskFileSystem: FileSystem {
    package let location: String
    package let blockSize: Int
    private let owner: (user: uid_t, group: gid_t)?
    // How files and folders are made: see `Modes`. Changes once at most, while the cache is made and has no second thread.
    private nonisolated(unsafe) var modes: Modes
    // location + "/", as the bytes of a path; immutable, freed in deinit.
    private nonisolated(unsafe) let prefix: UnsafeMutableBufferPointer<CChar>
    // A descriptor of the folder, or -1. Set once, while the store is opened and has no second thread; entering anew puts
    // another folder behind the same number.
    private nonisolated(unsafe) var folder: Int32 = -1
    private let mostAtOnce: Int

    /// - Parameters:
    ///   - location: The cache's folder; made absolute, so that a later change of directory does not matter.
    ///   - mostAtOnce: How many bytes one system call reads or writes. Linux stops short of 2 GiB, Darwin refuses 2 GiB.
    package init(location: String, mostAtOnce: Int = 1 << 30) {
        self.mostAtOnce = mostAtOnce
        var path = location.isEmpty ? "." : location
        if !path.hasPrefix("/"), let cwd = getcwd(nil, 0) {
            path = String(cString: cwd) + "/" + path
            free(cwd)
        }
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        self.location = path
        let bytes = Array((path + "/").utf8CString)
        prefix = .allocate(capacity: bytes.count - 1)
        _ = prefix.initialize(from: bytes.dropLast())
        var info = stat()
        let exists = stat(path, &info) == 0
        // Blocks are what `statvfs` calls fragments; where the folder does not exist yet, its parent answers.
        var volume = statvfs()
        var probe = path
        while statvfs(probe, &volume) != 0, let slash = probe.lastIndex(of: "/"), slash != probe.startIndex {
            probe = String(probe[..<slash])
        }
        let fragment = Int(volume.f_frsize)
        blockSize = fragment >= 512 && fragment <= 1 << 20 ? fragment : 4096
        modes = Modes(folder: exists ? info.st_mode : 0o700)
        owner = exists && geteuid() == 0 && info.st_uid != 0 ? (info.st_uid, info.st_gid) : nil
    }

    deinit {
        if folder >= 0 { closeDescriptor(folder) }
        prefix.deallocate()
    }

    package func enter() throws(FileError) {
        #if canImport(Darwin)
        let found = Darwin.open(location, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        #elseif canImport(Musl)
        let found = Musl.open(location, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        #else
        let found = Glibc.open(location, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        #endif
        guard found >= 0 else {
            // Without the right to list it, or without the folder, paths go on leading where they led.
            if errno == EACCES || errno == ENOENT || errno == ENOTDIR { return }
            throw failure("open folder", "")
        }
        guard folder >= 0 else {
            folder = found
            return
        }
        // Other threads may be using the number: what is behind it changes in one step.
        defer { closeDescriptor(found) }
        guard dup2(found, folder) >= 0, fcntl(folder, F_SETFD, FD_CLOEXEC) >= 0 else {
            throw failure("open folder", "")
        }
    }

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
        #if canImport(Darwin)
        let descriptor = Darwin.open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        #elseif canImport(Musl)
        let descriptor = Musl.open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        #else
        let descriptor = Glibc.open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        #endif
        guard descriptor >= 0 else {
            // A folder that may be passed through but not listed cannot be synced by this user.
            if errno == EACCES { return }
            throw FileError("open folder", parent, errno)
        }
        defer { closeDescriptor(descriptor) }
        // Some file systems have no sync of folders.
        if fsync(descriptor) != 0, errno != EINVAL, errno != EROFS { throw FileError("sync folder", parent, errno) }
    }

    /// The absolute path, for messages.
    private func full(_ path: String) -> String { path.isEmpty ? location : "\(location)/\(path)" }

    /// Calls the body with a folder's descriptor and a path from there, put together on the stack.
    @inline(__always)
    private func with<R>(_ path: String, _ body: (Int32, UnsafePointer<CChar>) -> R) -> R {
        // The folder itself is always looked up anew.
        let start = folder >= 0 && !path.isEmpty ? 0 : prefix.count
        var path = path
        return path.withUTF8 { utf8 in
            withUnsafeTemporaryAllocation(of: CChar.self, capacity: start + utf8.count + 1) { joined in
                let base = joined.baseAddress.unsafelyUnwrapped
                if start > 0 { memcpy(base, prefix.baseAddress.unsafelyUnwrapped, start) }
                if let bytes = utf8.baseAddress { memcpy(base + start, bytes, utf8.count) }
                base[start + utf8.count] = 0
                return body(start > 0 ? AT_FDCWD : folder, base)
            }
        }
    }

    /// The same for a path that is a C string already.
    @inline(__always)
    private func with<R>(_ path: UnsafePointer<CChar>, _ body: (Int32, UnsafePointer<CChar>) -> R) -> R {
        if folder >= 0 { return body(folder, path) }
        let length = strlen(path) + 1
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: prefix.count + length) { joined in
            let base = joined.baseAddress.unsafelyUnwrapped
            memcpy(base, prefix.baseAddress.unsafelyUnwrapped, prefix.count)
            memcpy(base + prefix.count, path, length)
            return body(AT_FDCWD, base)
        }
    }

    private func failure(_ operation: String, _ path: String) -> FileError {
        FileError(operation, full(path), errno)
    }

    /// What root creates belongs to whom the folder belongs to.
    private func adopt(_ descriptor: Int32) {
        if let owner { _ = fchown(descriptor, owner.user, owner.group) }
    }

    package func open(_ path: String, _ mode: OpenMode) throws(FileError) -> OpenFile {
        var flags: Int32 =
            switch mode {
            case .read: O_RDONLY | O_NOFOLLOW | O_NONBLOCK
            case .append: O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK
            case .appendCreating: O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK
            case .createNew, .createBlob: O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW
            }
        while true {
            let bits =
                if mode == .createBlob {
                    modes.blob
                } else {
                    // What is staged is written by nobody else.
                    path.hasPrefix("staging/") ? modes.file & ~0o022 : modes.file
                }
            let descriptor = with(path) { openat($0, $1, flags | O_CLOEXEC, bits) }
            if descriptor >= 0 {
                if owner != nil, flags & O_CREAT != 0 { adopt(descriptor) }
                if modes.isNarrowed, flags & O_CREAT != 0 { _ = fchmod(descriptor, bits & modes.allowed) }
                return try plainFile(descriptor, path)
            }
            switch errno {
            case EINTR: continue
            // In a folder that was removed nothing can be made: then the second attempt ends here too.
            case ENOENT where mode == .appendCreating && flags & O_CREAT == 0: flags |= O_CREAT | O_EXCL
            // Somebody else has made it meanwhile.
            case EEXIST where mode == .appendCreating: flags &= ~(O_CREAT | O_EXCL)
            default: throw failure("open", path)
            }
        }
    }

    /// Refuses folders, pipes and devices, from which a read may never return.
    private func plainFile(_ descriptor: Int32, _ path: String) throws(FileError) -> OpenFile {
        var info = stat()
        guard fstat(descriptor, &info) == 0 else {
            let error = failure("status", path)
            closeDescriptor(descriptor)
            throw error
        }
        let kind = info.st_mode & S_IFMT
        guard kind == S_IFREG else {
            closeDescriptor(descriptor)
            throw FileError("open", full(path), kind == S_IFDIR ? EISDIR : ENXIO)
        }
        return OpenFile(number: descriptor)
    }

    package func close(_ file: OpenFile) { closeDescriptor(file.number) }

    private func closeDescriptor(_ descriptor: Int32) {
        #if canImport(Darwin)
        _ = Darwin.close(descriptor)
        #elseif canImport(Musl)
        _ = Musl.close(descriptor)
        #else
        _ = Glibc.close(descriptor)
        #endif
    }

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
                throw failure("read", "")
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
            if errno != EINTR { throw failure("read", "") }
        }
    }
    #endif

    package func write(_ file: OpenFile, _ bytes: UnsafeRawBufferPointer) throws(FileError) -> Int {
        let count = min(bytes.count, mostAtOnce)
        while true {
            #if canImport(Darwin)
            let n = Darwin.write(file.number, bytes.baseAddress, count)
            #elseif canImport(Musl)
            let n = Musl.write(file.number, bytes.baseAddress, count)
            #else
            let n = Glibc.write(file.number, bytes.baseAddress, count)
            #endif
            if n >= 0 { return n }
            if errno != EINTR { throw failure("write", "") }
        }
    }

    package func truncate(_ file: OpenFile, to size: Int64) throws(FileError) {
        while ftruncate(file.number, off_t(size)) != 0 {
            if errno != EINTR { throw failure("truncate", "") }
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
        if result != 0 { throw failure("sync", "") }
    }

    package func status(of file: OpenFile) throws(FileError) -> FileStatus {
        var info = stat()
        guard fstat(file.number, &info) == 0 else { throw failure("status", "") }
        return FileStatus(info)
    }

    package func length(of file: OpenFile) throws(FileError) -> Int64 {
        let end = lseek(file.number, 0, SEEK_END)
        guard end >= 0 else { throw failure("seek", "") }
        return Int64(end)
    }

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
            #if canImport(Darwin)
            let n = Darwin.read(descriptor, buffer.baseAddress.unsafelyUnwrapped + done, wanted)
            #elseif canImport(Musl)
            let n = Musl.read(descriptor, buffer.baseAddress.unsafelyUnwrapped + done, wanted)
            #else
            let target = buffer.baseAddress.unsafelyUnwrapped + done
            let n: Int
            if onlyCached {
                n = readCached(descriptor, target, wanted, Int64(done))
            } else {
                n = Glibc.read(descriptor, target, wanted)
            }
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

    package func createFile(_ path: String, _ bytes: UnsafeRawBufferPointer, sync: Bool) throws(FileError) {
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW
        let descriptor = with(path) { openat($0, $1, flags, modes.blob) }
        guard descriptor >= 0 else { throw failure("create", path) }
        adopt(descriptor)
        if modes.isNarrowed { _ = fchmod(descriptor, modes.blob & modes.allowed) }
        let file = OpenFile(number: descriptor)
        do throws(FileError) {
            try writeAll(file, bytes)
            if sync { try self.sync(file) }
            closeDescriptor(descriptor)
        } catch {
            closeDescriptor(descriptor)
            _ = with(path) { unlinkat($0, $1, 0) }
            throw FileError(error.operation, full(path), error.number)
        }
    }

    package func rename(_ from: String, to: String) throws(FileError) {
        let result = with(from) { folder, from in with(to) { renameat(folder, from, $0, $1) } }
        if result != 0 { throw failure("rename to", to) }
    }

    package func unlink(_ path: String) throws(FileError) -> Bool {
        let result = with(path) { unlinkat($0, $1, 0) }
        if result == 0 { return true }
        if errno == ENOENT { return false }
        throw failure("unlink", path)
    }

    package func makeFolder(_ path: String) throws(FileError) -> Bool {
        if with(path, { mkdirat($0, $1, modes.folder) }) == 0 {
            if modes.isNarrowed { widen(path) }
            if let owner {
                _ = with(path) { fchownat($0, $1, owner.user, owner.group, AT_SYMLINK_NOFOLLOW) }
            }
            return true
        }
        if errno == EEXIST {
            var info = stat()
            if path.isEmpty, stat(location, &info) == 0 { modes = Modes(folder: info.st_mode) }
            return false
        }
        throw failure("make folder", path)
    }

    /// Gives a new folder the rights that the process's mask has taken from it; the bit by which it hands on its group stays.
    private func widen(_ path: String) {
        var info = stat()
        guard with(path, { fstatat($0, $1, &info, AT_SYMLINK_NOFOLLOW) }) == 0 else { return }
        _ = with(path) { fchmodat($0, $1, modes.folder & modes.allowed | info.st_mode & S_ISGID, 0) }
    }

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

    private func openFolder(_ path: String) -> Int32 {
        with(path.isEmpty && folder >= 0 ? "." : path) { openat($0, $1, O_RDONLY | O_CLOEXEC | O_DIRECTORY) }
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

    package func tryLock(_ file: OpenFile) throws(FileError) -> Bool {
        while true {
            if flock(file.number, LOCK_EX | LOCK_NB) == 0 { return true }
            if errno == EWOULDBLOCK { return false }
            if errno != EINTR { throw failure("lock", "") }
        }
    }

    package func unlock(_ file: OpenFile) { _ = flock(file.number, LOCK_UN) }

    package func mayWrite() -> Bool { access(location, W_OK) == 0 }
}

/// The rights of what is made in a cache's folder: those of the folder, as far as the process's mask permits.
///
/// A folder that the store makes is its owner's alone. One whose group may write is meant for that group: then the group's
/// rights are the folder's, whatever the mask says. Others never get the right to write.
private struct Modes {
    let folder: mode_t
    let file: mode_t
    let blob: mode_t
    /// Whether the mask would take from the group what the folder grants it.
    let isNarrowed: Bool
    /// The bits that a new file may have where that is so.
    let allowed: mode_t

    init(folder mode: mode_t) {
        folder = (mode | 0o700) & 0o775
        file = folder & 0o666
        blob = folder & 0o444
        guard mode & 0o020 != 0 else {
            (isNarrowed, allowed) = (false, 0o777)
            return
        }
        // Where the mask cannot be read, others get nothing.
        let mask = currentMask() ?? 0o077
        isNarrowed = folder & mask & 0o070 != 0
        allowed = ~(mask & 0o007) & 0o777
    }
}

/// The process's mask for new files, read without changing it for a moment, as `umask` would for all threads.
private func currentMask() -> mode_t? {
    #if canImport(Darwin)
    return nil
    #else
    guard let file = fopen("/proc/self/status", "re") else { return nil }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 256)
    while fgets(&line, Int32(line.count), file) != nil {
        let text = line.withUnsafeBytes { String(decoding: $0.prefix { $0 > 0x20 || $0 == 0x09 }, as: UTF8.self) }
        if text.hasPrefix("Umask:") {
            return mode_t(text.dropFirst(6).drop { $0 == "\t" }, radix: 8)
        }
    }
    return nil
    #endif
}

#if !canImport(Darwin) && !canImport(Musl)
/// `preadv2`, which the Swift module of the C library does not show.
private typealias PositionedRead =
    @convention(c) (Int32, UnsafePointer<iovec>?, Int32, off_t, Int32) -> Int
private let positionedRead: PositionedRead? = dlsym(nil, "preadv2").map { unsafeBitCast($0, to: PositionedRead.self) }

/// `syncfs`, which it does not show either.
private let syncVolume: (@convention(c) (Int32) -> Int32)? = dlsym(nil, "syncfs").map {
    unsafeBitCast($0, to: (@convention(c) (Int32) -> Int32).self)
}

/// Reads what the page cache has; `EAGAIN` where the disk would have to be waited for.
///
/// A file system that knows no such reads (`EOPNOTSUPP`) is read as ever.
package func readCached(_ file: Int32, _ target: UnsafeMutableRawPointer, _ count: Int, _ offset: Int64) -> Int {
    let onlyCached: Int32 = 0x8  // RWF_NOWAIT
    if let positionedRead {
        var part = iovec(iov_base: target, iov_len: count)
        let n = positionedRead(file, &part, 1, off_t(offset), onlyCached)
        if n >= 0 || errno != EOPNOTSUPP { return n }
    }
    return pread(file, target, count, off_t(offset))
}
#endif

extension FileStatus {
    fileprivate init(_ info: stat) {
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
            isOurs: (info.st_uid == geteuid() || info.st_uid == 0) && info.st_mode & (S_IWGRP | S_IWOTH) == 0)
    }
}
