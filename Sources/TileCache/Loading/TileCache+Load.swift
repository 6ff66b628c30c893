import CacheEngine
import HTTPCaching
public import TileStore

extension TileCache {
    /// The tile of a place.
    ///
    /// From memory, disk or the server, as the mode says; ``CachedTile/origin`` tells. However many ask for one tile at
    /// once, one request is sent. A caller whose task is cancelled leaves; the last one to leave cancels the request.
    /// - Parameters:
    ///   - source: Where the tile comes from.
    ///   - z: The zoom.
    ///   - x: The column from the west.
    ///   - y: The row from the north.
    ///   - scale: Pixels for each point; 1 where the source's template has no placeholder for it.
    ///   - mode: Whether cache or server comes first.
    ///   - priority: How urgent it is if it has to be fetched.
    /// - Returns: The tile, or the knowledge that it does not exist (``CachedTile/isAbsent``). `nil` only with
    ///   `LoadMode.cacheOnly`, for what is not there. A source of ``LocalTiles`` answers for itself in every mode.
    /// - Throws: ``TileCacheError`` if there is no way to get it; `CancellationError`; `StoreError` if the cache fails.
    public func tile(
        _ source: TileSource, z: Int, x: Int, y: Int, scale: Int = 1, mode: LoadMode = .standard,
        priority: FetchPriority = .visible
    ) async throws -> CachedTile? {
        try await tile(source, source.key(z: z, x: x, y: y, scale: scale), mode: mode, priority: priority)
    }

    /// The tile under a key, which ``TileSource/key(z:x:y:scale:)`` gave.
    public func tile(
        _ source: TileSource, _ key: TileKey, mode: LoadMode = .standard, priority: FetchPriority = .visible
    ) async throws -> CachedTile? {
        if source.overzoom.levels > 0, source.overzoomDepth > 0 {
            return try await tileOrOverzoomed(source, key, mode, priority)
        }
        return try await exactTile(source, key, mode: mode, priority: priority)
    }

    /// The tile under a key, as the server has it.
    ///
    /// - Parameter isBulk: Whether hosts are left out whose terms forbid asking for more than somebody looks at.
    @inline(__always)
    func exactTile(
        _ source: TileSource, _ key: TileKey, mode: LoadMode, priority: FetchPriority, isBulk: Bool = false
    ) async throws -> CachedTile? {
        if let local = source.local { return try await read(local, FetchOrder(source: source, key: key, mode: mode)) }
        var order = FetchOrder(source: source, key: key, mode: mode, isBulk: isBulk)
        if let remote = source.remote {
            do { return try await remote.tile(PartLoader(self, order, priority)) } catch let failure as FetchFailure {
                // Its words name the part that could not be had.
                var error = failure.error
                error.key = key
                throw error
            }
        }
        if mode == .serverOnly { return try await ask(order, priority) }
        let stored: StoredTile?
        do { stored = try await read(key) } catch let error as StoreError {
            // A disk that cannot be read is no reason to show no map while there is a server.
            guard mode != .cacheOnly, error.code != .closed else { throw error }
            configuration.onEvent?(.notRead(key, error))
            stored = nil
        }
        guard let stored else {
            if let held = held.tile(key) {
                (order.stored, order.isHeld) = (held, true)
                return try await tile(order, held, priority)
            }
            tell(.miss(key))
            return mode == .cacheOnly ? nil : try await ask(order, priority)
        }
        // The common case, decided without a copy of anything.
        let metadata = stored.entry.metadata
        if mode == .standard, !metadata.isStale(at: clock.now()), !metadata.response.noCache {
            tell(.hit(key, isStale: false))
            return CachedTile(stored, origin: stored.origin == .memory ? .memory : .disk)
        }
        // What came since and could not be stored is the newer one.
        if let held = held.tile(key), held.entry.metadata.storedAt >= metadata.storedAt {
            (order.stored, order.isHeld) = (held, true)
            return try await tile(order, held, priority)
        }
        order.stored = stored
        return try await tile(order, stored, priority)
    }

    private func tile(
        _ order: FetchOrder, _ stored: StoredTile, _ priority: FetchPriority
    ) async throws -> CachedTile? {
        do { return try await outcome(of: order, stored, priority) } catch let failure as FetchFailure {
            throw failure.error
        }
    }

    /// What there is of a tile or of a part, or what its server says, as the mode of the order has it.
    ///
    /// - Parameter stored: What is stored of it, which is the order's.
    /// - Throws: ``FetchFailure`` if it cannot be had.
    func outcome(of order: FetchOrder, _ stored: StoredTile, _ priority: FetchPriority) async throws -> CachedTile? {
        let key = order.key
        func tell(_ event: TileCacheEvent) { if order.isTile { self.tell(event) } }
        switch decision(order.mode, stored.entry) {
        case .serve(let reason):
            tell(.hit(key, isStale: reason != nil))
            return order.tile(stored, origin: reason.map { .stale($0) } ?? origin(of: stored))
        case .serveAndRefresh:
            tell(.hit(key, isStale: true))
            refreshInBackground(order)
            return order.tile(stored, origin: .stale(.whileRevalidating))
        case .ask:
            tell(.miss(key))
            return try await answer(to: order, priority)
        case .nothing:
            tell(.miss(key))
            return nil
        }
    }

    /// What to do first with what is stored.
    func decision(_ mode: LoadMode, _ entry: TileEntry) -> LoadDecision {
        LoadDecision.first(mode, StoredFreshness(of: entry.metadata), at: HTTPDate(clock.now()))
    }

    private func origin(of stored: StoredTile) -> TileOrigin { stored.origin == .memory ? .memory : .disk }

    /// Reads without blocking the caller's thread: at once where that needs no waiting, else on a thread of our own.
    func read(_ key: TileKey) async throws -> StoredTile? {
        switch try store.readNow(key) {
        case .tile(let tile): return tile
        case .miss: return nil
        case .mustWait: break
        }
        let store = self.store
        return try await pool.run { try store.read(key) }
    }

    /// Asks the server; falls back on what is stored where the rules allow it.
    private func ask(_ order: FetchOrder, _ priority: FetchPriority) async throws -> CachedTile {
        do { return try await answer(to: order, priority) } catch let failure as FetchFailure { throw failure.error }
    }

    /// What the server says, or what is stored where the rules allow that instead.
    ///
    /// - Throws: ``FetchFailure`` if neither can be had.
    func answer(to order: FetchOrder, _ priority: FetchPriority) async throws -> CachedTile {
        let (source, key) = (order.source, order.key)
        // Where a download has asked already, it goes on by these terms.
        let terms = FetchTerms(
            attempts: source.attempts, timeout: source.timeout, isBulk: order.isBulk, networks: order.networks)
        do {
            return try await flights.value(for: order.flight, priority: priority, terms: terms) { ticket in
                try await self.fetch(order, ticket)
            }
        } catch let failure as FetchFailure {
            // Where its file is another one by now, who asked looks for that one first.
            guard let stored = order.stored, !order.isStrict, !failure.isOtherVersion else { throw failure }
            let decision = LoadDecision.after(
                failure.failure, order.mode, storedResponse(of: stored.entry.metadata),
                isPinned: stored.entry.isPinned, use(source), at: HTTPDate(clock.now()))
            guard case .serve(let reason) = decision else { throw failure }
            return order.tile(stored, origin: reason.map { .stale($0) } ?? origin(of: stored))
        } catch is CancellationError {
            // The caller's own task, or the whole cache being closed.
            if Task.isCancelled { throw CancellationError() }
            if isClosed {
                throw TileCacheError(.closed, "\(key): the cache was closed before the tile came", key: key)
            }
            throw TileCacheError(.cancelled, "\(key): the request was given up", key: key)
        }
    }

    /// Asks the server whether a stale tile still holds, while the stale one is being served.
    func refreshInBackground(_ order: FetchOrder) {
        var order = order
        order.mode = .standard
        let key = order.key
        // A refresh that failed is not tried, and not reported, again with every tile that is served meanwhile.
        guard wait(for: key) == nil else { return }
        flights.start(order.flight, priority: .refresh) { [order] ticket in
            do { return try await self.fetch(order, ticket) } catch {
                let told = (error as? FetchFailure)?.error ?? error
                if !(told is CancellationError), (told as? TileCacheError)?.code != .waiting {
                    self.configuration.onEvent?(.refreshFailed(key, told))
                }
                throw error
            }
        }
    }
}
