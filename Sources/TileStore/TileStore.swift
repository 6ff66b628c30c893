// Where what is:
//   opening, making and loading a folder         CacheFolder
//   holding the lock, following other processes  TileStore+Holding; in work of many holds LongWork
//   look-ups and reads                           TileStore+Read, TileStore+Open, TileStore+Known
//   uses, written down later                     TileStore+Uses
//   puts, prepared before the lock               Puts/: TileStore+Put, TileStore+Staging, BodyWriter
//   puts, carried out for all that wait          Puts/: PutQueue, TileStore+Performing, +Recording, +Publishing
//   limits and eviction                          Evictor decides, TileStore+Eviction carries it out
//   blobs' files; damage; orphans                Blobs/: BlobFolder, TileStore+Damage, Orphans
//   what is known to be on the disk              TileStore+Syncing
//   entries: visiting, removing; regions         TileStore+Entries, TileStore+Regions
//   compaction, index images                     Manifest/: Compaction, IndexImageWriter
//   verify, invariants, statistics               TileStore+Verify, TileStore+Statistics

/// A content-addressed store of tiles in a folder: bytes once by their SHA-256, keys in a JSON manifest.
///
/// Synchronous and thread-safe; any number of processes may have the same folder open. Every function that changes
/// something blocks on file operations and, for a bounded time, on other processes: call it from a thread that may
/// block. A read of a tile that is in memory or in the system's page cache takes a few microseconds.
///
/// What is promised, and how it is tested: Docs/invariants.md. What is on disk: Docs/on-disk-format.md.
public final class TileStore: Sendable {
    // The parts. This type alone puts their calls in sequence.

    /// What the manifest says, in memory: changed only by lines that stand in the journal.
    let tables: Striped<Tables, ReaderLocal>
    /// The journal, and the right to write: held by one thread of this process at a time.
    let commit: Locked<Ledger>
    /// Puts that wait for that right.
    let queue: PutQueue<UnsafeMutableBufferPointer<PutRequest>, Ledger>
    /// The blobs' files.
    let blobs: BlobFolder
    /// Hot bytes.
    let memory: MemoryTier
    /// What is done in the background; `nil` where nothing may be.
    let maintenance: Maintenance?

    // What they share, and what is known.

    let environment: StoreEnvironment
    let configuration: StoreConfiguration
    let files: any FileSystem
    /// Shut while the store is suspended.
    let gate = LockGate()
    /// What this process has evicted.
    let evicted = Locked(RemovalReport())
    /// The folder's, for fingerprints; another one once the folder has been replaced.
    let salt: Locked<String>
    /// Whether the machine was started anew since blobs were written that nobody has hashed since.
    let suspicious: Locked<Bool>
    /// Whether a put returns when it is on the disk.
    let isDurable: Bool

    /// Whether the cache was opened for reading alone, by choice or for want of permission.
    public let isReadOnly: Bool

    /// Opens the cache in a folder; makes it if it is missing and the configuration says so.
    ///
    /// Costs reading the index image, or where that is missing the manifest: about 0.05 s or 0.4 s for a million entries.
    /// - Parameters:
    ///   - path: The cache's folder.
    ///   - configuration: Limits and modes.
    /// - Throws: `StoreError`: `noSuchCache`, `notACache`, `unknownFormat`, `readOnly`, `locked`, `diskFull`, `damaged`, `io`.
    public convenience init(at path: String, configuration: StoreConfiguration = StoreConfiguration()) throws {
        guard !path.isEmpty else {
            throw StoreError(.invalidValue, "the path of the cache is empty; name a folder")
        }
        try self.init(environment: .disk(at: path), configuration: configuration)
    }

    package init(environment: StoreEnvironment, configuration: StoreConfiguration) throws {
        self.environment = environment
        self.configuration = configuration
        files = environment.files
        isDurable = configuration.durability == .durable
        blobs = BlobFolder(files, isDurable: isDurable, random: environment.random)
        let ledger = Ledger(
            environment: environment, durable: isDurable,
            usesImages: configuration.indexImages != .never, gate: gate)
        ledger.sourceCapacities = configuration.sourceCapacities.mapValues { max(0, $0) }
        do {
            let marker = try CacheFolder.open(environment, configuration, ledger)
            salt = Locked(marker.salt)
            isReadOnly = ledger.readOnly
            let loaded = try CacheFolder.load(ledger, configuration, blobs)
            suspicious = Locked(environment.mayHaveLost(loaded))
            tables = Striped(loaded, local: ReaderLocal.init)
        } catch let error as FileError {
            throw StoreError(error, in: environment.files.location)
        }
        commit = Locked(ledger)
        queue = PutQueue(commit)
        memory = MemoryTier(bytes: configuration.memoryTierBytes)
        maintenance = environment.background && !isReadOnly ? Maintenance() : nil
        maintenance?.attach(self)
        if !isReadOnly { try settleLimits() }
        if isDurable, tables.read({ t, _ in t.boot != nil }) { maintenance?.scheduleSync() }
    }

    /// A store whose folder could not be opened, closed from the beginning: its functions throw `StoreError.Code.closed`.
    ///
    /// Touches no file. For callers that must have a store where opening one has failed.
    package init(neverOpenedAt path: String) {
        environment = .disk(at: path)
        configuration = StoreConfiguration()
        files = environment.files
        isDurable = false
        isReadOnly = true
        blobs = BlobFolder(files, isDurable: false, random: environment.random)
        let ledger = Ledger(environment: environment, durable: false, usesImages: false, gate: gate)
        salt = Locked("")
        suspicious = Locked(false)
        tables = Striped(Tables(blockSize: 4096, hashSeed: ledger.hashSeed), local: ReaderLocal.init)
        commit = Locked(ledger)
        queue = PutQueue(commit)
        memory = MemoryTier(bytes: 0)
        maintenance = nil
        shut()
    }

    deinit {
        // Without a close: what can be written down is; what cannot, is no loss but of ten seconds' order of use.
        try? close()
    }

    /// Writes down what is pending and gives up the files.
    ///
    /// Later calls throw `StoreError.Code.closed`. While it is suspended nothing is written: at most ten seconds' access times are lost.
    public func close() throws {
        guard !gate.close() else { return simulateKill() }
        let isOpen = commit.withLock { !$0.isClosed }
        guard isOpen else { return }
        maintenance?.stop()
        defer {
            shut()
        }
        guard !isReadOnly else { return }
        if hasPendingUses { try flush() }
        try syncEverything()
        // What cannot be written costs the next opening some time and nothing else.
        _ = try? writeImageIfDue(atEnd: true)
    }

    var closedError: StoreError { StoreError(.closed, "the store of \(files.location) is closed") }

    /// Gives up the cache's locks, and takes none before ``resume()``.
    ///
    /// For an app that is about to be suspended by the system: one that then holds a file's lock in a container that it shares with
    /// its extensions is ended, and meanwhile other processes would wait. When it returns, this store holds none. It blocks for as long
    /// as something is being changed, some milliseconds; a compaction that is under way is given up and made later.
    ///
    /// Reading goes on, and sees what other processes write. What changes something, calls of other threads included, waits as it
    /// does for another process, for ``StoreConfiguration/lockWait``, and then throws `StoreError.Code.locked`; time for which the
    /// system has stopped the process does not count. Calling it again does nothing.
    public func suspend() { gate.shut(refusing: false) }

    /// The same, but what changes something throws `StoreError.Code.locked` at once: for callers whose threads have other work, too.
    package func suspendRefusing() { gate.shut(refusing: true) }

    /// Takes locks again, after ``suspend()``.
    ///
    /// What has waited goes on. Does nothing in a store that is not suspended.
    public func resume() { gate.open() }

    /// Gives up handles and locks as the death of the process would, and writes nothing.
    package func simulateKill() {
        maintenance?.stop(abandoning: true)
        shut()
    }

    private func shut() {
        tables.forEachLocal { $0.isClosed = true }
        commit.withLock { $0.close() }
    }

    /// Gives up the bytes of blobs that are kept in memory; they are read from the disk when they are wanted again.
    ///
    /// For when memory is short. What the manifest says stays in memory.
    public func trimMemory() { memory.removeAll() }

    /// A fingerprint of a text, salted with the cache's own salt: tells values apart without keeping them.
    public func fingerprint(of text: String) -> Fingerprint {
        var bytes = Array(salt.withLock { $0 }.utf8)
        bytes.append(0)
        bytes.append(contentsOf: text.utf8)
        let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
        return Fingerprint(high: UInt64(bigEndian: digest.a), low: UInt64(bigEndian: digest.b))
    }
}
