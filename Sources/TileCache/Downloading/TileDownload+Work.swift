import CacheEngine
import TileStore

extension TileDownload {
    /// How a try ended.
    private enum TryEnd {
        /// The tile is settled without a request.
        case unchanged
        /// The server answered; the tile is settled or will be tried again.
        case answered
        /// The tile itself is left alone for now and will be tried again.
        case postponed
        /// The server is away; the wait is the rest of a pause during which nothing is sent, if there is one.
        case away(Job, wait: Duration?)
        /// Nothing more is to be done.
        case over
    }

    private enum Next {
        case job(Job)
        /// Only tiles are left that have to wait for their own back-off.
        case later(Duration)
        case none
    }

    /// What a failure says.
    private enum Blame {
        /// The tile cannot be had.
        case tile
        /// Nothing came, for the tile's own fault or the network's: other tiles tell.
        case unclear
        /// The server asks to be left alone, or is left alone already.
        case server

        init(_ failure: FetchFailure) {
            let status = failure.error.status
            if failure.error.code == .waiting || failure.retryAfter != nil || status == 429 || status == 503 {
                self = .server
            } else if status == 502 || status == 504 {
                self = .unclear
            } else if let cause = failure.error.cause as? TransportError,
                [.connection, .nameNotFound, .tls, .timeout].contains(cause.code)
            {
                self = .unclear
            } else {
                self = .tile
            }
        }
    }

    /// The longest sleep while the server is away.
    ///
    /// Short, so that ``TileCache/forgetFailures()`` and another caller's success are noticed soon. That the network is back is
    /// noticed at once. Asking during a pause
    /// costs no request.
    private static let longestSleep = Duration.seconds(5)

    /// One of the workers: tries tiles until there are none.
    func work() async {
        while await mayGoOn() {
            let rings = bell.rings
            switch next(preferringNew: false) {
            case .none: return
            case .later(let wait): guard await rest(wait, since: rings) else { return }
            case .job(let job):
                guard case .away(let job, let wait) = await attempt(job) else { continue }
                put(back: job)
                await sitOut(wait, server(of: job.key), since: rings)
            }
        }
    }

    private func mayGoOn() async -> Bool {
        if outage.isClosed { await idly { await outage.pass() } }
        await passGates()
        return isToGoOn
    }

    /// Waits for what no background session waits for; only where there is something to wait for, since it says that all
    /// else is done.
    private func idly<R>(_ wait: () async -> R) async -> R {
        background?.end()
        defer { background?.begin() }
        return await wait()
    }

    private var gates: [PauseGate] { [cache.suspension, gate, network] }

    /// Whether the cache is suspended, it is paused, or the network may not be used.
    private var isHeldUp: Bool { gates.contains(where: \.isClosed) }

    /// Waits while that is so.
    private func passGates() async {
        // One may be closed while another is waited for.
        while !Task.isCancelled, let closed = gates.first(where: \.isClosed) { await idly { await closed.pass() } }
    }

    private var isToGoOn: Bool {
        guard !Task.isCancelled else { return false }
        return state.withLock { $0.report.stoppedBy == nil && !$0.isOutOfBudget(options) }
    }

    /// The next tile to try.
    ///
    /// Tiles whose back-off is over come first, so that one that always fails is found out early; while the server is
    /// away, new ones come first, so that no single tile decides whether it is back.
    private func next(preferringNew: Bool) -> Next {
        if !preferringNew, case .job(let job) = nextDeferred() { return .job(job) }
        if state.withLock({ $0.deferred.count < Self.mostDeferred }), let key = left.withLock({ $0.next() }) {
            return .job(Job(key: key))
        }
        return nextDeferred()
    }

    private func nextDeferred() -> Next {
        let now = cache.clock.ticks()
        return state.withLock { state in
            var soonest = UInt64.max
            for index in state.deferred.indices {
                let until = wait(for: state.deferred[index].key)?.until ?? 0
                if until <= now { return .job(state.deferred.remove(at: index)) }
                soonest = min(soonest, until)
            }
            return state.deferred.isEmpty ? .none : .later(.nanoseconds(Int64(clamping: soonest - now)))
        }
    }

    private func put(back job: Job) { state.withLock { $0.deferred.append(job) } }

    // MARK: A server that is away

    /// Waits until the server answers again: this worker asks now and then, the others wait for it.
    ///
    /// - Parameters:
    ///   - pause: For how long nothing would be sent; `nil` if that is not known.
    ///   - server: The server.
    ///   - rings: How often ``bell`` had rung before that was found out.
    private func sitOut(_ pause: Duration?, _ server: String, since rings: UInt64) async {
        // Another worker asks already.
        guard outage.close() else { return }
        defer { outage.open() }
        if pause == nil, await controlAnswers(server) { return }
        setAway(true)
        defer { setAway(false) }
        let answers = state.withLock { $0.answers }
        var wait = pause
        var inHand: Job?
        defer { if let inHand { put(back: inHand) } }
        var failures = 0
        var rings = rings
        while true {
            if let wait { guard hasPatience(for: wait), await rest(wait, since: rings) else { return } }
            rings = bell.rings
            await passGates()
            // An answer to one of the others, whose request was under way, will do.
            guard isToGoOn, state.withLock({ $0.answers }) == answers else { return }
            let job: Job
            if let kept = inHand {
                job = kept
                inHand = nil
            } else {
                if wait != nil, await controlAnswers(server) { return }
                switch next(preferringNew: true) {
                case .none: return
                case .later(let left):
                    wait = left
                    continue
                case .job(let found): job = found
                }
            }
            switch await attempt(job) {
            case .unchanged, .postponed: wait = nil
            case .answered, .over: return
            case .away(let job, let left?):
                // Nothing was sent.
                inHand = job
                wait = left
            case .away(let job, nil):
                put(back: job)
                failures += 1
                let backoff = cache.configuration.backoff
                wait = .nanoseconds(
                    Int64(clamping: backoff.nanoseconds(failures: failures, random: cache.clock.random())))
            }
        }
    }

    /// Whether the server answers about a tile that it gave before, when there is no new one to tell by.
    ///
    /// Without that, a few tiles that a server never gives could not be told from a server that is away, once all others
    /// have come.
    private func controlAnswers(_ server: String) async -> Bool {
        guard !hasNew, let key = state.withLock({ $0.servers[server]?.control }) else { return false }
        await passGates()
        guard isToGoOn, hasPatience(for: .zero) else { return false }
        do { guard try await ask(key, beforeSending: {}) != nil else { return false } } catch { return false }
        // The patience runs on until a tile is settled: what never is must not be waited for without end.
        state.withLock { state in
            state.answers += 1
            state.servers[server, default: Server()].answers += 1
            state.servers[server, default: Server()].controls += 1
            state.obstacle = nil
        }
        return true
    }

    /// Whether there is a tile that was not tried yet, and room for it should it fail.
    private var hasNew: Bool {
        guard state.withLock({ $0.deferred.count < Self.mostDeferred }) else { return false }
        return left.withLock { left in
            var rest = left
            return rest.next() != nil
        }
    }

    private func setAway(_ isAway: Bool) {
        count(always: true) { state in
            state.isAway = isAway
            if !isAway { state.obstacle = nil }
            state.noteWaiting()
        }
    }

    // MARK: The network

    /// Waits while the network may not be used, and tries again when it is back, until the task is cancelled.
    func followNetwork() async {
        var policy = NetworkPolicy(options.networks)
        for await conditions in cache.configuration.network.conditions() {
            switch policy.on(conditions) {
            case .wait(let objection):
                let reason = TileCacheError(objection, source: source.name)
                guard options.waitsForNetwork else {
                    stop(reason)
                    network.open()
                    return
                }
                network.close()
                setNetworkObstacle(reason)
            case .goOn(let triesAgain):
                if triesAgain { cache.health.forgetUnreachable() }
                mayUseNetwork()
                if triesAgain { bell.ring() }
            }
        }
        // A monitor that says nothing more keeps nobody from anything.
        if !Task.isCancelled { mayUseNetwork() }
    }

    private func mayUseNetwork() {
        if state.withLock({ $0.networkObstacle != nil }) {
            // The time that it has waited for the network costs no patience.
            forgetWait()
            setNetworkObstacle(nil)
        }
        network.open()
    }

    private func setNetworkObstacle(_ reason: TileCacheError?) {
        count(always: true) { state in
            state.networkObstacle = reason
            state.noteWaiting()
        }
    }

    /// Whether the server may be waited for for so long; ends the download if not.
    private func hasPatience(for wait: Duration) -> Bool {
        let now = cache.clock.ticks()
        let reason = state.withLock { state -> TileCacheError? in
            let patience = state.answers == 0 ? options.firstPatience ?? options.patience : options.patience
            let since = now > state.lastAnswer ? now - state.lastAnswer : 0
            guard since &+ wait.nanoseconds > patience.nanoseconds else { return nil }
            return state.obstacle
                ?? TileCacheError(.noAnswer, "\(source.name): its server failed lately and is left alone for now")
        }
        if let reason { stop(reason) }
        return reason == nil
    }

    /// Sleeps, but not for long at a time, and not on when the network is back.
    ///
    /// - Parameter rings: How often ``bell`` had rung when it was found that there is something to wait for.
    /// - Returns: `false` if the task was cancelled.
    private func rest(_ wait: Duration, since rings: UInt64) async -> Bool {
        let wait = min(max(wait, .milliseconds(10)), Self.longestSleep)
        return await idly {
            do { try await bell.sleep(wait, since: rings, cache.clock) } catch { return false }
            return true
        }
    }

    // MARK: One tile

    private func attempt(_ job: Job) async -> TryEnd {
        let key = job.key
        let server = server(of: key)
        var job = job
        let suspensions = cache.suspension.closings
        do {
            if try await isSettled(key) {
                options.onTile?(key, .unchanged)
                count { state in
                    state.report.progress.unchanged += 1
                    if state.servers[server]?.control == nil { state.servers[server, default: Server()].control = key }
                }
                return .unchanged
            }
            let brought = try await ask(key) {
                guard job.answers == nil else { return }
                (job.answers, job.controls) = state.withLock { $0.heard(of: server) }
            }
            guard let brought else {
                put(back: job)
                return .over
            }
            if (brought.notStored as? StoreError)?.code == .locked, cache.suspension.closings != suspensions {
                // It came when nothing could be stored, and is no fault of anybody's.
                let now = cache.clock.ticks()
                count { $0.noteAnswer(of: server, now) }
                put(back: job)
                return .answered
            }
            settle(key, brought)
            if isTimeToLookForRegion { await lookForRegion() }
            return .answered
        } catch {
            return failed(job, error)
        }
    }

    /// So many answers go by until it is looked again whether the region is still there.
    static let answersPerLook = 256

    private var isTimeToLookForRegion: Bool {
        plan != nil
            && state.withLock { state in
                guard state.answers >= state.nextLook else { return false }
                state.nextLook = state.answers + Self.answersPerLook
                return true
            }
    }

    /// What an answer settles.
    private struct Brought {
        let outcome: TileOutcome
        /// Why it is not stored.
        let notStored: (any Error)?

        init(_ tile: CachedTile) { (outcome, notStored) = (TileOutcome(of: tile), tile.notStored) }

        init(_ response: CachedResponse, of key: TileKey) {
            (outcome, notStored) = (TileOutcome(of: response, key), response.notStored)
        }
    }

    /// The source of a tile: a styled map has several.
    func source(of key: TileKey) -> TileSource { contents?.sources[key.source] ?? source }

    private func isSettled(_ key: TileKey) async throws -> Bool {
        guard let url = contents?.urls[key] else {
            return try await cache.isSettled(key, of: source(of: key), ifFresh: !options.revalidatesFresh, since: since)
        }
        guard let resource = cache.resource(url, options, RequestMeter()) else { return false }
        // A newer style could name what was not looked for: the one that was read is kept, whatever its age.
        let since = contents?.documents[key] != nil ? .distantPast : since
        return try await cache.needsNoRequest(resource, ifFresh: !options.revalidatesFresh, since: since)
    }

    /// What tells the server of a tile, or of a resource, from others: a styled map may have many.
    private func server(of key: TileKey) -> String {
        contents?.host(of: key) ?? "source \(key.source)"
    }

    /// For how long a tile, or a resource, is left alone that has failed.
    private func wait(for key: TileKey) -> OriginHealth.Wait? {
        guard let url = contents?.urls[key] else { return cache.wait(for: key) }
        return ResourceKeyMaker(store: cache.store).resource(url).flatMap { cache.health.wait(for: $0.question) }
    }

    /// Asks for a tile within the budgets, at the download's rate.
    ///
    /// - Parameter beforeSending: Called when its turn has come.
    /// - Returns: `nil` if a budget is used up.
    private func ask(_ key: TileKey, beforeSending: () -> Void) async throws -> Brought? {
        while let limiter {
            try await limiter.wait()
            // It may have been paused meanwhile, or the network have become another one. Then it waits for another turn.
            guard isHeldUp else { break }
            await passGates()
            guard isToGoOn else { return nil }
        }
        // Reserved before it is sent, so that several at a time stay within the budget.
        let mayAsk = state.withLock { state -> Bool in
            guard !state.isOutOfBudget(options) else { return false }
            state.requests += 1
            return true
        }
        guard mayAsk else { return nil }
        let meter = RequestMeter()
        defer {
            let cost = meter.cost
            state.withLock { state in
                state.requests += cost.requests - 1
                state.report.progress.bytes += cost.bytes
            }
        }
        beforeSending()
        guard let contents, let url = contents.urls[key] else {
            let checkedSince = options.revalidatesFresh ? since ?? startedAt : nil
            return Brought(try await cache.update(source(of: key), key, options, meter, background, checkedSince))
        }
        guard let resource = cache.resource(url, options, meter) else {
            throw TileCacheError(.invalidRequest, "\(key): its URL cannot be asked for", key: key)
        }
        return Brought(try await cache.update(resource), of: key)
    }

    private func settle(_ key: TileKey, _ brought: Brought) {
        let (outcome, server) = (brought.outcome, server(of: key))
        // Before its progress is told.
        options.onTile?(key, outcome)
        count { state in
            state.noteAnswer(of: server, cache.clock.ticks())
            state.servers[server, default: Server()].control = key
            if brought.notStored == nil { state.notStoredInARow = 0 }
            switch outcome {
            case .fetched: state.report.progress.fetched += 1
            case .revalidated: state.report.progress.revalidated += 1
            case .unchanged: state.report.progress.unchanged += 1
            case .absent:
                state.report.progress.absent += 1
                // Nothing is missing: there is no such tile, though that cannot be remembered.
                if brought.notStored != nil { state.absentAndNotStored += 1 }
            case .failed(let error):
                state.fail(key, error)
                state.notStoredInARow += 1
                // Whatever else came would be lost too; unless the server forbids it for some tiles only.
                let isForAll = !(brought.notStored is TileCacheError) || !state.hasStored
                if isForAll, state.notStoredInARow >= Self.notStoredLimit, state.report.stoppedBy == nil {
                    state.report.stoppedBy = error
                }
            }
        }
    }

    private func failed(_ job: Job, _ error: any Error) -> TryEnd {
        if Task.isCancelled { return .over }
        if cache.isClosed || (error as? StoreError)?.code == .closed {
            end(.closed)
            return .over
        }
        let (key, server, now) = (job.key, server(of: job.key), cache.clock.ticks())
        let failure = error as? FetchFailure
        let told =
            failure?.error ?? error as? TileCacheError
            ?? TileCacheError(.noAnswer, "\(key): \(error)", key: key, cause: error)
        // The hook would fail for every tile.
        if told.code == .hookFailed {
            stop(told)
            return .over
        }
        let blame = failure.map(Blame.init) ?? .tile
        var job = job
        let hasFailed = count { state -> Bool in
            let heard = state.heard(of: server)
            switch blame {
            case .server:
                // Where it gives a tile that it gave before, it is not away; while it asks for a pause, it may be.
                let isPause = told.code == .waiting || failure?.retryAfter != nil
                if !isPause, heard.controls > job.controls { job.tries += 1 }
                // Nor is it where it always asks for one for this tile, and answers about others between.
                if told.code != .waiting, isPause, heard.answers > job.answers ?? 0 { job.pauses += 1 }
                if job.pauses >= Self.mostPauses { job.tries = options.attempts }
            case .unclear:
                // Counts only if other tiles of it came since: else the network is away, or the server.
                if heard.answers > job.answers ?? 0 { job.tries += 1 }
            case .tile:
                state.noteAnswer(of: server, now)
                job.tries = failure?.mayPass == true ? job.tries + 1 : options.attempts
            }
            (job.answers, job.controls) = state.heard(of: server)
            if told.code != .waiting || state.obstacle == nil, blame != .tile { state.obstacle = told }
            // One who only heard that the host is left alone may have ended the download before the one who knows why.
            if told.code != .waiting, blame != .tile, state.report.stoppedBy?.code == .waiting {
                state.report.stoppedBy = told
            }
            guard job.tries >= options.attempts else { return false }
            state.lastAnswer = now
            state.fail(key, told)
            // Before its progress is told.
            options.onTile?(key, .failed(told))
            if state.report.progress.failed >= Self.refusalLimit, !state.hasStored, state.report.stoppedBy == nil {
                state.report.stoppedBy = told
            }
            return true
        }
        if blame == .tile {
            if !hasFailed { put(back: job) }
            return .answered
        }
        if hasFailed { return .postponed }
        guard told.code == .waiting else { return .away(job, wait: nil) }
        if wait(for: key) != nil {
            put(back: job)
            return .postponed
        }
        return .away(job, wait: told.retryAfter ?? .seconds(1))
    }

    @discardableResult
    private func count<R>(always: Bool = false, _ change: (inout State) -> R) -> R {
        let now = cache.clock.ticks()
        return state.withLock { state in
            let result = change(&state)
            // Waking a watcher costs more than some tiles do; nobody sees more than fifty states a second.
            guard always || now &- state.lastNews >= 20_000_000 else { return result }
            state.lastNews = now
            for watcher in state.watchers.values { watcher.yield(state.report.progress) }
            return result
        }
    }
}

extension TileDownload.State {
    fileprivate mutating func noteWaiting() { report.progress.isWaiting = isAway || networkObstacle != nil }

    /// The server said something about a tile.
    fileprivate mutating func noteAnswer(of server: String, _ now: UInt64) {
        answers += 1
        servers[server, default: TileDownload.Server()].answers += 1
        lastAnswer = now
        obstacle = nil
    }

    /// How often a server has answered, and how often about a tile that it gave before.
    fileprivate func heard(of server: String) -> (answers: Int, controls: Int) {
        servers[server].map { ($0.answers, $0.controls) } ?? (0, 0)
    }

    /// Whether the server lets any of the tiles be stored.
    fileprivate var hasStored: Bool {
        let progress = report.progress
        return progress.fetched + progress.revalidated + progress.unchanged + progress.absent > absentAndNotStored
    }

    /// A tile cannot be had.
    fileprivate mutating func fail(_ key: TileKey, _ error: TileCacheError) {
        report.progress.failed += 1
        if report.failures.count < DownloadReport.failureLimit {
            report.failures.append(TileFailure(key: key, error: error))
        }
        let kind = TileDownload.ReasonKind(code: error.code, status: error.status)
        reasons[kind, default: DownloadShortfall(tiles: 0, reason: error)].tiles += 1
    }
}

extension TileCache {
    /// Whether a tile needs no request: its entry is fresh or was stored since a time, and its blob's file is there.
    fileprivate func isSettled(
        _ key: TileKey, of source: TileSource, ifFresh: Bool, since: Timestamp?
    ) async throws -> Bool {
        guard ifFresh || since != nil else { return false }
        if let remote = source.remote {
            return try await pool.run { try remote.isSettled(key, since: ifFresh ? nil : since, in: self) }
        }
        let (store, now) = (self.store, clock.now())
        let isSettled = { @Sendable (metadata: TileMetadata) -> Bool in
            if let since, metadata.storedAt >= since, metadata.storedAt <= now { return true }
            return ifFresh && metadata.isFresh(at: now)
        }
        do {
            // What the tables say needs no waiting; only a look at the file does.
            guard let entry = try store.entry(for: key), isSettled(entry.metadata) else { return false }
            if entry.blob == nil { return true }
            return try await pool.run {
                guard let entry = try store.entryWithBlob(key) else { return false }
                return isSettled(entry.metadata)
            }
        } catch let error as StoreError where error.code != .closed {
            // What cannot be read is fetched again.
            configuration.onEvent?(.notRead(key, error))
            return false
        }
    }

    /// Asks the server for a tile, by a conditional request if there is something to ask about.
    ///
    /// - Throws: ``FetchFailure`` and what else ``fetch(_:_:)`` throws; never a stale tile instead.
    func update(
        _ source: TileSource, _ key: TileKey, _ options: DownloadOptions, _ meter: RequestMeter,
        _ background: BackgroundTransport? = nil, _ checkedSince: Timestamp? = nil
    ) async throws -> CachedTile {
        // Trying again is the download's own affair: it can wait longer than somebody who looks at a map.
        var source = source
        source.attempts = 1
        var order = FetchOrder(source: source, key: key, mode: .serverThenCache, isBulk: options.isBulk)
        order.networks = options.networks
        order.meter = meter
        order.background = background
        order.beforeStoring = options.beforeStoring
        if let remote = source.remote {
            // Its tiles never change within a version; whether there is another one is asked as seldom as for a look at the map, and
            // once where all is to be asked for anew.
            (order.mode, order.isStrict, order.checkedSince) = (.standard, true, checkedSince)
            guard let tile = try await remote.tile(PartLoader(self, order, options.priority)) else {
                throw TileCacheError(.noAnswer, "\(key): there is no answer", key: key)
            }
            return tile
        }
        let stored: StoredTile?
        do { stored = try await read(key) } catch let error as StoreError where error.code != .closed {
            configuration.onEvent?(.notRead(key, error))
            stored = nil
        }
        order.stored = stored
        return try await flights.value(
            for: order.flight, priority: options.priority, terms: FetchTerms(networks: options.networks)
        ) { [order] ticket in
            try await self.fetch(order, ticket)
        }
    }
}

extension TileMetadata {
    /// Whether the tile may be used without asking.
    fileprivate func isFresh(at now: Timestamp) -> Bool { !isStale(at: now) && !response.noCache }
}
