/// The blobs on disk: the only type that changes what is in `objects/`, `staging/` and `quarantine/`.
///
/// It knows files and no entries. What it may do to a blob's file it is told by values that only others can make:
///
/// | to | it takes | made by |
/// |---|---|---|
/// | put a file in place, or take one away | ``FolderHold`` | the cache's lock |
/// | unlink a blob | ``ReleasedBlobs`` | the tables, where no entry names it; the ledger, where one makes room on a full disk |
/// | set a blob aside | ``DamagedBlob`` | ``BlobReader`` |
/// | remove what is no blob | ``Orphan`` | the tables |
struct BlobFolder: Sendable {
    /// Reads blobs and judges them.
    let reader: BlobReader
    /// Files that are not in their place yet.
    let staging: StagingFolder
    /// The folders in `objects/`.
    let shards: ShardFolders
    private let files: any FileSystem
    private let quarantine: Quarantine
    private let vouched = Locked(VouchedDigests())

    init(_ files: any FileSystem, isDurable: Bool, random: @escaping @Sendable () -> UInt64) {
        self.files = files
        reader = BlobReader(files)
        staging = StagingFolder(files, random: random())
        shards = ShardFolders(files, isDurable: isDurable)
        quarantine = Quarantine(files, random: random)
    }

    // MARK: What is known to be there

    /// Whether a blob's file was seen to be there within the last second.
    @inline(__always)
    func isVouched(_ digest: BlobDigest, at now: UInt64) -> Bool { vouched.withLock { $0.contains(digest, at: now) } }

    /// Takes note that a blob's file was seen to be there.
    @inline(__always)
    func vouch(for digest: BlobDigest, at now: UInt64) { vouched.withLock { $0.insert(digest, at: now) } }

    /// Forgets that a blob's file was seen to be there, and which file it was.
    func forget(_ digest: BlobDigest) {
        vouched.withLock { $0.remove(digest) }
        reader.forget(digest)
    }

    // MARK: Publishing

    /// Writes a new blob where it belongs.
    ///
    /// Nobody looks for it there before its record stands. Who is killed meanwhile leaves a part of it, as a file that
    /// nothing counts.
    ///
    /// - Returns: `false` if something is in its place.
    func place(_ bytes: UnsafeRawBufferPointer, as digest: BlobDigest, _ hold: borrowing FolderHold) throws -> Bool {
        do throws(FileError) {
            try files.createFile(digest.path, bytes, sync: false)
            return true
        } catch {
            if error.number == Errno.exists { return false }
            guard error.number == Errno.noEntry else { throw error }
        }
        try remakeShard(digest.shard)
        do throws(FileError) {
            try files.createFile(digest.path, bytes, sync: false)
            return true
        } catch {
            guard error.number == Errno.exists else { throw error }
            return false
        }
    }

    /// The same for one of many, in a shard that was prepared: what fails is for ``place(_:as:_:)`` to try again, and to report.
    func tryToPlace(_ bytes: UnsafeRawBufferPointer, as digest: BlobDigest, _ hold: borrowing FolderHold) -> Bool {
        do throws(FileError) {
            try files.createFile(digest.path, bytes, sync: false)
            return true
        } catch { return false }
    }

    /// Renames a staged file to a blob's place, over whatever is there.
    ///
    /// - Parameter stageAgain: Stages the bytes once more, where the staged file is gone; returns its path.
    func publish(
        _ staged: String, as digest: BlobDigest, _ hold: borrowing FolderHold, stageAgain: () throws -> String
    ) throws {
        let path = digest.path
        var staged = staged
        do throws(FileError) {
            try files.rename(staged, to: path)
            return
        } catch {
            if error.number == Errno.noEntry {
                try remakeShard(digest.shard)
                if try !staging.contains(staged) { staged = try stageAgain() }
            } else if let status = try files.status(at: path), status.kind == .folder {
                try setAside(path)
            } else {
                throw error
            }
        }
        try files.rename(staged, to: path)
    }

    /// Makes a shard's folder again that went away: a purge, a person.
    private func remakeShard(_ shard: UInt8) throws {
        shards.forget()
        try shards.prepare(shard)
    }

    // MARK: Syncing

    /// Syncs a staged file, or a blob's; one that is gone is for the next step to notice.
    private func syncIfThere(_ path: String) throws(FileError) {
        do throws(FileError) { try sync(path) } catch {
            guard error.number == Errno.noEntry else { throw error }
        }
    }

    private func sync(_ path: String) throws(FileError) {
        let file = try files.open(path, .read)
        defer { files.close(file) }
        try files.sync(file)
    }

    /// Syncs a staged file that is about to replace a blob's, if it is there.
    func syncStaged(_ path: String) throws(FileError) { try syncIfThere(path) }

    /// Syncs a blob's file, if it is there.
    func syncIfThere(_ digest: BlobDigest) throws(FileError) { try syncIfThere(digest.path) }

    /// Syncs a blob's file and its name.
    func sync(_ digest: BlobDigest) throws {
        try shards.prepare(digest.shard)
        try sync(digest.path)
        try shards.sync(digest.shard)
    }

    // MARK: Taking away

    /// Unlinks blobs.
    ///
    /// - Throws: Where a shard is no folder, once all others are unlinked: through a link they would be somebody else's.
    func unlink(_ released: ReleasedBlobs, _ hold: borrowing FolderHold) throws {
        var objection: StoreError?
        for digest in released.digests {
            forget(digest)
            if try shards.isFolder(digest.shard) {
                try unlink(digest.path)
            } else if objection == nil {
                objection = try shards.objection(to: digest.shard)
            }
        }
        if let objection { throw objection }
    }

    /// Moves a damaged blob's file out of `objects/`.
    func setAside(_ damaged: DamagedBlob, _ hold: borrowing FolderHold) throws {
        forget(damaged.digest)
        if try isInFolder(damaged.digest.path) { try setAside(damaged.digest.path) }
    }

    /// Removes what no entry names.
    func remove(_ orphan: Orphan, _ hold: borrowing FolderHold) throws {
        if try isInFolder(orphan.path) { try unlink(orphan.path) }
    }

    /// Whether what a path in `objects/` lies in is a folder, and no link to one.
    private func isInFolder(_ path: String) throws(FileError) -> Bool {
        try files.status(at: String(path[..<(path.lastIndex(of: "/") ?? path.endIndex)]))?.kind == .folder
    }

    /// Unlinks what is in `objects/`, whatever the reason; sets a folder aside.
    private func unlink(_ path: String) throws {
        do throws(FileError) { try files.unlink(path) } catch {
            guard let status = try files.status(at: path), status.kind == .folder else { throw error }
            try setAside(path)
        }
    }

    private func setAside(_ path: String) throws {
        guard let status = try files.status(at: path) else { return }
        if try !quarantine.take(path, status) { try unlink(path) }
    }

    /// Whether anything is at a path.
    func contains(_ path: String) throws(FileError) -> Bool { try files.status(at: path) != nil }
}
