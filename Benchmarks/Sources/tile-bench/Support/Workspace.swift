import Foundation
import Synchronization

/// A folder for everything that a run writes, removed at its end and when it is interrupted.
final class Workspace: Sendable {
    let path: String
    private let given = Atomic<Int>(0)
    // Kept alive, never used otherwise.
    private nonisolated(unsafe) let signals: [any DispatchSourceSignal]

    /// Makes a folder of its own inside the given one.
    init(inside parent: String) throws {
        try FileManager.default.createDirectory(atPath: parent, withIntermediateDirectories: true)
        var template = Array((parent + "/tile-bench.XXXXXX").utf8CString)
        guard mkdtemp(&template) != nil else {
            throw BenchError("cannot make a folder in \(parent): \(String(cString: strerror(errno)))")
        }
        let made = template.withUnsafeBufferPointer { String(cString: $0.baseAddress.unsafelyUnwrapped) }
        path = made
        signals = [SIGINT, SIGTERM].map { number in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
            source.setEventHandler {
                try? FileManager.default.removeItem(atPath: made)
                exit(128 + number)
            }
            source.resume()
            return source
        }
    }

    /// The path of something in it.
    func path(_ name: String) -> String { path + "/" + name }

    /// A path in it that was not given out before.
    ///
    /// Nothing is removed before the end: ext4 does not use an inode again for a minute after it was freed, and each new
    /// file has to step over all of those. A round that cleaned up would so slow down the rounds after it, fifty-fold.
    func fresh(_ name: String) -> String {
        path(name) + "-\(given.add(1, ordering: .relaxed).newValue)"
    }

    /// Removes all of it.
    func removeAll() {
        try? FileManager.default.removeItem(atPath: path)
    }
}

/// The disk blocks of a file or of a folder with all that is in it, in bytes, as `du` counts them.
func allocatedBytes(at path: String) throws -> Int {
    func blocks(_ path: String) -> Int {
        var status = stat()
        return lstat(path, &status) == 0 ? Int(status.st_blocks) * 512 : 0
    }
    var sum = blocks(path)
    guard let all = FileManager.default.enumerator(atPath: path) else { return sum }
    for case let name as String in all { sum += blocks(path + "/" + name) }
    return sum
}

/// The size of a file in bytes.
func size(at path: String) throws -> Int {
    var status = stat()
    guard stat(path, &status) == 0 else { throw BenchError("\(path): \(String(cString: strerror(errno)))") }
    return Int(status.st_size)
}

/// Brings what was written to the disk, so that no measurement pays for what the one before it wrote.
func settle() { sync() }
