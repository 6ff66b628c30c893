#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Why a Unix socket cannot be listened on: one line.
package struct ListeningSocketProblem: Error, Hashable, CustomStringConvertible {
    package let description: String
}

/// A Unix socket that this process listens on: the file by which clients find it.
///
/// All of this blocks.
package struct ListeningSocket: Sendable {
    /// The file's path.
    package let path: String
    /// Which file it is: another process may have put one of its own in its place.
    private let identity: Identity

    private struct Identity: Hashable, Sendable {
        var device: UInt64
        var inode: UInt64
    }

    /// Bytes that a socket's path may have: what the system's address has room for, without the NUL at its end.
    package static let longestPath = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1

    /// The rights of a socket's file if nothing else is said: its owner alone may connect.
    package static let defaultMode = 0o600

    /// How long another process that begins or ends to listen in the same folder is waited for.
    private static let lockPatience = 2_000
    private static let lockPause = 10

    /// What is wrong with a path, whatever is there.
    package static func problem(with path: String) -> ListeningSocketProblem? {
        guard path.hasPrefix("/"), !path.utf8.contains(0) else {
            return ListeningSocketProblem(description: "a socket's path begins with /")
        }
        guard path.utf8.count <= longestPath else {
            return ListeningSocketProblem(
                description: "a socket's path has \(longestPath) bytes at most, and this one has \(path.utf8.count)")
        }
        return nil
    }

    /// Makes a socket and listens on it.
    ///
    /// The file has its rights before the first client can connect. A socket on which nobody listens any more is replaced. One that is
    /// in use, and whatever else is there, is left as it is.
    ///
    /// - Parameters:
    ///   - mode: The rights of the file; the process's umask does not count. To connect, a process has to be allowed to write.
    ///   - backlog: How many connections may wait to be accepted.
    /// - Returns: The socket's file, and the descriptor, which is the caller's.
    package static func listen(
        at path: String, mode: Int, backlog: Int32
    ) throws(ListeningSocketProblem) -> (socket: ListeningSocket, descriptor: Int32) {
        if let problem = problem(with: path) { throw problem }
        let lock = FolderLock(of: path)
        defer { lock.release() }
        try makeRoom(at: path)
        let descriptor = try newSocket()
        do throws(ListeningSocketProblem) {
            // Linux gives the file the socket's rights, less the umask, so that it never has more; other systems refuse this.
            _ = fchmod(descriptor, mode_t(mode))
            guard withAddress(of: path, { bind(descriptor, $0, $1) }) == 0 else {
                throw failure(
                    errno == ENOENT ? "the folder \(folder(of: path)) does not exist" : "it cannot be made: \(reason())"
                )
            }
        } catch {
            close(descriptor)
            throw error
        }
        do throws(ListeningSocketProblem) {
            // Nobody can connect yet.
            guard setMode(of: path, mode_t(mode)) == 0 else { throw failure("its rights cannot be set: \(reason())") }
            guard let identity = status(of: path)?.identity else { throw failure("it is gone: \(reason())") }
            guard systemListen(descriptor, backlog) == 0 else { throw failure("it cannot be listened on: \(reason())") }
            return (ListeningSocket(path: path, identity: identity), descriptor)
        } catch {
            unlink(path)
            close(descriptor)
            throw error
        }
    }

    /// Says anew how many connections may wait on a descriptor that is listened on.
    static func listen(on descriptor: Int32, backlog: Int32) {
        // Without it fewer may wait.
        _ = systemListen(descriptor, backlog)
    }

    /// Removes the file, unless it is another one by now: the next process that wants the path need not ask whether it is in use.
    package func remove() throws(ListeningSocketProblem) {
        let lock = FolderLock(of: path)
        defer { lock.release() }
        guard let found = Self.status(of: path), found.isSocket, found.identity == identity else { return }
        guard unlink(path) == 0 || errno == ENOENT else {
            throw Self.failure("\(path) cannot be removed: \(Self.reason())")
        }
    }

    // MARK: What is there already

    /// Removes a socket that nobody listens on; anything else is an error.
    private static func makeRoom(at path: String) throws(ListeningSocketProblem) {
        guard let found = status(of: path) else {
            // What else is wrong with the path, `bind` says.
            return
        }
        guard found.isSocket else { throw failure("there is something else than a socket; it is left as it is") }
        let probe = try newSocket()
        defer { close(probe) }
        if withAddress(of: path, { systemConnect(probe, $0, $1) }) == 0 {
            throw failure("\(listener(of: probe)) listens there")
        }
        switch errno {
        // The process that made it is gone.
        case ECONNREFUSED: break
        case ENOENT: return
        // As many wait there as may.
        case EAGAIN, EINPROGRESS: throw failure("another process listens there")
        case EPROTOTYPE: throw failure("a socket of another kind is there; it is left as it is")
        default:
            throw failure("a socket is there, and whether it is in use cannot be seen: \(reason())")
        }
        guard status(of: path)?.identity == found.identity else {
            throw failure("another process is about to listen there")
        }
        guard unlink(path) == 0 || errno == ENOENT else {
            throw failure("the socket of a process that is gone cannot be removed: \(reason())")
        }
    }

    /// Who listens at the other end of a connection.
    private static func listener(of connection: Int32) -> String {
        #if os(Linux)
        // Process, user and group: the system's `ucred`, which Swift does not see.
        var peer: [Int32] = [0, 0, 0]
        var size = socklen_t(MemoryLayout<Int32>.stride * peer.count)
        if getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0, peer[0] > 0 {
            return "another process (\(peer[0]))"
        }
        #endif
        return "another process"
    }

    private static func status(of path: String) -> (identity: Identity, isSocket: Bool)? {
        var found = stat()
        guard lstat(path, &found) == 0 else { return nil }
        let identity = Identity(device: UInt64(truncatingIfNeeded: found.st_dev), inode: UInt64(found.st_ino))
        return (identity, found.st_mode & S_IFMT == S_IFSOCK)
    }

    // MARK: The system's calls

    private static func newSocket() throws(ListeningSocketProblem) -> Int32 {
        #if canImport(Darwin)
        let stream = SOCK_STREAM
        #else
        let stream = Int32(SOCK_STREAM.rawValue)
        #endif
        let descriptor = socket(AF_UNIX, stream, 0)
        guard descriptor >= 0 else { throw failure("there is no socket to be had: \(reason())") }
        guard fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0, fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 else {
            let problem = failure("there is no socket to be had: \(reason())")
            close(descriptor)
            throw problem
        }
        return descriptor
    }

    /// A link in the file's place is not followed, where the system can do that.
    private static func setMode(of path: String, _ mode: mode_t) -> Int32 {
        let status = fchmodat(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW)
        return status != 0 && errno == EOPNOTSUPP ? chmod(path, mode) : status
    }

    /// Runs a body with a path's address; the path has to fit.
    private static func withAddress(of path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { room in
            room.copyBytes(from: path.utf8.prefix(longestPath))
        }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, size) }
        }
    }

    fileprivate static func folder(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash != path.startIndex else { return "/" }
        return String(path[..<slash])
    }

    private static func failure(_ message: String) -> ListeningSocketProblem {
        ListeningSocketProblem(description: message)
    }

    private static func reason() -> String { String(cString: strerror(errno)) }

    // MARK: One at a time

    /// Keeps two processes that begin to listen on one path from taking each other's socket for one that is left over.
    ///
    /// It is given up after a while, and goes without where a folder cannot be locked: others must not be able to keep a server from
    /// starting.
    private struct FolderLock {
        private let descriptor: Int32

        init(of path: String) {
            descriptor = open(folder(of: path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            guard descriptor >= 0 else { return }
            var left = lockPatience
            while flock(descriptor, LOCK_EX | LOCK_NB) != 0, errno == EWOULDBLOCK || errno == EINTR, left > 0 {
                usleep(useconds_t(lockPause * 1000))
                left -= lockPause
            }
        }

        func release() { if descriptor >= 0 { close(descriptor) } }
    }
}

// What members of these names would hide.
private func systemListen(_ descriptor: Int32, _ backlog: Int32) -> Int32 { listen(descriptor, backlog) }
private func systemConnect(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ size: socklen_t) -> Int32 {
    connect(descriptor, address, size)
}
