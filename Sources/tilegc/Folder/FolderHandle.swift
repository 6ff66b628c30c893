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
final class FolderHandle {
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
    /// - Throws: ``Failure`` where there is something else, or the system refuses.
    static func open(_ path: String) throws -> FolderHandle? {
        let descriptor = openPath(path)
        if descriptor >= 0 { return FolderHandle(descriptor: descriptor, path: path) }
        switch errno {
        case ENOENT: return nil
        case ENOTDIR: throw Failure(.noInput, "\(path) is not a folder")
        default: throw Failure(.inputOutput, "cannot open \(path): \(systemText(errno))")
        }
    }

    /// Opens a folder that the user named, making it and its parents if need be.
    static func make(_ path: String) throws -> FolderHandle {
        if let folder = try open(path) { return folder }
        var made = path.hasPrefix("/") ? "/" : ""
        for name in path.split(separator: "/") {
            made += made.isEmpty || made.hasSuffix("/") ? name : "/" + name
            if mkdir(made, 0o777) != 0, errno != EEXIST, errno != EISDIR {
                throw Failure(.inputOutput, "cannot make the folder \(made): \(systemText(errno))")
            }
        }
        guard let folder = try open(path) else {
            throw Failure(.inputOutput, "cannot open \(path), which was just made: was it removed?")
        }
        return folder
    }

    /// Opens a folder in this one; `nil` where that is absent, a link or no folder.
    func subfolder(_ name: String) throws -> FolderHandle? {
        let opened = openat(descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        if opened >= 0 { return FolderHandle(descriptor: opened, path: "\(path)/\(name)") }
        switch errno {
        case ENOENT, ENOTDIR, ELOOP: return nil
        default: throw Failure(.inputOutput, "cannot open \(path)/\(name): \(systemText(errno))")
        }
    }

    /// Opens a folder in this one, making it if need be.
    ///
    /// - Throws: ``Failure`` where a link or something else has its name: nothing is written through those.
    func makeSubfolder(_ name: String) throws -> FolderHandle {
        if mkdirat(descriptor, name, 0o777) != 0, errno != EEXIST {
            throw Failure(.inputOutput, "cannot make the folder \(path)/\(name): \(systemText(errno))")
        }
        guard let folder = try subfolder(name) else {
            throw Failure(
                .inputOutput,
                "\(path)/\(name) is a link or no folder, and nothing is written through it: move it away")
        }
        return folder
    }

    /// The names in the folder, in no order.
    func names() throws -> [String] {
        let copy = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0, let stream = fdopendir(copy) else {
            if copy >= 0 { close(copy) }
            throw Failure(.inputOutput, "cannot list \(path): \(systemText(errno))")
        }
        defer { closedir(stream) }
        var names: [String] = []
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                guard errno == 0 else { throw Failure(.inputOutput, "cannot list \(path): \(systemText(errno))") }
                return names
            }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { raw in
                String(decoding: raw.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
    }

    /// Reads a file of at most so many bytes.
    func read(_ name: String, limit: Int) -> Content {
        // O_NONBLOCK: opening a pipe must not wait for its writer.
        let file = openat(descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else {
            switch errno {
            case ENOENT: return .absent
            case ELOOP: return .link
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
    /// - Parameters:
    ///   - data: Its content.
    ///   - temporary: The name under which it is written in this folder; a file of that name is replaced.
    ///   - folder: Where it goes; on the same file system.
    ///   - name: Its name there; a file of that name is replaced in one step.
    func write(_ data: Data, as temporary: String, thenTo folder: FolderHandle, name: String) throws {
        unlinkat(descriptor, temporary, 0)
        let file = openat(descriptor, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o666)
        guard file >= 0 else {
            throw Failure(.inputOutput, "cannot write in \(path): \(systemText(errno))")
        }
        var failure: Failure?
        var done = 0
        while done < data.count, failure == nil {
            let count = data.withUnsafeBytes { buffer in
                platformWrite(file, UnsafeRawBufferPointer(rebasing: buffer[done...]))
            }
            if count >= 0 {
                done += count
            } else if errno != EINTR {
                failure = Failure(.inputOutput, "cannot write \(folder.path)/\(name): \(systemText(errno))")
            }
        }
        // Some file systems report a failed write only now.
        if close(file) != 0, failure == nil, errno != EINTR {
            failure = Failure(.inputOutput, "cannot write \(folder.path)/\(name): \(systemText(errno))")
        }
        if failure == nil, renameat(descriptor, temporary, folder.descriptor, name) != 0 {
            failure = Failure(.inputOutput, "cannot put \(folder.path)/\(name) in place: \(systemText(errno))")
        }
        if let failure {
            unlinkat(descriptor, temporary, 0)
            throw failure
        }
    }

    /// Removes files whose names pass the test and that were last written at least so many seconds ago.
    func sweep(olderThan seconds: Int, where isMeant: (String) -> Bool) throws {
        for name in try names() where isMeant(name) {
            var status = stat()
            guard fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { continue }
            #if canImport(Darwin)
            let modified = status.st_mtimespec.tv_sec
            #else
            let modified = status.st_mtim.tv_sec
            #endif
            if modified + seconds < time(nil) { unlinkat(descriptor, name, 0) }
        }
    }
}

private func openPath(_ path: String) -> Int32 { open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }

private func platformRead(_ file: Int32, _ buffer: UnsafeMutableRawBufferPointer) -> Int {
    read(file, buffer.baseAddress, buffer.count)
}

private func platformWrite(_ file: Int32, _ buffer: UnsafeRawBufferPointer) -> Int {
    write(file, buffer.baseAddress, buffer.count)
}
