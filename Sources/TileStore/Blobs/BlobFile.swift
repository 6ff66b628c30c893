#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A blob's file, open for reading in pieces.
///
/// Its bytes were checked when it was opened, as ``StoreConfiguration/digestCheck`` says. The file stays readable when the
/// blob is evicted meanwhile; the disk gets the space back when the last reader lets go. All who read one blob share one file
/// (``OpenBlobs``): it takes one descriptor for all of them, and no memory for the bytes.
package final class BlobFile: Sendable {
    /// The blob's size in bytes.
    package let size: Int
    private let files: any FileSystem
    private let file: OpenFile
    private let path: String
    /// The file's number on its file system.
    private let number: UInt64
    /// Called at the end, where the file is shared.
    private let onClose = Locked<(@Sendable (ObjectIdentifier) -> Void)?>(nil)

    init(_ files: any FileSystem, _ file: OpenFile, number: UInt64, size: Int, path: String) {
        self.files = files
        self.file = file
        self.size = size
        self.path = path
        self.number = number
    }

    deinit {
        files.close(file)
        onClose.withLock { $0 }?(ObjectIdentifier(self))
    }

    /// Has a body called when the last reader has let go.
    func whenClosed(_ body: @escaping @Sendable (ObjectIdentifier) -> Void) { onClose.withLock { $0 = body } }

    /// Whether it is what lies in the blob's place now, with its length.
    func isInPlace() throws(FileError) -> Bool {
        guard let status = try files.status(at: path) else { return false }
        return status.kind == .file && status.size == Int64(size) && status.number == number
    }

    /// Reads a stretch that lies within the blob; may block.
    ///
    /// - Throws: `StoreError` if the disk fails, or the file has become shorter.
    package func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) throws {
        do throws(FileError) { try fill(buffer, at: offset) } catch {
            throw StoreError(FileError(error.operation, path, error.number), in: files.location)
        }
    }

    /// Reads a stretch if the system's page cache has it, so that nobody has to wait for the disk.
    ///
    /// - Returns: Whether the bytes are there; if not, ``read(into:at:)`` has to read them, or to say what is wrong.
    package func readNow(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) -> Bool {
        var done = 0
        while done < buffer.count {
            let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[done...])
            // Ignored here: the blocking read reports the error.
            guard let count = try? files.readIfCached(file, into: rest, at: Int64(offset + done)), count > 0 else {
                return false
            }
            done += count
        }
        return true
    }

    private func fill(_ buffer: UnsafeMutableRawBufferPointer, at offset: Int) throws(FileError) {
        let count = try files.read(file, into: buffer, at: Int64(offset))
        guard count == buffer.count else { throw FileError("read", path, EIO) }
    }

    /// Whether the file's bytes hash to a digest; reads all of it, a quarter of a megabyte at a time.
    func hashes(to digest: BlobDigest) throws(FileError) -> Bool {
        let room = UnsafeMutableRawBufferPointer.allocate(byteCount: min(max(1, size), 256 << 10), alignment: 16)
        defer { room.deallocate() }
        let hash = SHA256.Stream()
        var offset = 0
        while offset < size {
            let piece = UnsafeMutableRawBufferPointer(rebasing: room[..<min(room.count, size - offset)])
            try fill(piece, at: offset)
            hash.update(UnsafeRawBufferPointer(piece))
            offset += piece.count
        }
        return hash.finish() == digest
    }
}
