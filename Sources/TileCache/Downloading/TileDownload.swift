import CacheEngine
import TileStore

/// A download of many tiles that is under way: of a region, of a styled map, around a place, or of what is stale.
///
/// Of a styled map everything counts as a tile that it needs: styles, TileJSONs, signs and glyphs as well.
///
/// It runs by itself from the moment it is made, and goes on if nobody watches. What is settled is in the cache at
/// once: a process that dies loses nothing, and the same download started again asks only for what is missing or stale.
/// Tiles are replaced one by one, so a reader never meets a gap.
///
/// While the server is away it waits, for ``DownloadOptions/patience`` at most, and tries again as soon as the network is back; so it
/// does while the network is one that it may not use (``DownloadOptions/networks``). Closing the cache ends it; what is pending
/// then stays pending.
public final class TileDownload: Sendable {
    /// A tile to try, again or for the first time.
    struct Job: Sendable {
        let key: TileKey
        /// Tries that count against it.
        var tries = 0
        /// How often its server asked for a pause for it, though it answered about others since the try before.
        var pauses = 0
        /// How many answers its server had given when it was tried last; `nil` before the first try.
        var answers: Int?
        /// How many times it had then given a tile that it gave before.
        var controls = 0
    }

    /// What one server said.
    struct Server {
        /// Its answers about tiles.
        var answers = 0
        /// A tile that it gave: asked for again, it tells whether the server is there.
        var control: TileKey?
        /// How many times it told so.
        var controls = 0
    }

    struct State {
        var report: DownloadReport
        var watchers: [UInt64: AsyncStream<DownloadProgress>.Continuation] = [:]
        var lastWatcher: UInt64 = 0
        /// When watchers were last told.
        var lastNews: UInt64 = 0
        var isOver = false
        /// Whether it was ended at once, from outside.
        var isEnded = false
        /// Its number in the cache's registry.
        var number: UInt64?
        var task: Task<Void, Never>?
        /// Requests that were sent or are about to be.
        var requests = 0
        /// Tiles that are to be tried again; bounded by ``TileDownload/mostDeferred``.
        var deferred: [Job] = []
        /// Whether the server is away.
        var isAway = false
        /// What the server, or the way to it, said last while it is away.
        var obstacle: TileCacheError?
        /// Why the network may not be used.
        var networkObstacle: TileCacheError?
        /// Answers about tiles, of all servers.
        var answers = 0
        /// After so many of them it is looked again whether the region is still there.
        var nextLook = TileDownload.answersPerLook
        /// When the last of them came; at first, and after a pause, when it began.
        var lastAnswer: UInt64
        /// What the servers said, each for itself: that one answers tells nothing about another.
        var servers: [String: Server] = [:]
        var notStoredInARow = 0
        /// Tiles that do not exist, and whose absence the server does not let anybody store.
        var absentAndNotStored = 0
        /// Reasons why tiles failed.
        var reasons: [ReasonKind: DownloadShortfall] = [:]
    }

    /// What makes two reasons the same.
    struct ReasonKind: Hashable {
        var code: TileCacheError.Code
        var status: Int?
    }

    /// So many tiles wait at most for another try; more are not begun meanwhile.
    static let mostDeferred = 1024
    /// So often a server may ask for a pause for one tile while it gives others: more than a server that limits its rate does.
    static let mostPauses = 100
    /// After so many tiles in a row that could not be stored, the rest is not asked for.
    static let notStoredLimit = 16
    /// After so many tiles that cannot be had, and none that can, the rest is not asked for: a wrong token is paid for by the request.
    static let refusalLimit = 100

    /// Where the tiles come from; of a styled map, which has many sources, one without tiles that is named as its resources are.
    public let source: TileSource
    /// All that a styled map needs.
    let contents: StyleContents?
    let cache: TileCache
    let options: DownloadOptions
    /// Whether all tiles are to be there at the end; else it is a prefetch or a refresh.
    let isRegion: Bool
    /// What is kept for another process while it is not complete.
    let plan: WrittenPlan?
    /// What was stored since then is not asked for again.
    let since: Timestamp?
    /// When it began.
    let startedAt: Timestamp
    let limiter: RateLimiter?
    /// What carries its requests in the background.
    let background: BackgroundTransport?
    /// Shut while it is paused.
    let gate = PauseGate()
    /// Shut while the server is away.
    let outage = PauseGate()
    /// Shut while the network is one that it may not use, and until it is known which it is.
    let network = PauseGate()
    /// Rings when the network is back: who waits for the server tries again.
    let bell = Bell()
    private let tiles: TileKeys
    let left: Locked<TileKeys>
    let state: Locked<State>

    /// Starts a download of some tiles.
    init(
        _ cache: TileCache, _ source: TileSource, _ tiles: TileKeys, total: Int, _ options: DownloadOptions,
        contents: StyleContents? = nil, isRegion: Bool = false, plan: WrittenPlan? = nil, since: Timestamp? = nil
    ) {
        self.cache = cache
        self.source = source
        self.options = options
        self.contents = contents
        self.isRegion = isRegion
        self.plan = plan
        self.since = since
        startedAt = cache.clock.now()
        self.tiles = tiles
        left = Locked(tiles)
        limiter = RateLimiter(perSecond: options.requestsPerSecond, clock: cache.clock)
        background = options.inBackground ? plan.flatMap { cache.background(ofRegion: $0.region) } : nil
        var report = DownloadReport(progress: DownloadProgress(total: max(0, total)))
        report.progress.isCounted = !isRegion
        state = Locked(State(report: report, lastAnswer: cache.clock.ticks()))
        if options.startsPaused { gate.close() }
        if options.networks != .any, background == nil { network.close() }
        guard let number = cache.running.enter(self) else {
            end(.closed)
            finish()
            return
        }
        state.withLock { $0.number = number }
        cache.tell(.downloadBegan(event(number)))
        background?.begin(workers)
        let task = Task(priority: .utility) { await self.run() }
        let isEnded = state.withLock { state -> Bool in
            if !state.isOver { state.task = task }
            return state.isEnded
        }
        // The cache may have been closed, or the region removed, since the download was entered. A download that its own worker
        // has stopped still counts what is there.
        if isEnded { task.cancel() }
    }

    // MARK: Watching and steering

    /// How far it is.
    public var progress: DownloadProgress { state.withLock { $0.report.progress } }

    /// Whether it has ended.
    public var isOver: Bool { state.withLock { $0.isOver } }

    /// Whether it begins no further tiles.
    var isEnding: Bool {
        state.withLock { state in
            state.isOver || state.report.stoppedBy != nil || state.isOutOfBudget(options)
                || state.task?.isCancelled == true
        }
    }

    /// Why nothing moves at the moment: the network may not be used, or what the server, or the way to it, said last; `nil` while
    /// it answers.
    public var obstacle: TileCacheError? { state.withLock { $0.networkObstacle ?? $0.obstacle } }

    /// The first tile that failed, as soon as there is one.
    public var firstFailure: TileFailure? { state.withLock { $0.report.failures.first } }

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
    public func resume() {
        forgetWait()
        gate.open()
    }

    /// Counts ``DownloadOptions/patience`` from now on.
    func forgetWait() {
        let now = cache.clock.ticks()
        state.withLock { $0.lastAnswer = now }
    }

    /// Ends it; what is settled stays.
    ///
    /// A later download takes up what is left.
    public func cancel() { state.withLock { $0.task }?.cancel() }

    /// Waits until it is over.
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

    /// Tries again what is missing: the tiles that failed, those that are pending, and those that were lost.
    ///
    /// Where only failed tiles are missing, and no more than ``DownloadReport/failureLimit``, they alone are looked at; else
    /// all tiles are, and those that are there and fresh are not asked for. The report is about the tiles that are looked at:
    /// it does not tell whether others of a region that nothing pins have been evicted since.
    public func retryFailed() -> TileDownload { retryFailed(startsPaused: false) }

    /// The same; begins nothing before ``resume()`` if it starts paused.
    package func retryFailed(startsPaused: Bool) -> TileDownload {
        let report = state.withLock { $0.report }
        cache.forgetFailures()
        var options = options
        options.startsPaused = startsPaused
        let progress = report.progress
        if progress.pending == 0, progress.lost == 0, progress.failed == report.failures.count {
            let keys = report.failures.map(\.key)
            return TileDownload(
                cache, source, .listed(keys[...]), total: keys.count, options, contents: contents, isRegion: isRegion,
                plan: plan, since: since)
        }
        options.revalidatesFresh = false
        return TileDownload(
            cache, source, tiles, total: progress.total, options, contents: contents, isRegion: isRegion, plan: plan,
            since: since)
    }

    /// Begins no further tiles, for a reason; those under way are finished, and what is pending stays pending.
    func stop(_ reason: TileCacheError) {
        state.withLock { if $0.report.stoppedBy == nil { $0.report.stoppedBy = reason } }
    }

    /// Ends it at once for a reason; what is pending stays pending.
    func end(_ reason: TileCacheError) {
        let task = state.withLock { state -> Task<Void, Never>? in
            guard !state.isOver else { return nil }
            state.isEnded = true
            if state.report.stoppedBy == nil { state.report.stoppedBy = reason }
            return state.task
        }
        task?.cancel()
    }

    // MARK: The end

    private var workers: Int { max(1, options.concurrency) }

    private func run() async {
        await withTaskGroup(of: Void.self) { group in
            // A background session waits by itself for a network that it may use.
            if background == nil { group.addTask { await self.followNetwork() } }
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<workers { group.addTask { await self.work() } }
                // The last one's work goes on here.
                for _ in 1..<workers {
                    await group.next()
                    background?.end()
                }
            }
            group.cancelAll()
        }
        await lookForRegion()
        await countPresent()
        await removePlan()
        finish()
        background?.finish()
        background?.end()
    }

    /// Gives up what is kept for another process, once there is nothing left to do.
    private func removePlan() async {
        // Where it was not counted what is there, that is not known.
        guard let plan, state.withLock({ $0.report.present != nil && $0.report.progress.isComplete }) else { return }
        let store = cache.store
        do {
            try await cache.pool.run { try store.removePlan(plan.text, of: plan.region) }
        } catch {
            if !cache.isClosed { cache.configuration.onEvent?(.planNotRemoved(region: plan.region, error)) }
        }
    }

    /// Whether nobody wants to know what is there: where all tiles are settled, being cancelled changes nothing any more.
    private var isGivenUp: Bool { Task.isCancelled && state.withLock { $0.report.progress.pending > 0 } }

    /// Stops it if its region was removed or replaced, by another process too: nothing pins what it stores then.
    func lookForRegion() async {
        guard let plan, !isGivenUp, !cache.isClosed, state.withLock({ $0.report.stoppedBy == nil }) else { return }
        let store = cache.store
        do {
            let region = try await cache.pool.run { try store.regions().first { $0.name == plan.region } }
            if let region, try DownloadPlan(plan.text).isFor(region) { return }
            stop(.replaced(plan.region))
        } catch {
            // What cannot be read now is reported where what is there is counted.
        }
    }

    /// Counts what of a region is in the cache: what was stored may have been evicted or removed since.
    private func countPresent() async {
        guard isRegion, !isGivenUp, !cache.isClosed else { return }
        if source.remote?.isPinnable == false {
            // What lies under its contents is looked up one by one, where that takes a moment.
            guard state.withLock({ $0.report.progress.pending <= Self.lookedUpOneByOne }) else { return }
        } else if await countPresentByEntries() {
            return
        }
        let failed = Set(state.withLock { $0.report.failures.map(\.key) })
        let (cache, contents) = (self.cache, self.contents)
        var tiles = self.tiles
        var (present, settled) = (0, 0)
        do {
            while !isGivenUp {
                var some: [TileKey] = []
                while some.count < 4096, let key = tiles.next() { some.append(key) }
                guard !some.isEmpty else { break }
                let keys = some
                let there = try await cache.pool.run { [self] in
                    try keys.filter { try source(of: $0).remote?.isThere($0, in: cache) ?? cache.isThere($0, contents) }
                }
                present += there.count
                settled += failed.isEmpty ? there.count : there.count { !failed.contains($0) }
            }
            guard !isGivenUp else { return }
            state.withLock { state in
                state.report.present = present
                state.report.progress.isCounted = true
                let progress = state.report.progress
                // Where tiles are pending, old copies of them cannot be told from tiles of this run.
                guard progress.pending == 0, failed.count == progress.failed else { return }
                state.report.progress.lost = max(0, progress.done - failed.count - state.absentAndNotStored - settled)
            }
        } catch {
            stop(
                cache.isClosed
                    ? .closed
                    : TileCacheError(.notStored, "the cache cannot say what is there: \(error)", cause: error))
        }
    }

    /// Counts the same by looking through the cache's entries, where a download ended early that has far more tiles.
    ///
    /// - Returns: Whether that could be done: not for shapes that take too many rectangles.
    private func countPresentByEntries() async -> Bool {
        let pending = state.withLock { $0.report.progress.pending }
        guard pending > Self.lookedUpOneByOne else { return false }
        let (tiles, cache, contents) = (self.tiles, self.cache, self.contents)
        do {
            let present = try await cache.pool.run { () -> Int? in
                guard let (parts, others) = try tiles.parts() else { return nil }
                var present = try others.count { try cache.isThere($0, contents) }
                for part in parts {
                    var selection = EntrySelection()
                    (selection.source, selection.region) = (part.region.source, part.region)
                    try cache.store.forEachEntry(where: selection) { entry in
                        // An entry may have lost its file: to a system that empties a folder, say.
                        if part.contains(entry.key), try cache.store.entryWithBlob(entry.key) != nil { present += 1 }
                    }
                }
                return present
            }
            guard let present else { return false }
            if !isGivenUp {
                state.withLock { state in
                    state.report.present = present
                    state.report.progress.isCounted = true
                }
            }
            return true
        } catch { return false }
    }

    /// So many tiles are looked up one by one, whatever else is in the cache.
    private static let lookedUpOneByOne = 65_536

    private func finish() {
        let (watchers, number, report) = state.withLock { state in
            let pending = state.report.progress.pending
            if state.report.stoppedBy == nil, pending > 0 {
                if state.isOutOfBudget(options) {
                    state.report.reachedBudget = true
                } else {
                    state.report.wasCancelled = true
                }
            }
            state.report.progress.isWaiting = false
            state.report.shortfalls = state.shortfalls(isPinned: plan != nil)
            state.isOver = true
            state.task = nil
            state.obstacle = nil
            state.networkObstacle = nil
            state.deferred = []
            defer { state.watchers = [:] }
            for watcher in state.watchers.values { watcher.yield(state.report.progress) }
            return (Array(state.watchers.values), state.number, state.report)
        }
        if let number {
            cache.running.leave(number)
            cache.tell(.downloadEnded(event(number), report))
        }
        for watcher in watchers { watcher.finish() }
    }

    private func event(_ number: UInt64) -> DownloadEvent {
        let total = state.withLock { $0.report.progress.total }
        return DownloadEvent(number: number, source: source.name, region: plan?.region, tiles: total)
    }
}

extension TileDownload.State {
    func isOutOfBudget(_ options: DownloadOptions) -> Bool {
        if let budget = options.byteBudget, report.progress.bytes >= budget { return true }
        if let budget = options.requestBudget, requests >= budget { return true }
        return false
    }

    /// What is missing at the end and why.
    fileprivate func shortfalls(isPinned: Bool) -> [DownloadShortfall] {
        var found = reasons.values.sorted { $0.tiles > $1.tiles }
        let progress = report.progress
        if progress.pending > 0 {
            let reason =
                report.stoppedBy
                ?? (report.reachedBudget
                    ? TileCacheError(.overBudget, "the download's budget is used up")
                    : TileCacheError(.cancelled, "the download was cancelled"))
            found.append(DownloadShortfall(tiles: progress.pending, reason: reason))
        }
        if progress.lost > 0 {
            let advice =
                isPinned
                ? "download it again"
                : "give the region a name, which pins it, or the cache more space"
            let reason = TileCacheError(
                .notStored,
                "stored, and not there any more: \(isPinned ? "" : "evicted or ")removed meanwhile, or replaced by another one; "
                    + "\(advice); a map whose style has changed is downloaded anew")
            found.append(DownloadShortfall(tiles: progress.lost, reason: reason))
        }
        return found
    }
}

/// The tiles of a download, in their order.
enum TileKeys: IteratorProtocol, Sendable {
    /// Those of a region.
    case covered(KeyIterator)
    /// Those of a region as the manifest has it.
    case pinned(SpanIterator)
    /// A list.
    case listed(ArraySlice<TileKey>)
    /// All that a styled map needs.
    case styled(StyleIterator)

    mutating func next() -> TileKey? {
        switch self {
        case .covered(var tiles):
            defer { self = .covered(tiles) }
            return tiles.next()
        case .pinned(var tiles):
            defer { self = .pinned(tiles) }
            return tiles.next()
        case .listed(var keys):
            defer { self = .listed(keys) }
            return keys.popFirst()
        case .styled(var keys):
            defer { self = .styled(keys) }
            return keys.next()
        }
    }

    /// All of them as rectangles, and those that are in none; `nil` for a list.
    func parts() throws -> (rectangles: [TilePart], others: [TileKey])? {
        switch self {
        case .covered(var keys):
            guard let variant = keys.next()?.tile else { return ([], []) }
            let region = try PinnedRegion(name: "present", source: keys.source, spans: keys.coverage.spans())
            return ([TilePart(region: region, variant: variant)], [])
        case .pinned(let keys): return ([TilePart(region: keys.region, variant: keys.variant)], [])
        case .styled(let keys): return (Array(keys.parts), Array(keys.keys))
        case .listed: return nil
        }
    }
}
