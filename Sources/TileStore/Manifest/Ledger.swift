/// The journal as this process sees it: which file, read up to where, and the cache's locks.
///
/// Not thread-safe: ``TileStore`` keeps it behind its commit lock. "Under the lock" means the cache's `flock`. As in
/// ``Tables``, the fields that every put touches are not checked for overlapping access at run time.
final class Ledger {
    let environment: StoreEnvironment
    let files: any FileSystem
    let durable: Bool
    let usesImages: Bool
    var readOnly = false
    var isClosed = false

    @exclusivity(unchecked) var generation: UInt64 = 0
    @exclusivity(unchecked) var offset: Int64 = 0
    @exclusivity(unchecked) var journal: OpenFile?
    @exclusivity(unchecked) var lastChecksum: UInt32?
    /// A rotate record was read whose journal is not there yet.
    @exclusivity(unchecked) var awaitedGeneration: UInt64?
    /// The newest checkpoint known, its size, and the bytes of the journals between it and the current one.
    var checkpointGeneration: UInt64 = 0
    var checkpointBytes: Int64 = 0
    var chainBytes: Int64 = 0
    /// How far the newest image known is: the journal, and the offset in it.
    @exclusivity(unchecked) var imagePosition: (journal: UInt64, offset: Int64)?
    /// Lines that could not be read, in the files that were loaded.
    @exclusivity(unchecked) var damagedLines = 0 {
        didSet { if damagedLines > oldValue { skippedIn = generation } }
    }
    /// The last journal of which a line was skipped: a newer checkpoint may be of a process that had read the line.
    @exclusivity(unchecked) var skippedIn: UInt64?
    /// Whether an unlocked reader met a line that only a holder of the lock may judge.
    @exclusivity(unchecked) var needsJudgement = false
    /// In a store that may not write: the offset and length at which the journal was found to end in no right line.
    var judgedTail: (offset: Int64, size: Int64)?
    /// Counts up whenever the tables are loaded anew.
    var loads = 0
    /// In durable mode: the journal of which it is known that a power cut leaves it and all that leads to it.
    @exclusivity(unchecked) var syncedGeneration: UInt64?
    /// The mark of unsynced blobs that is known to be on the disk: of which tables, and how many there were before.
    @exclusivity(unchecked) var syncedMark: (loads: Int, lines: Int)?
    /// Blobs that were unlinked to make room and whose record could not be written after all.
    @exclusivity(unchecked) var unrecorded: Set<BlobDigest> = []
    /// Whether a failed append left part of a line at the journal's end that could not be cut off.
    @exclusivity(unchecked) var isTorn = false
    /// How many bytes of other stores' lines were read.
    @exclusivity(unchecked) var followedBytes: Int64 = 0
    /// Counts up whenever a checkpoint is unlike those that this program writes.
    var readsLineByLine = 0
    /// Whether the tables no longer go with the journal: set before that comes about, cleared by a load that succeeded, so
    /// that no failure in between is forgotten.
    @exclusivity(unchecked) var mustLoad = false
    /// What the tables said after the last lines were carried out: spares a holder of the lock looking again.
    @exclusivity(unchecked) var glance = Glance()
    /// Whether lines that were carried out left blobs to unlink, or entries of dropped blobs to sweep.
    @exclusivity(unchecked) var hasReleased = false
    @exclusivity(unchecked) var hasDropped = false
    /// Records that a holder of the lock is putting together: kept for their memory.
    let pending = PendingRecords()
    /// The shared fields that were asked for last, and their number: mostly the next put has the same.
    @exclusivity(unchecked) var lastSet: OfTables<(fields: ResponseFields, number: UInt32, generation: UInt64)>?
    /// The names that were looked up last.
    @exclusivity(unchecked) var names = OfTables.none(LastNames())
    /// Whether the reserve was given up and is still to be made again.
    var reserveGone = false
    /// When the journal was last seen to have its name.
    @exclusivity(unchecked) private var journalSeen: UInt64?

    let lock: FolderLock
    @exclusivity(unchecked) var buffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: 1 << 16, alignment: 8)
    let reader = LineReader()
    let hashSeed: UInt64

    init(environment: StoreEnvironment, durable: Bool, usesImages: Bool) {
        self.environment = environment
        files = environment.files
        self.durable = durable
        self.usesImages = usesImages
        lock = FolderLock(environment)
        hashSeed = environment.random()
    }

    deinit {
        close()
        buffer.deallocate()
    }

    func close() {
        if let journal { files.close(journal) }
        journal = nil
        lock.close()
    }

    static func journalPath(_ n: UInt64) -> String { "manifest/journal-\(n).jsonl" }
    static func checkpointPath(_ n: UInt64) -> String { "manifest/checkpoint-\(n).json" }

    /// The highest number of a generation, far beyond what rotations can reach; a file with a higher one is not the store's.
    static var lastGeneration: UInt64 { 1 << 52 }

    /// The generation in a manifest file's name.
    static func generation(of name: String, _ prefix: String, _ suffix: String) -> UInt64? {
        guard name.hasPrefix(prefix), name.hasSuffix(suffix) else { return nil }
        let digits = name.dropFirst(prefix.count).dropLast(suffix.count)
        guard let n = UInt64(digits), String(n) == digits, n <= lastGeneration else { return nil }
        return n
    }

    // MARK: The lock

    /// Opens the lock's file, if it is not open, in the folder that the location leads to now.
    func openLock() throws(FileError) {
        guard !lock.isOpen else { return }
        try files.enter()
        try lock.open(readOnly: readOnly)
    }

    /// Takes the cache's lock, waiting a bounded time.
    ///
    /// If the folder was replaced, all will be loaded anew.
    /// - Parameter appendsOnly: That the holder means to append records and nothing else: then the look whether the folder
    ///   is still the same may be 10 ms old. Who touches blobs after all asks ``confirmFolder()``.
    func acquire(wait seconds: Double, folderIsNew: Bool = false, appendsOnly: Bool = false) throws {
        while true {
            try openLock()
            try lock.take(wait: seconds, in: files.location)
            if appendsOnly, lock.wasConfirmedLately { return }
            do throws(FileError) {
                if try confirmFolder() != nil { return }
            } catch {
                lock.release()
                throw error
            }
            lock.close()
            try files.enter()
            guard try folderIsNew || files.status(at: "tilecache.json") != nil else {
                throw StoreError(
                    .noSuchCache,
                    "\(files.location) was removed while it was open; open the cache anew to make it again")
            }
        }
    }

    /// Confirms that what is locked is the folder that paths lead to.
    ///
    /// Only under the lock. If it is not, the next holder will load all anew.
    func confirmFolder() throws(FileError) -> FolderHold? {
        if let folder = try lock.confirm() { return folder }
        mustLoad = true
        return nil
    }

    /// Whether the journal was removed although no record leads on from it: `manifest/` was deleted, or the whole folder.
    ///
    /// For callers that have read it to its end. Looks at most every 10 ms, as ``acquire(wait:folderIsNew:appendsOnly:)``
    /// does for holders that append.
    @inline(__always)
    func hasLostJournal() throws(FileError) -> Bool {
        // A journal that leads on to another one may be gone: the checkpoint after it has all that it said.
        guard let journal, awaitedGeneration == nil || mustLoad else { return false }
        let now = environment.coarseTicks()
        if let journalSeen, now &- journalSeen < 10_000_000 { return false }
        let mine = try files.status(of: journal)
        // One that was moved away has its name still, but another one may be in its place: a backup, put there by hand.
        guard mine.links > 0, try files.status(at: Self.journalPath(generation))?.number == mine.number else {
            journalSeen = nil
            return true
        }
        journalSeen = now
        return false
    }

    func release() {
        // The next holder, this store or another one, looks at the journal's end before it appends.
        isTorn = false
        lock.release()
    }
}
