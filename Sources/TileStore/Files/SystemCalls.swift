#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The text of a system's error number.
func errorText(_ number: Int32) -> String {
    guard let text = strerror(number) else { return "error \(number)" }
    return String(cString: text)
}

// The system's functions that share their names with functions of the types that call them.

func openDescriptor(_ path: String, _ flags: Int32) -> Int32 { open(path, flags) }

func closeDescriptor(_ descriptor: Int32) { _ = close(descriptor) }

@inline(__always)
func readDescriptor(_ descriptor: Int32, _ target: UnsafeMutableRawPointer, _ count: Int) -> Int {
    read(descriptor, target, count)
}

func writeDescriptor(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
    write(descriptor, bytes, count)
}

#if !canImport(Darwin) && !canImport(Musl)
/// `preadv2`, which the Swift module of the C library does not show.
private typealias PositionedRead =
    @convention(c) (Int32, UnsafePointer<iovec>?, Int32, off_t, Int32) -> Int
private let positionedRead: PositionedRead? = dlsym(nil, "preadv2").map { unsafeBitCast($0, to: PositionedRead.self) }

/// `syncfs`, which it does not show either.
let syncVolume: (@convention(c) (Int32) -> Int32)? = dlsym(nil, "syncfs").map {
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
