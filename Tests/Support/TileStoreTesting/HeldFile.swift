#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A file that nobody can open for reading, root neither, until it is released.
///
/// On Linux by a lease, which the system takes away after 45 s; elsewhere by its rights.
package final class HeldFile {
    private let path: String
    private var descriptor: Int32

    package struct Refused: Error {
        package let number: Int32
    }

    package init(_ path: String) throws {
        self.path = path
        descriptor = open(path, O_RDWR | O_CLOEXEC)
        guard descriptor >= 0 else { throw Refused(number: errno) }
        #if os(Linux)
        // F_SETSIG, to a signal that nobody minds, and F_SETLEASE.
        guard fcntl(descriptor, 10, SIGURG) == 0, fcntl(descriptor, 1024, Int32(F_WRLCK)) == 0 else {
            throw Refused(number: errno)
        }
        #else
        guard fchmod(descriptor, 0) == 0 else { throw Refused(number: errno) }
        #endif
    }

    deinit { release() }

    /// Lets it be opened again.
    package func release() {
        guard descriptor >= 0 else { return }
        #if os(Linux)
        // A process that is just being started may have the file open as well.
        _ = fcntl(descriptor, 1024, Int32(F_UNLCK))
        #else
        _ = fchmod(descriptor, 0o644)
        #endif
        close(descriptor)
        descriptor = -1
    }
}
