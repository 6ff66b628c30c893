#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// `staging/`: files that are written here first and then renamed to a blob's place.
struct StagingFolder: Sendable {
    private let files: any FileSystem
    private let names: StagingNames

    /// - Parameter random: 64 bits that no other store has.
    init(_ files: any FileSystem, random: UInt64) {
        self.files = files
        names = StagingNames(random)
    }

    /// Writes a file in one go; makes the folder too where a purge has taken it.
    ///
    /// - Returns: Its path.
    func write(_ data: Data, sync: Bool) throws(FileError) -> String {
        let path = names.next()
        let failure = data.withUnsafeBytes { bytes -> FileError? in
            do throws(FileError) {
                try files.inStaging { () throws(FileError) in try files.createFile(path, bytes, sync: sync) }
                return nil
            } catch { return error }
        }
        if let failure { throw failure }
        return path
    }

    /// Begins a file that is written in pieces.
    func begin() throws(FileError) -> StagedFile { try StagedFile.make(files, names) }

    /// Whether a staged file is there still: a purge, or an opening after a clock has jumped, may have taken it.
    func contains(_ path: String) throws(FileError) -> Bool { try files.status(at: path) != nil }

    /// Removes a staged file that is not needed.
    ///
    /// What stays behind is swept when the cache is opened an hour later.
    func discard(_ path: String) { _ = try? files.unlink(path) }

    // MARK: Leftovers

    private enum Writer { case alive, dead, unknown }

    /// Removes what writers left.
    ///
    /// A body that nobody has locked was left by a process that died. Other files are written in one go; they go an hour later, by
    /// the time of day. Whoever loses one to a clock that has jumped stages its bytes again.
    func sweep(now: Timestamp) throws(FileError) {
        for name in try files.list("staging") ?? [] {
            let path = "staging/" + name
            let writer = name.hasSuffix(StagedFile.ending) ? try removeIfDead(path) : .unknown
            guard writer == .unknown, let status = try files.status(at: path), status.kind != .folder,
                status.modified < now.seconds - 3600
            else { continue }
            try files.unlink(path)
        }
    }

    /// Removes what a writer left that was killed while it was the only one of its kind.
    ///
    /// For the holder of the lock that makes it the only one.
    /// - Parameter beginnings: How the names begin that such writers give.
    static func removeUnfinished(_ beginnings: [String], in files: any FileSystem) throws(FileError) {
        for name in try files.list("staging") ?? [] where beginnings.contains(where: name.hasPrefix) {
            let path = "staging/" + name
            guard try files.status(at: path)?.kind == .file else { continue }
            try files.unlink(path)
        }
    }

    private func removeIfDead(_ path: String) throws(FileError) -> Writer {
        let file: OpenFile
        do throws(FileError) { file = try files.open(path, .read) } catch {
            // It is gone by now, or nothing that the store has made, or another user's.
            guard error.number == Errno.noEntry || error.isDenied || error.isForeignObject else { throw error }
            return .unknown
        }
        defer { files.close(file) }
        guard try files.tryLock(file) else { return .alive }
        try files.unlink(path)
        return .dead
    }
}

/// Names for files in `staging/` that no other store of any process gives.
final class StagingNames: Sendable {
    private let prefix: String
    private let count = Locked(0)

    /// - Parameter random: 64 bits that no other store has.
    init(_ random: UInt64) { prefix = "staging/" + String(random, radix: 36) + "-" }

    func next() -> String {
        let number = count.withLock {
            $0 += 1
            return $0
        }
        return prefix + String(number, radix: 36)
    }
}

extension FileSystem {
    /// Makes a file in `staging/`; if the folder is gone with the rest of a purged cache, makes that and tries once more.
    func inStaging<R>(_ make: () throws(FileError) -> R) throws(FileError) -> R {
        do throws(FileError) { return try make() } catch {
            guard error.number == Errno.noEntry else { throw error }
            // Another thread, or another process, may have made it meanwhile.
            _ = try makeFolder("staging")
            return try make()
        }
    }
}
