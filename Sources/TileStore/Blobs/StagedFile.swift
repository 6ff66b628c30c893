/// A file in `staging/` that is written piece by piece, by one writer, and read by anybody who has it.
///
/// Its name is `staging/<unique>.body`, and it is locked (`flock`) from its making to its end. So an opening can tell one that
/// is being written, however old it seems to be by a clock that has jumped, from one that a process left when it died.
///
/// It stays readable without its name: after it was removed, and after it was renamed to a blob's place.
final class StagedFile: Sendable {
    let path: String
    private let files: any FileSystem
    private let file: OpenFile
    /// How the name of such a file ends.
    static let ending = ".body"

    /// Makes and locks a file, and the folder too where a purge has taken it.
    static func make(_ files: any FileSystem, _ names: StagingNames) throws(FileError) -> StagedFile {
        for _ in 0..<16 {
            let path = names.next() + ending
            // Closed when it is let go.
            let file = try files.inStaging { () throws(FileError) in try files.open(path, .createBlob) }
            let staged = StagedFile(files, file, path)
            // An opening that saw it before it was locked has the lock, or has removed it.
            do throws(FileError) {
                if try staged.takeLock() { return staged }
            } catch {
                staged.discard()
                throw error
            }
            try files.unlink(path)
        }
        throw FileError("lock a new file in", files.location + "/staging", Errno.exists)
    }

    private init(_ files: any FileSystem, _ file: OpenFile, _ path: String) {
        (self.files, self.file, self.path) = (files, file, path)
    }

    deinit { files.close(file) }

    private func takeLock() throws(FileError) -> Bool {
        guard try files.tryLock(file) else { return false }
        return try files.status(of: file).links > 0
    }

    func append(_ bytes: UnsafeRawBufferPointer) throws(FileError) {
        do throws(FileError) { try files.writeAll(file, bytes) } catch { throw named(error) }
    }

    func sync() throws(FileError) {
        do throws(FileError) { try files.sync(file) } catch { throw named(error) }
    }

    /// Reads at an offset; fewer bytes than asked for only at the file's end.
    func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) throws(FileError) -> Int {
        do throws(FileError) { return try files.read(file, into: buffer, at: Int64(offset)) } catch {
            throw named(error)
        }
    }

    /// Reads what the system's page cache has; it may be fewer bytes than asked for.
    func readIfCached(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) throws(FileError) -> Int {
        try files.readIfCached(file, into: buffer, at: Int64(offset))
    }

    /// Ends the writing of a file that has been renamed to a blob's place.
    func release() { files.unlock(file) }

    /// Ends the writing and removes the file; what cannot be removed is swept by the next opening.
    func discard() {
        _ = try? files.unlink(path)
        release()
    }

    /// The file has become shorter than what was written to it.
    var isTooShort: FileError { named(FileError("read", path, Errno.io)) }

    private func named(_ error: FileError) -> FileError {
        FileError(error.operation, files.location + "/" + path, error.number)
    }
}
