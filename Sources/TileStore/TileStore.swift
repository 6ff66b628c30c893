/// A content-addressed store of tiles in a folder: bytes once by their SHA-256, keys in a JSON manifest.
///
/// Synchronous and thread-safe; any number of processes may have the same folder open. Every function that changes
/// something blocks on file operations and, for a bounded time, on other processes: call it from a thread that may
/// block. A read of a tile that is in memory or in the system's page cache takes a few microseconds.
///
/// What is promised, and how it is tested: Docs/invariants.md. What is on disk: Docs/on-disk-format.md.
public final class TileStore: Sendable {
    let environment: StoreEnvironment
    let configuration: StoreConfiguration
    let files: any FileSystem
    let tables: Striped<Tables, ReaderLocal>
    /// The journal, and the right to write: held by one thread of this process at a time.
    let commit: Locked<Ledger>
    let queue = Monitor(WriterQueue())
    let memory: MemoryTier
    let shards = Locked(ShardSet())
    let vouched = Locked(VouchedDigests())
    let evicted = Locked(RemovalReport())
    let stagingNames: StagingNames
    /// The folder's, for fingerprints; another one once the folder has been replaced.
    private let salt: Locked<String>
    /// Whether the machine was started anew since blobs were written that nobody has hashed since.
    let suspicious: Locked<Bool>
    let maintenance: Maintenance?
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
        stagingNames = StagingNames(environment.random())
        let ledger = Ledger(
            environment: environment, durable: isDurable,
            usesImages: configuration.indexImages != .never)
        do {
            let marker = try CacheFolder.open(environment, configuration, ledger)
            salt = Locked(marker.salt)
            isReadOnly = ledger.readOnly
            let loaded = try CacheFolder.load(ledger, configuration)
            // A start of the machine that cannot be told from others may be another one.
            suspicious = Locked(loaded.boot != nil && loaded.boot != environment.bootID)
            tables = Striped(loaded, local: ReaderLocal.init)
        } catch let error as FileError {
            throw StoreError(error, in: environment.files.location)
        }
        commit = Locked(ledger)
        memory = MemoryTier(bytes: configuration.memoryTierBytes)
        maintenance = environment.background && !isReadOnly ? Maintenance() : nil
        maintenance?.attach(self)
        if !isReadOnly { try settleLimits() }
        if isDurable, tables.read({ t, _ in t.boot != nil }) { maintenance?.scheduleSync() }
    }

    deinit {
        // Without a close: what can be written down is; what cannot, is no loss but of ten seconds' order of use.
        try? close()
    }

    /// Writes down what is pending and gives up the files.
    ///
    /// Later calls throw `StoreError.Code.closed`.
    public func close() throws {
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

    /// Gives up handles and locks as the death of the process would, and writes nothing.
    package func simulateKill() {
        maintenance?.stop(abandoning: true)
        shut()
    }

    private func shut() {
        tables.forEachLocal { $0.isClosed = true }
        commit.withLock {
            $0.isClosed = true
            $0.close()
        }
    }

    /// A fingerprint of a text, salted with the cache's own salt: tells values apart without keeping them.
    public func fingerprint(of text: String) -> Fingerprint {
        var bytes = Array(salt.withLock { $0 }.utf8)
        bytes.append(0)
        bytes.append(contentsOf: text.utf8)
        let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
        return Fingerprint(high: UInt64(bigEndian: digest.a), low: UInt64(bigEndian: digest.b))
    }

    // MARK: Holding the lock

    /// Runs a body with the cache's lock held and everything read that other processes have written.
    func hold<R>(_ body: (Ledger) throws -> R) throws -> R {
        guard !isReadOnly else {
            throw StoreError(.readOnly, "\(files.location) is open for reading alone; nothing can be changed in it")
        }
        return try commit.withLock { ledger in try hold(ledger, body) }
    }

    /// The same for a thread that has the ledger already.
    ///
    /// - Parameter appendsOnly: As in ``Ledger/acquire(wait:folderIsNew:appendsOnly:)``.
    @inline(__always)
    func hold<R>(_ ledger: Ledger, appendsOnly: Bool = false, _ body: (Ledger) throws -> R) throws -> R {
        do {
            guard !ledger.isClosed else { throw closedError }
            try ledger.acquire(wait: configuration.lockWait, appendsOnly: appendsOnly)
            defer { ledger.release() }
            if try !ledger.advance(.live(tables), underLock: true) { try reload(ledger, underLock: true) }
            if try ledger.hasLostJournal() { try replaceManifest(ledger) }
            defer { if ledger.hasDropped { sweepDropped(ledger) } }
            return try body(ledger)
        } catch let error as FileError {
            throw StoreError(error, in: files.location)
        } catch let error as AppendFailure {
            throw StoreError(error.cause, in: files.location)
        }
    }

    /// Takes entries of dropped blobs out of the tables, a few at a time, so that readers come in between.
    func sweepDropped(_ ledger: Ledger) {
        while tables.write({ $0.sweep(256) }) {}
        ledger.hasDropped = false
    }

    /// Loads the newest checkpoint in place of the tables.
    func reload(_ ledger: Ledger, underLock: Bool) throws {
        guard let fresh = try ledger.load(underLock: underLock) else { return }
        // The folder may be another one, in the place of the one that was opened.
        if let marker = try CacheFolder.readMarker(files) { salt.withLock { $0 = marker.salt } }
        shards.withLock { $0 = ShardSet() }
        tables.write(
            visiting: { tables, local in
                // Pending uses are kept by numbers that only the old tables understand.
                let noted = local.uses.take().value(in: tables) ?? []
                let moved = noted.compactMap { use -> PendingUse? in
                    guard !use.key.isResource || tables.find(use.key) != nil,
                        let key = fresh.entering(tables.key(use.key))
                    else { return nil }
                    var moved = use
                    moved.key = key
                    return moved
                }
                local.uses.replace(moved, in: fresh)
            },
            then: { $0 = fresh })
    }

    /// Goes on with a new manifest in the place of one that was deleted: records appended to that one would be lost.
    private func replaceManifest(_ ledger: Ledger) throws {
        ledger.mustLoad = true
        try reload(ledger, underLock: true)
    }

    /// Reads what other processes have written, without waiting for anybody.
    package func catchUp() throws {
        do {
            try commit.withLock { ledger in
                guard !ledger.isClosed else { throw closedError }
                try follow(ledger, mayWait: true)
            }
        } catch let error as FileError {
            throw StoreError(error, in: files.location)
        }
    }

    /// On the read path: catches up if there is news, asked for at most every 10 ms, unless another thread is at it.
    @inline(__always)
    func catchUpIfDue(_ local: inout ReaderLocal) -> Bool {
        let now = environment.coarseTicks()
        guard now &- local.lastNews >= 10_000_000 else { return false }
        local.lastNews = now
        return true
    }

    func catchUpOnRead() throws {
        do {
            _ = try commit.tryWithLock { ledger in
                guard !ledger.isClosed, try ledger.hasNews() else { return }
                try follow(ledger, mayWait: false)
            }
        } catch let error as FileError {
            throw StoreError(error, in: files.location)
        }
    }

    /// - Parameter mayWait: Whether to wait for another process that holds the lock.
    private func follow(_ ledger: Ledger, mayWait: Bool) throws {
        if try !ledger.advance(.live(tables), underLock: false) { try reload(ledger, underLock: false) }
        if isReadOnly, try ledger.hasLostJournal() {
            // It never takes the lock, by which others notice that the folder was removed and made anew.
            try files.enter()
            ledger.mustLoad = true
            try reload(ledger, underLock: false)
        }
        if ledger.hasDropped { sweepDropped(ledger) }
        if ledger.hasReleased { forgetBlobsOfOthers(ledger) }
        // A line that is whole but wrong: only under the lock may it be called damage.
        if ledger.needsJudgement, !isReadOnly {
            do { try ledger.acquire(wait: mayWait ? configuration.lockWait : 0) } catch let error as StoreError
                where !mayWait && error.code == .locked
            {
                // A look-up must not wait: the holder of the lock judges the line, or the next look after it.
                return
            }
            defer { ledger.release() }
            if try !ledger.advance(.live(tables), underLock: true) { try reload(ledger, underLock: true) }
        }
    }
}
