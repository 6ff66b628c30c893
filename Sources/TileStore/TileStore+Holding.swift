// Holding the lock, and following what other processes write.
extension TileStore {
    /// Runs a body with the cache's lock held and everything read that other processes have written.
    ///
    /// - Parameter compaction: The lock that the caller holds already, if it does.
    func hold<R>(within compaction: CompactionLock? = nil, _ body: (Ledger) throws -> R) throws -> R {
        guard !isReadOnly else {
            throw StoreError(.readOnly, "\(files.location) is open for reading alone; nothing can be changed in it")
        }
        guard let compaction else { return try commit.withLock { ledger in try hold(ledger, body) } }
        return try withLedger(within: compaction) { ledger in try hold(ledger, isWithin: true, body) }
    }

    /// Runs a body with the ledger, for a caller that holds `compact.lock`.
    ///
    /// Whoever has the ledger may be waiting for the end of a suspension, and that for the caller: so while the store is suspended
    /// nobody is waited for here.
    ///
    /// - Throws: `StoreError.Code.locked` if the store is suspended.
    func withLedger<R>(within compaction: CompactionLock, _ body: (Ledger) throws -> R) throws -> R {
        var pause: UInt64 = 20_000
        while true {
            if let result = try commit.tryWithLock({ ledger in try body(ledger) }) { return result }
            guard !gate.isShut else { throw StoreError.suspended(files.location) }
            environment.pause(pause)
            pause = min(pause * 2, 500_000)
        }
    }

    /// The same for a thread that has the ledger already.
    ///
    /// - Parameters:
    ///   - appendsOnly: As in ``Ledger/acquire(wait:folderIsNew:appendsOnly:isWithin:)``.
    ///   - isWithin: As there.
    @inline(__always)
    func hold<R>(
        _ ledger: Ledger, appendsOnly: Bool = false, isWithin: Bool = false, _ body: (Ledger) throws -> R
    ) throws -> R {
        do {
            guard !ledger.isClosed else { throw closedError }
            try ledger.acquire(wait: configuration.lockWait, appendsOnly: appendsOnly, isWithin: isWithin)
            defer { ledger.release() }
            if try !ledger.advance(.live(tables), underLock: true) { try reload(ledger, underLock: true) }
            if try ledger.hasLostJournal() { try replaceManifest(ledger) }
            defer { if ledger.glance.hasUnswept { sweepDropped(ledger) } }
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
        ledger.glance.swept()
    }

    /// Loads the newest checkpoint in place of the tables.
    func reload(_ ledger: Ledger, underLock: Bool) throws {
        if underLock {
            do { try ledger.checkMarker() } catch {
                ledger.demandLoad()
                throw error
            }
        }
        guard let fresh = try ledger.load(underLock: underLock) else { return }
        // The folder may be another one, in the place of the one that was opened.
        do {
            if let marker = try CacheFolder.readMarker(files) { settle(fresh, marker.salt) }
        } catch {
            // The journal goes with the tables that were loaded, and these do not take their place.
            ledger.demandLoad()
            throw error
        }
        blobs.shards.forget()
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

    /// Takes over what tables that were loaded say of the folder: its salt, and whether its blobs are to be doubted.
    private func settle(_ fresh: Tables, _ newSalt: String) {
        let isOther = salt.withLock { salt in
            defer { salt = newSalt }
            return salt != newSalt
        }
        // In the same folder a start that cannot be told may be this one, in which what was written is known to be right.
        if isOther || fresh.boot != Self.unknownBoot {
            let isDoubtful = environment.mayHaveLost(fresh)
            suspicious.withLock { $0 = isDoubtful }
        }
    }

    /// Goes on with a new manifest in the place of one that was deleted: records appended to that one would be lost.
    private func replaceManifest(_ ledger: Ledger) throws {
        ledger.demandLoad()
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
            ledger.demandLoad()
            try reload(ledger, underLock: false)
        }
        if ledger.glance.hasUnswept { sweepDropped(ledger) }
        if ledger.glance.hasReleased { forgetBlobsOfOthers(ledger) }
        // A line that is whole but wrong: only under the lock may it be called damage.
        if ledger.damage.needsJudgement, !isReadOnly {
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
