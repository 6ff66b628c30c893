import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A port of the loopback at which connections are refused.
///
/// Nobody listens there, and no other server is given it: a port that is merely free may be another test's next.
package final class HeldPort: Sendable {
    private let descriptor: Int32

    /// Takes a port that a server has just given up.
    package init(_ port: Int) throws {
        descriptor = socket(AF_INET, Wire.stream, 0)
        var yes: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        let isBound = try withLoopback(port) { bind(descriptor, $0, $1) == 0 }
        // What is thrown here ends in `deinit`.
        guard isBound else { throw WireError(what: "bind \(port): \(errno)") }
    }

    deinit { close(descriptor) }
}
