import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A folder for Unix sockets, whose paths are short, as they have to be; it is removed at its end.
package final class SocketFolder: Sendable {
    package let path: String

    package init() throws {
        var name = Array("/tmp/tp-XXXXXX".utf8CString)
        guard mkdtemp(&name) != nil else { throw WireError(what: "mkdtemp: \(errno)") }
        path = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// A path in the folder.
    package func callAsFunction(_ name: String) -> String { "\(path)/\(name)" }

    /// The names of what is in it.
    package var names: [String] {
        get throws { try FileManager.default.contentsOfDirectory(atPath: path).sorted() }
    }

    /// The rights of a file in it.
    package func mode(_ name: String) throws -> Int {
        var found = stat()
        guard lstat(self(name), &found) == 0 else { throw WireError(what: "lstat: \(errno)") }
        return Int(found.st_mode & 0o7777)
    }

    /// A socket on which nobody listens, as a process leaves it that was killed.
    package func leave(_ name: String) throws { close(try Self.bound(self(name))) }

    /// A socket that somebody else has: it is listened on for as long as the result is open.
    package func taken(_ name: String) throws -> Wire {
        let descriptor = try Self.bound(self(name))
        guard listen(descriptor, 1) == 0 else { throw WireError(what: "listen: \(errno)") }
        return Wire(descriptor)
    }

    private static func bound(_ path: String) throws -> Int32 {
        let descriptor = socket(AF_UNIX, Wire.stream, 0)
        guard try withSocketAddress(path, { bind(descriptor, $0, $1) }) == 0 else {
            throw WireError(what: "bind: \(errno)")
        }
        return descriptor
    }
}
