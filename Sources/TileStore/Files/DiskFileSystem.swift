#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The real file system: plain system calls on paths below one folder.
///
/// Paths are absolute until ``enter()`` has bound them to the folder that its location leads to.
package final class DiskFileSystem: FileSystem {
    package let location: String
    package let blockSize: Int
    private let owner: (user: uid_t, group: gid_t)?
    // How files and folders are made: see `FileModes`. Changes once at most, while the cache is made and has no second thread.
    private nonisolated(unsafe) var modes: FileModes
    // location + "/", as the bytes of a path; immutable, freed in deinit.
    private nonisolated(unsafe) let prefix: UnsafeMutableBufferPointer<CChar>
    // A descriptor of the folder, or -1. Set once, while the store is opened and has no second thread; entering anew puts
    // another folder behind the same number.
    private nonisolated(unsafe) var folder: Int32 = -1
    let mostAtOnce: Int

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
        modes = FileModes(folder: exists ? info.st_mode : 0o700)
        owner = exists && geteuid() == 0 && info.st_uid != 0 ? (info.st_uid, info.st_gid) : nil
    }

    deinit {
        if folder >= 0 { closeDescriptor(folder) }
        prefix.deallocate()
    }

    package func enter() throws(FileError) {
        let found = openDescriptor(location, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
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

    /// The folder's descriptor since the store was opened; `nil` where there is none.
    var keptFolder: Int32? { folder >= 0 ? folder : nil }

    /// The absolute path, for messages.
    func full(_ path: String) -> String { path.isEmpty ? location : "\(location)/\(path)" }

    /// Calls the body with a folder's descriptor and a path from there, put together on the stack.
    @inline(__always)
    func with<R>(_ path: String, _ body: (Int32, UnsafePointer<CChar>) -> R) -> R {
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
    func with<R>(_ path: UnsafePointer<CChar>, _ body: (Int32, UnsafePointer<CChar>) -> R) -> R {
        if folder >= 0 { return body(folder, path) }
        let length = strlen(path) + 1
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: prefix.count + length) { joined in
            let base = joined.baseAddress.unsafelyUnwrapped
            memcpy(base, prefix.baseAddress.unsafelyUnwrapped, prefix.count)
            memcpy(base + prefix.count, path, length)
            return body(AT_FDCWD, base)
        }
    }

    /// A descriptor of a folder; the folder itself is `""`.
    ///
    /// A link in the place of one is refused (`ELOOP` or `ENOTDIR`).
    func openFolder(_ path: String) -> Int32 {
        let flags = O_RDONLY | O_CLOEXEC | O_DIRECTORY | (path.isEmpty ? 0 : O_NOFOLLOW)
        return with(path.isEmpty && folder >= 0 ? "." : path) { openat($0, $1, flags) }
    }

    func failure(_ operation: String, _ path: String) -> FileError {
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
                    path.hasPrefix(Self.staging) ? modes.file & ~0o022 : modes.file
                }
            let descriptor =
                path.hasPrefix(Self.staging)
                ? try openStaged(path, flags | O_CLOEXEC, bits)
                : with(path) { openat($0, $1, flags | O_CLOEXEC, bits) }
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

    private static var staging: String { "staging/" }

    /// Opens a file in `staging/` by a descriptor of that folder, which must be no link: the folder was looked at when the cache
    /// was opened, and a link may have taken its place since.
    private func openStaged(_ path: String, _ flags: Int32, _ bits: mode_t) throws(FileError) -> Int32 {
        let staging = with("staging") { openat($0, $1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) }
        guard staging >= 0 else { throw failure("open folder", "staging") }
        let descriptor = path.dropFirst(Self.staging.count).withCString { openat(staging, $0, flags, bits) }
        let number = errno
        closeDescriptor(staging)
        errno = number
        return descriptor
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

    package func createFile(_ path: String, _ bytes: UnsafeRawBufferPointer, sync: Bool) throws(FileError) {
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW
        let descriptor =
            path.hasPrefix(Self.staging)
            ? try openStaged(path, flags, modes.blob) : with(path) { openat($0, $1, flags, modes.blob) }
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
            if path.isEmpty, stat(location, &info) == 0 { modes = FileModes(folder: info.st_mode) }
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

    package func mayWrite() -> Bool {
        guard access(location, W_OK) == 0 else { return false }
        // After an error of its disk, ext4 may still be mounted rw for `access`, and refuse every opening for writing: but for the first,
        // by which it takes note of the error.
        for _ in 0..<2 {
            let lock = openDescriptor(location + "/lock", O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
            guard lock >= 0 else { return errno != Errno.readOnlyVolume }
            closeDescriptor(lock)
        }
        return true
    }
}
