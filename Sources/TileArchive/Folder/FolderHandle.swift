#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// An open folder.
///
/// Everything below it is reached through it, one name at a time and never through a symbolic link, so
/// that nothing outside of it can be read or written, whatever other processes do to its paths meanwhile.
final class FolderHandle: Sendable {
    /// The path, for messages.
    let path: String
    private let descriptor: Int32

    /// What a name in the folder turned out to be.
    enum Content {
        case bytes(Data)
        case absent
        case link
        /// A folder, a pipe, a device.
        case notAFile
        case tooLarge
        /// It may be a file, but the system lets nobody read it now, and says why.
        case refused(String)
    }

    private init(descriptor: Int32, path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit { close(descriptor) }

    /// Opens a folder that the user named; a link to one will do.
    ///
    /// - Returns: `nil` where there is nothing.
    /// - Throws: ``ArchiveError`` where there is something else, or the system refuses.
    static func open(_ path: String) throws -> FolderHandle? {
        guard !path.isEmpty else { throw ArchiveError(.invalidValue, "the folder's path is empty: name a folder") }
        let descriptor = openPath(path)
        if descriptor >= 0 { return FolderHandle(descriptor: descriptor, path: path) }
        switch errno {
        case ENOENT: return nil
        case ENOTDIR: throw ArchiveError(.notAnArchive, "\(path) is not a folder")
        default: throw ArchiveError.system("cannot open \(path)")
        }
    }

    /// Opens a folder that the user named, making it and its parents if need be.
    static func make(_ path: String) throws -> FolderHandle {
        if let folder = try open(path) { return folder }
        var made = path.hasPrefix("/") ? "/" : ""
        for name in path.split(separator: "/") {
            made += made.isEmpty || made.hasSuffix("/") ? name : "/" + name
            if mkdir(made, 0o777) != 0, errno != EEXIST, errno != EISDIR {
                throw ArchiveError.system("cannot make the folder \(made)")
            }
        }
        guard let folder = try open(path) else {
            throw ArchiveError(.io, "cannot open \(path), which was just made: was it removed?")
        }
        return folder
    }

    /// Opens a folder in this one; `nil` where that is absent, a link or no folder.
    func subfolder(_ name: String) throws -> FolderHandle? {
        let opened = openat(descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        if opened >= 0 { return FolderHandle(descriptor: opened, path: "\(path)/\(name)") }
        switch errno {
        case ENOENT, ENOTDIR, ELOOP: return nil
        default: throw ArchiveError.system("cannot open \(path)/\(name)")
        }
    }

    /// A user and a group that files belong to.
    struct Owner {
        var user: uid_t
        var group: gid_t
    }

    /// Who shall own what this process writes into the folder: for root the folder's owner, so that they can write it
    /// again; `nil` for everybody else.
    var ownerOfNewFiles: Owner? {
        var status = stat()
        guard geteuid() == 0, fstat(descriptor, &status) == 0 else { return nil }
        return Owner(user: status.st_uid, group: status.st_gid)
    }

    /// The rights of what this process makes in the folder: those of the folder, and none to write for others.
    var rightsOfNewFiles: mode_t {
        var status = stat()
        return fstat(descriptor, &status) == 0 ? (status.st_mode | 0o700) & 0o775 : 0o700
    }

    /// Gives what was just made its rights where the process's mask has taken some from a group that may write.
    private static func grant(_ rights: mode_t?, to file: Int32) {
        guard let rights, rights & 0o020 != 0 else { return }
        var status = stat()
        // A file system without rights refuses, and has none to keep.
        if fstat(file, &status) == 0 { _ = fchmod(file, rights | status.st_mode & 0o7000) }
    }

    /// Opens a folder in this one, making it if need be.
    ///
    /// - Parameter rights: Its rights if it is made; `nil` for those that the process's mask leaves.
    /// - Parameter owner: Who shall own it if root made it. Changed through the open folder: a path may lead elsewhere
    ///   by the time it is used.
    /// - Throws: ``ArchiveError`` where a link or something else has its name: nothing is written through those.
    func makeSubfolder(_ name: String, rights: mode_t? = nil, owner: Owner? = nil) throws -> FolderHandle {
        let isNew = mkdirat(descriptor, name, rights ?? 0o777) == 0
        if !isNew, errno != EEXIST {
            throw ArchiveError.system("cannot make the folder \(path)/\(name)")
        }
        guard let folder = try subfolder(name) else {
            throw ArchiveError(
                .io,
                "\(path)/\(name) is a link or no folder, and nothing is written through it: move it away")
        }
        if isNew { Self.grant(rights, to: folder.descriptor) }
        if let owner {
            var status = stat()
            if fstat(folder.descriptor, &status) == 0, status.st_uid == 0 {
                // A file system without owners refuses, and has none to keep.
                _ = fchown(folder.descriptor, owner.user, owner.group)
            }
        }
        return folder
    }

    /// The names in the folder, in no order.
    func names() throws -> [String] {
        let copy = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0, let stream = fdopendir(copy) else {
            if copy >= 0 { close(copy) }
            throw ArchiveError.system("cannot list \(path)")
        }
        defer { closedir(stream) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                guard errno == 0 else { throw ArchiveError.system("cannot list \(path)") }
                return names
            }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { raw in
                String(decoding: raw.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
    }

    /// When the file of a name was last written, in seconds since 1970.
    func modified(_ name: String) -> Int64? {
        var status = stat()
        return fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? modificationTime(status) : nil
    }

    /// Reads a file of at most so many bytes.
    func read(_ name: String, limit: Int) -> Content {
        // O_NONBLOCK: opening a pipe must not wait for its writer.
        let file = openat(descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else {
            switch errno {
            case ENOENT: return .absent
            case ELOOP: return .link
            // A socket, a device that is not there.
            case ENXIO, ENODEV, EOPNOTSUPP: return .notAFile
            default: return .refused(systemText(errno))
            }
        }
        defer { close(file) }
        var status = stat()
        guard fstat(file, &status) == 0 else { return .refused(systemText(errno)) }
        guard status.st_mode & S_IFMT == S_IFREG else { return .notAFile }
        guard status.st_size <= limit else { return .tooLarge }
        var data = Data(count: Int(status.st_size))
        let capacity = data.count
        var done = 0
        while done < capacity {
            let count = data.withUnsafeMutableBytes { buffer in
                platformRead(file, UnsafeMutableRawBufferPointer(rebasing: buffer[done...]))
            }
            if count > 0 {
                done += count
            } else if count == 0 {
                return .bytes(data.prefix(done))
            } else if errno != EINTR {
                return .refused(systemText(errno))
            }
        }
        return .bytes(data)
    }

    /// Writes a new file and gives it, whole, its place in another folder.
    ///
    /// A file that is replaced hands on its permissions, and for root its owner.
    /// - Parameters:
    ///   - data: Its content.
    ///   - temporary: The name under which it is written in this folder; a file of that name is replaced.
    ///   - folder: Where it goes; on the same file system.
    ///   - name: Its name there; a file of that name is replaced in one step.
    ///   - rights: Its rights if it replaces none; `nil` for those that the process's mask leaves.
    ///   - owner: Who shall own it; `nil` for who owns what it replaces.
    func write(
        _ data: Data, as temporary: String, thenTo folder: FolderHandle, name: String, rights: mode_t? = nil,
        owner: Owner? = nil
    ) throws {
        unlinkat(descriptor, temporary, 0)
        let replaced = ReplacedFile(folder.descriptor, name)
        let file = openat(
            descriptor, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
            replaced == nil ? rights.map { $0 & 0o666 } ?? 0o666 : ReplacedFile.creationMode(replaced))
        guard file >= 0 else {
            throw ArchiveError.system("cannot write in \(path)")
        }
        if let replaced { replaced.handOn(to: file) } else { Self.grant(rights.map { $0 & 0o666 }, to: file) }
        if let owner { _ = fchown(file, owner.user, owner.group) }
        var failure: ArchiveError?
        var done = 0
        while done < data.count, failure == nil {
            let count = data.withUnsafeBytes { buffer in
                platformWrite(file, UnsafeRawBufferPointer(rebasing: buffer[done...]))
            }
            if count >= 0 {
                done += count
            } else if errno != EINTR {
                failure = ArchiveError.system("cannot write \(folder.path)/\(name)")
            }
        }
        // Some file systems report a failed write only now.
        if close(file) != 0, failure == nil, errno != EINTR {
            failure = ArchiveError.system("cannot write \(folder.path)/\(name)")
        }
        if failure == nil, renameat(descriptor, temporary, folder.descriptor, name) != 0 {
            failure = ArchiveError.system("cannot put \(folder.path)/\(name) in place")
        }
        if let failure {
            unlinkat(descriptor, temporary, 0)
            throw failure
        }
    }

    /// Does something while no other process, or thread, does the same; waits for those that are at it.
    func whileLocked(_ body: () throws -> Void) throws {
        // A descriptor of its own: a lock belongs to the opening, and threads may share this one.
        let lock = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard lock >= 0 else { throw ArchiveError.system("cannot open \(path)") }
        defer { close(lock) }
        while flock(lock, LOCK_EX) != 0 {
            guard errno == EINTR else { throw ArchiveError.system("cannot lock \(path)") }
        }
        try body()
    }

    /// Removes a file, if there is one.
    func remove(_ name: String) { unlinkat(descriptor, name, 0) }

    /// Removes files whose names pass the test and that were last written at least so many seconds ago.
    func sweep(olderThan seconds: Int, where isMeant: (String) -> Bool) throws {
        for name in try names() where isMeant(name) {
            var status = stat()
            guard fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { continue }
            if modificationTime(status) + Int64(seconds) < Int64(time(nil)) { unlinkat(descriptor, name, 0) }
        }
    }
}

/// The permissions and the owner of a file that is about to be replaced.
struct ReplacedFile {
    private let mode: mode_t
    private let owner: FolderHandle.Owner

    /// Looks at a plain file; `nil` where there is none.
    init?(_ folder: Int32, _ name: String) {
        var status = stat()
        guard fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT == S_IFREG else {
            return nil
        }
        mode = status.st_mode & 0o777
        owner = FolderHandle.Owner(user: status.st_uid, group: status.st_gid)
    }

    /// With which permissions the new file is made: nobody else reads it before it has those of the old one.
    static func creationMode(_ replaced: ReplacedFile?) -> mode_t { replaced == nil ? 0o666 : 0o600 }

    /// Gives the new file the permissions, and as root the owner.
    ///
    /// Where the file system refuses, the new file stays readable by its owner alone.
    func handOn(to file: Int32) {
        if geteuid() == 0 { _ = fchown(file, owner.user, owner.group) }
        _ = fchmod(file, mode)
    }
}

private func openPath(_ path: String) -> Int32 { open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }

private func platformRead(_ file: Int32, _ buffer: UnsafeMutableRawBufferPointer) -> Int {
    read(file, buffer.baseAddress, buffer.count)
}

private func platformWrite(_ file: Int32, _ buffer: UnsafeRawBufferPointer) -> Int {
    write(file, buffer.baseAddress, buffer.count)
}
