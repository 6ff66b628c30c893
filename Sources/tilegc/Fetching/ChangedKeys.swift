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
/// A key is given to the system before other bytes are stored under it. So a command that is ended in its middle, killed too, has told
/// all that it did; it may have told a key more, whose bytes did not get stored.
final class ChangedKeys: Sendable {
    private struct File {
        let descriptor: Int32
        var isOpen = true
        var told: Set<TileKey> = []
        /// Why nothing more can be told.
        var failure: Failure?
    }

    private let path: String
    private let store: TileStore
    /// The blobs of the tiles at the beginning.
    private let before: [TileKey: BlobDigest?]
    /// Keys that were settled and not looked at yet.
    private let settled = Locked<[TileKey]>([])
    private let file: Locked<File>

    /// Makes the file, empty, and takes note of what is there.
    ///
    /// - Throws: ``Failure`` if there can be no such file.
    init(in path: String, _ store: TileStore, _ selection: EntrySelection) throws {
        (self.path, self.store) = (path, store)
        var before: [TileKey: BlobDigest?] = [:]
        try store.forEachEntry(where: selection) { before[$0.key] = .some($0.blob) }
        self.before = before
        // A pipe that nobody reads is an error, and not waited for; one that is read slowly is.
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0o666)
        guard descriptor >= 0, fcntl(descriptor, F_SETFL, 0) == 0 else {
            throw Failure(.inputOutput, "cannot write \(path): \(systemText(errno))")
        }
        file = Locked(File(descriptor: descriptor))
    }

    /// How many keys were written.
    var count: Int { file.withLock { $0.told.count } }

    /// Writes the key of a tile that is about to get these bytes, or to lose its own, unless they are what it had; on any thread.
    ///
    /// - Throws: ``Failure`` if it cannot be written: then nothing may be stored under the key.
    func tell(_ key: TileKey, _ blob: BlobDigest?) throws {
        // One that has become stale since the beginning has the bytes that are there now.
        let old = if let old = before[key] { old } else { try store.entry(for: key)?.blob }
        if old != blob { try write(key) }
    }

    /// Takes note of a tile that was settled; on any thread.
    func note(_ key: TileKey) { note([key]) }

    private func note(_ keys: [TileKey]) { settled.withLock { $0 += keys } }

    /// Looks at what was settled since the last time, and writes what others have changed meanwhile; on one thread at a time.
    func write() throws {
        let keys = settled.withLock { settled in
            defer { settled.removeAll(keepingCapacity: true) }
            return settled
        }
        for key in keys {
            // An entry that is gone was removed meanwhile: what others have of it is no longer known to hold.
            guard let old = before[key], try store.entry(for: key)?.blob != old else { continue }
            try write(key)
        }
        if let failure = file.withLock({ $0.failure }) { throw failure }
    }

    /// Writes the rest and closes the file.
    ///
    /// The rest are also tiles that others have fetched since the beginning, so that they were not stale when their turn came.
    func finish() throws {
        note(Array(before.keys))
        try write()
        try file.withLock { file in
            file.isOpen = false
            guard close(file.descriptor) == 0 else { throw failure() }
        }
    }

    private func write(_ key: TileKey) throws {
        try file.withLock { file in
            if let failure = file.failure { throw failure }
            // A tile that was under way when the command was interrupted is not stored after all.
            guard file.isOpen else { throw Failure(.interrupted, "\(path) is closed") }
            guard file.told.insert(key).inserted else { return }
            do throws(Failure) { try write(Array("\(key)\n".utf8), file.descriptor) } catch {
                file.failure = error
                throw error
            }
        }
    }

    private func write(_ bytes: [UInt8], _ descriptor: Int32) throws(Failure) {
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes { systemWrite(descriptor, $0, from: done) }
            if count >= 0 {
                done += count
            } else if errno != EINTR {
                throw failure()
            }
        }
    }

    private func failure() -> Failure { Failure(.inputOutput, "cannot write \(path): \(systemText(errno))") }
}

private func systemWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, from start: Int) -> Int {
    write(descriptor, UnsafeRawBufferPointer(rebasing: bytes[start...]).baseAddress, bytes.count - start)
}
