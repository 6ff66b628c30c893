/// Proof that the cache's lock is held, and that what it locks is the folder that paths lead to.
///
/// Who puts a blob in place or takes one away needs one: in a folder that has taken this one's place the same names may mean
/// tiles that are in use. Only ``FolderLock/confirm()`` makes one. It cannot be copied, and is not kept beyond the hold in which
/// it was made.
struct FolderHold: ~Copyable, Sendable {
    fileprivate init() {}
}

/// The cache's lock as this process has it: an `flock` of a file in the cache's folder.
///
/// Processes that hold it one after the other may find that the folder is another one by then (moved away, purged and made
/// again); then the file that is locked is not the one of that name any more, which one `lstat` tells. It may have other names: those
/// of a copy that was made of links.
///
/// Belongs to whoever holds the ledger. A class, as a value would be copied for every question that it is asked.
final class FolderLock {
    private let environment: StoreEnvironment
    private let files: any FileSystem
    private let gate: LockGate
    @exclusivity(unchecked) private var file: OpenFile?
    /// The file's number: no other file of its file system has it while it is open, and paths lead into one folder.
    @exclusivity(unchecked) private var number: UInt64 = 0
    @exclusivity(unchecked) private var isHeld = false
    // Whether the file was seen to have its name since the lock was taken, and when that was last so.
    @exclusivity(unchecked) private var isConfirmed = false
    @exclusivity(unchecked) private var lastConfirmed: UInt64?

    init(_ environment: StoreEnvironment, _ gate: LockGate) {
        self.environment = environment
        self.gate = gate
        files = environment.files
    }

    var isOpen: Bool { file != nil }

    func open(readOnly: Bool) throws(FileError) {
        guard file == nil else { return }
        let opened = try files.open("lock", readOnly ? .read : .appendCreating)
        do throws(FileError) { number = try files.status(of: opened).number } catch {
            files.close(opened)
            throw error
        }
        file = opened
    }

    func close() {
        if let file { files.close(file) }
        file = nil
        noteRelease()
    }

    /// Takes the lock, waiting so many seconds at most.
    ///
    /// - Parameter isWithin: Whether the caller holds `compact.lock`.
    @inline(__always)
    func take(wait seconds: Double, isWithin: Bool = false) throws {
        guard let file else { throw closedError }
        if try !tryToTake(file, isWithin) { try waitForLock(file, seconds, isWithin) }
        isConfirmed = false
    }

    func release() {
        if let file { files.unlock(file) }
        noteRelease()
    }

    @inline(__always)
    private func tryToTake(_ file: OpenFile, _ isWithin: Bool) throws(FileError) -> Bool {
        guard gate.enter(isWithin: isWithin) else { return false }
        defer { if !isHeld { gate.leave() } }
        isHeld = try files.tryLock(file)
        return isHeld
    }

    @inline(__always)
    private func noteRelease() {
        guard isHeld else { return }
        isHeld = false
        gate.leave()
    }

    private var closedError: StoreError { StoreError(.closed, "the store of \(files.location) is closed") }

    /// Whether the file was seen to have its name within the last 10 ms.
    var wasConfirmedLately: Bool {
        lastConfirmed.map { environment.coarseTicks() &- $0 < 10_000_000 } ?? false
    }

    /// Looks whether the file that is locked is the one that its path leads to; `nil` if not.
    ///
    /// Only under the lock. Looks once in each hold; at the folders in it at most every 10 ms.
    ///
    /// - Throws: `ELOOP` or `ENOTDIR` where something else is in the place of one of the cache's folders.
    func confirm() throws(FileError) -> FolderHold? {
        if isConfirmed { return FolderHold() }
        guard isOpen else { return nil }
        // A lock file without its name belongs to a folder that is no more.
        guard try files.status(at: "lock")?.number == number else {
            lastConfirmed = nil
            return nil
        }
        if !wasConfirmedLately { try confirmFolders() }
        isConfirmed = true
        lastConfirmed = environment.coarseTicks()
        return FolderHold()
    }

    /// Looks whether the cache's folders are folders still: what a link that has taken the place of one leads to is somebody
    /// else's, and files that no entry names would be removed there.
    ///
    /// `staging/` is looked at by each file that is made in it.
    private func confirmFolders() throws(FileError) {
        for name in ["manifest", "objects", "quarantine"] {
            guard let kind = try files.status(at: name)?.kind, kind != .folder else { continue }
            throw FileError(
                "use", "\(files.location)/\(name)", kind == .link ? Errno.tooManyLinks : Errno.notFolder)
        }
    }

    /// Nanoseconds after which whoever waits for the lock looks again, at the latest.
    static let longestPause: UInt64 = 2_000_000

    private func waitForLock(_ file: OpenFile, _ seconds: Double, _ isWithin: Bool) throws {
        if !isWithin, gate.isRefusing { throw StoreError.suspended(files.location) }
        var left = UInt64(max(0, min(seconds, 3600)) * 1e9)
        var pause: UInt64 = 20_000
        while left > 0 {
            let (start, wasShut) = (environment.ticks(), gate.isShut)
            environment.pause(pause)
            if try tryToTake(file, isWithin) { return }
            if gate.isClosed { throw closedError }
            // The suspension waits for what the caller holds; or nobody is to wait for its end.
            if isWithin ? gate.isShut : gate.isRefusing { break }
            // The process may have been stopped meanwhile, for hours: that is no time that was waited.
            let waited = wasShut || gate.isShut ? pause : environment.ticks() &- start
            left -= min(left, max(waited, 1))
            pause = min(pause * 3 / 2, Self.longestPause)
        }
        if gate.isShut { throw StoreError.suspended(files.location) }
        throw StoreError(
            .locked, "another process has held \(files.location)/lock for \(seconds) s; try again, or see who holds it")
    }
}

extension StoreError {
    /// The store takes no lock for now.
    static func suspended(_ location: String) -> StoreError {
        StoreError(.locked, "the store of \(location) is suspended and takes no lock; call resume() first")
    }
}
