import Foundation
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A TCP connection as a test wants one: it waits for at most ten minutes, and says what it read.
package final class Wire {
    package let descriptor: Int32
    private var pending: [UInt8] = []
    private var wasReset = false
    private var isShared = false

    package init(_ descriptor: Int32) {
        self.descriptor = descriptor
        var patience = timeval(tv_sec: 600, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        signal(SIGPIPE, SIG_IGN)
    }

    /// Connects to a port on the loopback.
    package convenience init(port: Int) throws {
        self.init(try Self.newSocket())
        try connect(to: port)
    }

    /// Connects to a Unix socket.
    package convenience init(path: String) throws {
        let descriptor = socket(AF_UNIX, Self.stream, 0)
        guard descriptor >= 0 else { throw WireError(what: "socket: \(errno)") }
        self.init(descriptor)
        let status = try withSocketAddress(path) { systemConnect(descriptor, $0, $1) }
        guard status == 0 else { throw WireError(what: "connect: \(errno)") }
    }

    /// A connection that is still to be made.
    package static func unconnected() throws -> Wire { Wire(try newSocket()) }

    private static func newSocket() throws -> Int32 {
        let descriptor = socket(AF_INET, stream, 0)
        guard descriptor >= 0 else { throw WireError(what: "socket: \(errno)") }
        return descriptor
    }

    /// Has the system hold no more than so many bytes that were not read: some hold tens of megabytes.
    ///
    /// Before it is connected.
    package func holdAtMost(_ bytes: Int32) {
        var bytes = bytes
        setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, socklen_t(MemoryLayout<Int32>.size))
    }

    /// Connects to a port on the loopback.
    package func connect(to port: Int) throws {
        let status = try withLoopback(port) { systemConnect(descriptor, $0, $1) }
        guard status == 0 else { throw WireError(what: "connect: \(errno)") }
    }

    deinit {
        // Else the thread that still sends would keep the connection open.
        if isShared { shutdown(descriptor, Int32(SHUT_RDWR)) }
        close(descriptor)
    }

    #if canImport(Glibc)
    static let stream = Int32(SOCK_STREAM.rawValue)
    #else
    static let stream = SOCK_STREAM
    #endif

    package func send(_ text: String) { send(Array(text.utf8)) }

    package func send(_ bytes: [UInt8]) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else { return }
            rest = rest.dropFirst(count)
        }
    }

    /// Sends on a thread of its own: the other side may not read it.
    package func sendInBackground(_ text: String) {
        isShared = true
        let copy = dup(descriptor)
        Thread.detachNewThread { Wire(copy).send(text) }
    }

    /// Makes the end of this connection one that the other side cannot overlook.
    package func resetsAtItsEnd() {
        var patience = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &patience, socklen_t(MemoryLayout<linger>.size))
    }

    /// No more will be sent.
    package func endOutput() { shutdown(descriptor, Int32(SHUT_WR)) }

    /// Reads some more; `false` at the end, or when patience is.
    package func more() -> Bool {
        var chunk = [UInt8](repeating: 0, count: 65536)
        let count = chunk.withUnsafeMutableBytes { read(descriptor, $0.baseAddress, $0.count) }
        guard count > 0 else {
            wasReset = count < 0 && errno == ECONNRESET
            return false
        }
        pending += chunk[..<count]
        return true
    }

    /// Whether there is something to read, or the other side has closed.
    package var isReadable: Bool {
        var state = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return !pending.isEmpty || poll(&state, 1, 0) > 0
    }

    /// Whether the other side has closed: nothing is left, and nothing comes.
    package func isAtEnd() -> Bool { pending.isEmpty && !more() }

    /// Reads to the end; whether that was a reset.
    package func endsWithReset() -> Bool {
        while more() {}
        return wasReset
    }

    /// Takes what lies before a mark, and the mark; `nil` if it never comes.
    package func take(through mark: String) -> String? {
        let mark = Array(mark.utf8)
        while true {
            if let end = pending.firstRange(of: mark)?.upperBound {
                let taken = pending[..<end]
                pending.removeFirst(end)
                return String(decoding: taken, as: UTF8.self)
            }
            guard more() else { return nil }
        }
    }

    /// Takes so many bytes, or what there is before the end.
    package func take(_ count: Int) -> [UInt8] {
        while pending.count < count, more() {}
        let taken = Array(pending.prefix(count))
        pending.removeFirst(taken.count)
        return taken
    }

    /// Takes everything up to the end.
    package func takeAll() -> [UInt8] {
        while more() {}
        defer { pending = [] }
        return pending
    }
}

/// `connect` of the system, which a method of this name would hide.
private func systemConnect(_ descriptor: Int32, _ address: UnsafePointer<sockaddr>, _ size: socklen_t) -> Int32 {
    connect(descriptor, address, size)
}

package struct WireError: Error {
    package let what: String

    package init(what: String) { self.what = what }
}

/// Runs a body with a port's address on the loopback.
///
/// The address is made by NIO: which module the members of `sockaddr_in` belong to is not the same in every build.
func withLoopback<R>(_ port: Int, _ body: (UnsafePointer<sockaddr>, socklen_t) -> R) throws -> R {
    try SocketAddress(ipAddress: "127.0.0.1", port: port).withSockAddr { body($0, socklen_t($1)) }
}

/// Runs a body with the address of a Unix socket.
func withSocketAddress<R>(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> R) throws -> R {
    try SocketAddress(unixDomainSocketPath: path).withSockAddr { body($0, socklen_t($1)) }
}

/// The port that a socket is bound to.
func boundPort(_ descriptor: Int32) -> Int? {
    withUnsafeTemporaryAllocation(byteCount: 128, alignment: 16) { room in
        var size = socklen_t(room.count)
        guard let start = room.baseAddress,
            getsockname(descriptor, start.assumingMemoryBound(to: sockaddr.self), &size) == 0
        else { return nil }
        // Behind the family, in network order, on every system.
        return Int(UInt16(bigEndian: start.loadUnaligned(fromByteOffset: 2, as: UInt16.self)))
    }
}
