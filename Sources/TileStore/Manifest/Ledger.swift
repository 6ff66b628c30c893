/// The journal as this process sees it: which file, read up to where, and the cache's locks.
///
/// Not thread-safe: ``TileStore`` keeps it behind its commit lock. "Under the lock" means the cache's `flock`. As in
/// ``Tables``, the fields that every put touches are not checked for overlapping access at run time.
final class Ledger {
    let environment: StoreEnvironment
    let files: any FileSystem
    let durable: Bool
    let usesImages: Bool
    /// What single sources may hold, by this process's choice.
    var sourceCapacities: [SourceName: Int] = [:]
    /// Whether the cache may only be read, by choice or for want of permission.
    private(set) var readOnly = false
    private(set) var isClosed = false

    /// Where this process is in the journal, and who appends to it.
    let journal: Journal
    @exclusivity(unchecked) var damage = JournalDamage()
    @exclusivity(unchecked) var chain = CheckpointChain()
    @exclusivity(unchecked) var synced = SyncedManifest()
    /// Counts up whenever the tables are loaded anew.
    private(set) var loads = 0
    /// Whether the tables no longer go with the journal: set before that comes about, cleared by a load that succeeded, so
    /// that no failure in between is forgotten.
    @exclusivity(unchecked) private(set) var mustLoad = false
    @exclusivity(unchecked) var glance = Glance()
    @exclusivity(unchecked) var unrecorded = UnrecordedBlobs()
    /// How many bytes of other stores' lines were read.
    @exclusivity(unchecked) private(set) var followedBytes: Int64 = 0
    /// Counts up whenever a checkpoint is unlike those that this program writes.
    private(set) var readsLineByLine = 0
    let reserve: Reserve
    /// Records that a holder of the lock is putting together: kept for their memory.
    let pending = PendingRecords()
    /// The shared fields that were asked for last, and their number: mostly the next put has the same.
    @exclusivity(unchecked) var lastSet: OfTables<(fields: ResponseFields, number: UInt32, generation: UInt64)>?
    /// The names that were looked up last.
    @exclusivity(unchecked) var names = OfTables.none(LastNames())

    /// Whether locks may be taken.
    let gate: LockGate
    private let lock: FolderLock
    let reader = LineReader()
    let hashSeed: UInt64

    init(environment: StoreEnvironment, durable: Bool, usesImages: Bool, gate: LockGate) {
        self.environment = environment
        self.gate = gate
        files = environment.files
        self.durable = durable
        self.usesImages = usesImages
        lock = FolderLock(environment, gate)
        journal = Journal(files)
        reserve = Reserve(files)
        hashSeed = environment.random()
    }

    deinit { close() }

    func close() {
        isClosed = true
        journal.close()
        lock.close()
    }

    /// Settles, once the folder is known to be there, whether it may be written in.
    func settleRights(_ configuration: StoreConfiguration) { readOnly = configuration.readOnly || !files.mayWrite() }

    // MARK: What it knows

    var generation: UInt64 { journal.generation }
    var offset: Int64 { journal.offset }
    /// Lines that could not be read, in the files that were loaded.
    var damagedLines: Int { damage.lines }

    /// The tables no longer go with the journal: who holds the lock next loads them anew.
    func demandLoad() { mustLoad = true }

    /// Tables were loaded that go with the journal.
    func noteLoad() {
        loads += 1
        mustLoad = false
    }

    /// A checkpoint was made that has all that this process has: there is nothing to learn from it.
    func noteCheckpoint(_ generation: UInt64, bytes: Int) {
        chain.begin(generation, bytes: Int64(bytes))
        damage.forgetSkipped()
    }

    func noteFollowed(_ bytes: Int) { followedBytes += Int64(bytes) }

    func noteLineByLine() { readsLineByLine += 1 }

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
    /// - Parameters:
    ///   - appendsOnly: That the holder means to append records and nothing else: then the look whether the folder
    ///     is still the same may be 10 ms old. Who touches blobs after all asks ``confirmFolder()``.
    ///   - isWithin: Whether the caller holds `compact.lock`.
    func acquire(
        wait seconds: Double, folderIsNew: Bool = false, appendsOnly: Bool = false, isWithin: Bool = false
    ) throws {
        while true {
            try openLock()
            try lock.take(wait: seconds, isWithin: isWithin)
            if appendsOnly, lock.wasConfirmedLately { return }
            do throws(FileError) {
                if try confirmFolder() != nil { return }
            } catch {
                lock.release()
                throw error
            }
            lock.close()
            try files.enter()
            if !folderIsNew { try checkMarker() }
        }
    }

    /// Refuses a folder that is no cache any more: what would be written there nobody could open.
    func checkMarker() throws {
        guard try files.status(at: "tilecache.json") == nil else { return }
        throw StoreError(
            .noSuchCache, "\(files.location) was removed while it was open; open the cache anew to make it again")
    }

    /// Confirms that what is locked is the folder that paths lead to.
    ///
    /// Only under the lock. If it is not, the next holder will load all anew.
    func confirmFolder() throws(FileError) -> FolderHold? {
        if let folder = try lock.confirm() { return folder }
        demandLoad()
        return nil
    }

    /// Whether the journal was removed although no record leads on from it: `manifest/` was deleted, or the whole folder.
    ///
    /// For callers that have read it to its end. Looks at most every 10 ms, as ``acquire(wait:folderIsNew:appendsOnly:isWithin:)``
    /// does for holders that append.
    @inline(__always)
    func hasLostJournal() throws(FileError) -> Bool {
        // A journal that leads on to another one may be gone: the checkpoint after it has all that it said.
        guard journal.awaited == nil || mustLoad else { return false }
        return try journal.hasLostName(now: environment.coarseTicks())
    }

    func release() {
        journal.forgetTorn()
        lock.release()
    }
}
