import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `--changed`: a file of the keys whose bytes are other ones than when the command began, or gone, one a line.
///
/// They are written as tiles are settled, so that a command that is ended in its middle has told what it did.
final class ChangedKeys: Sendable {
    private struct State {
        /// Keys that were settled and not looked at yet.
        var settled: [TileKey] = []
        var count = 0
    }

    private let path: String
    private let descriptor: Int32
    private let store: TileStore
    /// The blobs of the tiles at the beginning.
    private let before: [TileKey: BlobDigest?]
    private let state = Locked(State())

    /// Makes the file, empty, and takes note of what is there.
    ///
    /// - Throws: ``Failure`` if there can be no such file.
    init(in path: String, _ store: TileStore, _ selection: EntrySelection) throws {
        (self.path, self.store) = (path, store)
        var before: [TileKey: BlobDigest?] = [:]
        try store.forEachEntry(where: selection) { before[$0.key] = .some($0.blob) }
        self.before = before
        descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o666)
        guard descriptor >= 0 else { throw Failure(.inputOutput, "cannot write \(path): \(systemText(errno))") }
    }

    /// How many keys were written.
    var count: Int { state.withLock { $0.count } }

    /// Takes note of a tile that was settled; on any thread.
    func note(_ key: TileKey) { state.withLock { $0.settled.append(key) } }

    /// Looks at what was settled since the last time, and writes what has changed; on one thread at a time.
    func write() throws {
        let keys = state.withLock { state in
            defer { state.settled.removeAll(keepingCapacity: true) }
            return state.settled
        }
        var (lines, count) = ([UInt8](), 0)
        for key in keys {
            // An entry that is gone was removed meanwhile: what others have of it is no longer known to hold.
            guard let old = before[key], try store.entry(for: key)?.blob != old else { continue }
            lines += Array("\(key)\n".utf8)
            count += 1
        }
        try write(lines)
        state.withLock { $0.count += count }
    }

    /// Writes the rest and closes the file.
    func finish() throws {
        try write()
        guard close(descriptor) == 0 else { throw Failure(.inputOutput, "cannot write \(path): \(systemText(errno))") }
    }

    private func write(_ bytes: [UInt8]) throws {
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes { systemWrite(descriptor, $0, from: done) }
            if count >= 0 {
                done += count
            } else if errno != EINTR {
                throw Failure(.inputOutput, "cannot write \(path): \(systemText(errno))")
            }
        }
    }
}

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, from start: Int) -> Int {
    write(descriptor, UnsafeRawBufferPointer(rebasing: bytes[start...]).baseAddress, bytes.count - start)
}
