import TileStore

/// A download of many tiles that is under way: of a region, around a place, or of what is stale.
///
/// It runs by itself from the moment it is made, and goes on if nobody watches. What is settled is in the cache at
/// once: a process that dies loses nothing, and the same download started again asks only for what is missing or stale.
/// Tiles are replaced one by one, so a reader never meets a gap.
public final class TileDownload: Sendable {
    private struct State {
        var report: DownloadReport
        var watchers: [UInt64: AsyncStream<DownloadProgress>.Continuation] = [:]
        var lastWatcher: UInt64 = 0
        /// When watchers were last told.
        var lastNews: UInt64 = 0
        var isOver = false
        var unreachableInARow = 0
        var requests = 0
        var task: Task<Void, Never>?

        func isOutOfBudget(_ options: DownloadOptions) -> Bool {
            if let budget = options.byteBudget, report.progress.bytes >= budget { return true }
            if let budget = options.requestBudget, requests >= budget { return true }
            return false
        }
    }

    /// Where the tiles come from.
    public let source: TileSource
    private let cache: TileCache
    private let options: DownloadOptions
    private let limiter: RateLimiter?
    private let gate = PauseGate()
    private let state: Locked<State>

    /// Starts a download of some keys.
    init<Keys: IteratorProtocol & Sendable>(
        _ cache: TileCache, _ source: TileSource, _ keys: Keys, total: Int, _ options: DownloadOptions
    ) where Keys.Element == TileKey {
        self.cache = cache
        self.source = source
        self.options = options
        limiter = RateLimiter(perSecond: options.requestsPerSecond, clock: cache.clock)
        state = Locked(State(report: DownloadReport(progress: DownloadProgress(total: max(0, total)))))
        if options.startsPaused { gate.close() }
        let task = Task(priority: .utility) { await self.run(keys) }
        state.withLock { if !$0.isOver { $0.task = task } }
    }

    // MARK: Watching and steering

    /// How far it is.
    public var progress: DownloadProgress { state.withLock { $0.report.progress } }

    /// How far it is, from now on: the newest state, at most fifty times a second, and the last one always, then the end.
    ///
    /// A slow reader misses states in between and never the last. Several may watch.
    public func updates() -> AsyncStream<DownloadProgress> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: DownloadProgress.self, bufferingPolicy: .bufferingNewest(1))
        let (isOver, number) = state.withLock { state -> (Bool, UInt64) in
            state.lastWatcher += 1
            continuation.yield(state.report.progress)
            if !state.isOver { state.watchers[state.lastWatcher] = continuation }
            return (state.isOver, state.lastWatcher)
        }
        if isOver {
            continuation.finish()
        } else {
            continuation.onTermination = { [weak self] _ in
                _ = self?.state.withLock { $0.watchers.removeValue(forKey: number) }
            }
        }
        return stream
    }

    /// Starts no further tiles until ``resume()``; those under way are finished.
    public func pause() { gate.close() }

    /// Goes on after ``pause()``.
    public func resume() { gate.open() }

    /// Ends it; what is settled stays.
    ///
    /// A later download takes up what is left.
    public func cancel() { state.withLock { $0.task }?.cancel() }

    /// Waits until all is settled, or it was cancelled.
    ///
    /// The download goes on if the waiting task is cancelled; call ``cancel()`` to end it.
    public func report() async -> DownloadReport {
        for await _ in updates() {}
        while true {
            // The stream ends early for a waiter that is cancelled itself.
            let report = state.withLock { $0.isOver || Task.isCancelled ? $0.report : nil }
            if let report { return report }
            for await _ in updates() {}
        }
    }

    /// Tries the failed tiles again, and only those.
    ///
    /// If more failed than ``DownloadReport/failureLimit``, start the whole download again: it asks for nothing that is
    /// there and fresh.
    public func retryFailed() -> TileDownload {
        let keys = state.withLock { $0.report.failures.map(\.key) }
        cache.failures.forget()
        var options = options
        options.startsPaused = false
        return TileDownload(cache, source, keys.makeIterator(), total: keys.count, options)
    }

    // MARK: Running

    private func run<Keys: IteratorProtocol & Sendable>(_ keys: Keys) async where Keys.Element == TileKey {
        let keys = Locked(keys)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<max(1, options.concurrency) {
                group.addTask {
                    while await self.isToGoOn() {
                        guard let key = keys.withLock({ $0.next() }) else { return }
                        await self.settle(key)
                    }
                }
            }
        }
        finish()
    }

    private func isToGoOn() async -> Bool {
        await gate.pass()
        guard !Task.isCancelled else { return false }
        return state.withLock { state in
            if state.report.stoppedBy != nil { return false }
            return !state.isOutOfBudget(options)
        }
    }

    private func settle(_ key: TileKey) async {
        do {
            let outcome = try await outcome(key)
            count { state in
                state.unreachableInARow = 0
                switch outcome {
                case nil: state.report.progress.unchanged += 1
                case let tile? where tile.origin == .revalidated: state.report.progress.revalidated += 1
                case let tile? where tile.isAbsent: state.report.progress.absent += 1
                case let tile?:
                    state.report.progress.fetched += 1
                    state.report.progress.bytes += tile.data?.count ?? 0
                }
            }
        } catch is CancellationError {
            // Not settled: the next download takes it up.
        } catch {
            let failure = error as? FetchFailure
            let told =
                failure?.error ?? error as? TileCacheError
                ?? TileCacheError(.noAnswer, "\(key): \(error)", key: key, cause: error)
            count { state in
                state.report.progress.failed += 1
                if state.report.failures.count < DownloadReport.failureLimit {
                    state.report.failures.append(TileFailure(key: key, error: told))
                }
                state.unreachableInARow = failure?.setback == .unreachable ? state.unreachableInARow + 1 : 0
                if state.unreachableInARow >= options.unreachableLimit, state.report.stoppedBy == nil {
                    state.report.stoppedBy = told
                }
                if !(failure?.isAboutTiles ?? true), state.report.stoppedBy == nil { state.report.stoppedBy = told }
            }
        }
    }

    /// Settles one tile; `nil` if it is there and fresh.
    private func outcome(_ key: TileKey) async throws -> CachedTile? {
        if !options.revalidatesFresh, try await cache.isFreshAndThere(key) { return nil }
        var attempt = 1
        while true {
            try await limiter?.wait()
            state.withLock { $0.requests += 1 }
            do {
                return try await cache.update(source, key, options)
            } catch let failure as FetchFailure {
                let wait = cache.failures.wait(for: key)?.until ?? 0
                let left = failure.error.retryAfter ?? cache.timeLeft(until: wait)
                guard failure.isWorthAnotherTry, attempt < options.attempts, left <= options.longestWait else {
                    throw failure
                }
                attempt += 1
                try await cache.clock.sleep(left)
            }
        }
    }

    private func count(_ change: (inout State) -> Void) {
        let now = cache.clock.ticks()
        state.withLock { state in
            change(&state)
            // Waking a watcher costs more than some tiles do; nobody sees more than fifty states a second.
            guard now &- state.lastNews >= 20_000_000 else { return }
            state.lastNews = now
            for watcher in state.watchers.values { watcher.yield(state.report.progress) }
        }
    }

    private func finish() {
        let watchers = state.withLock { state -> [AsyncStream<DownloadProgress>.Continuation] in
            let left = state.report.progress.total - state.report.progress.done
            if state.report.stoppedBy != nil {
                state.report.progress.failed += max(0, left)
            } else if left > 0, state.isOutOfBudget(options) {
                state.report.reachedBudget = true
            } else if left > 0 {
                state.report.wasCancelled = true
            }
            state.isOver = true
            state.task = nil
            defer { state.watchers = [:] }
            for watcher in state.watchers.values { watcher.yield(state.report.progress) }
            return Array(state.watchers.values)
        }
        for watcher in watchers { watcher.finish() }
    }
}

extension FetchFailure {
    /// Whether the same tile may well come in a while.
    fileprivate var isWorthAnotherTry: Bool { mayPass || error.code == .waiting }
    /// Whether other tiles may fare better.
    fileprivate var isAboutTiles: Bool { error.code != .hookFailed }
}

extension TileCache {
    /// Whether a tile needs no request: its entry is fresh, and its blob's file is there.
    func isFreshAndThere(_ key: TileKey) async throws -> Bool {
        let (store, now) = (self.store, clock.now())
        // What the tables say needs no waiting; only a look at the file does.
        guard let entry = try store.entry(for: key), CacheState(entry, now: now).isFresh else { return false }
        if entry.blob == nil { return true }
        return try await pool.run {
            guard let entry = try store.entryWithBlob(key) else { return false }
            return CacheState(entry, now: now).isFresh
        }
    }

    /// Asks the server for a tile, by a conditional request if there is something to ask about.
    ///
    /// - Throws: ``FetchFailure`` and what else ``fetch(_:_:)`` throws; never a stale tile instead.
    func update(_ source: TileSource, _ key: TileKey, _ options: DownloadOptions) async throws -> CachedTile {
        let stored = try await read(key)
        // Trying again is the download's own affair: it can wait longer than somebody who looks at a map.
        var source = source
        source.attempts = 1
        let order = FetchOrder(
            source: source, key: key, stored: stored, mode: .serverThenCache, isBulk: options.isBulk)
        return try await flights.value(
            for: FlightKey(key: key, isStored: true), priority: options.priority
        ) { ticket in
            try await self.fetch(order, ticket)
        }
    }

    func timeLeft(until ticks: UInt64) -> Duration {
        let now = clock.ticks()
        return .nanoseconds(Int64(clamping: ticks > now ? ticks - now : 0))
    }
}
