package import CacheEngine
package import HTTPCaching
package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// Tiles that lie in a file at a server, or among the files of a published set: who has them knows what to ask for.
package protocol TilesAtServer: AnyObject, Sendable {
    /// A tile as its server has it.
    ///
    /// - Returns: `nil` only where nobody may be asked and nothing is there.
    /// - Throws: ``FetchFailure``; ``TileCacheError`` for what nobody was asked for; `CancellationError`; `StoreError` if the cache
    ///   fails.
    func tile(_ loader: PartLoader) async throws -> CachedTile?

    /// What can be told of a tile by what is in memory and in the tables.
    func state(of key: TileKey, in cache: TileCache) throws -> TileAtServer

    /// Whether its tiles lie under their own keys, so that a region can pin them.
    var isPinnable: Bool { get }

    /// Whether a tile, or that there is none, is in the cache with all that leads to it. Reads files.
    func isThere(_ key: TileKey, in cache: TileCache) throws -> Bool

    /// When the server was asked last for what says which version there is; `nil` if it never was.
    var checkedAt: Timestamp? { get }
}

extension TilesAtServer {
    /// Whether a tile needs no request: it is in the cache, and of the version that counts.
    ///
    /// - Parameter since: When the version has to have been asked for, if that is wanted.
    func isSettled(_ key: TileKey, since: Timestamp?, in cache: TileCache) throws -> Bool {
        if let since {
            guard let checked = checkedAt, checked >= since else { return false }
        }
        switch try state(of: key, in: cache) {
        case .entry(_, isStale: false), .absent(isStale: false): return try isThere(key, in: cache)
        case .entry, .absent, .unknown: return false
        }
    }
}

/// What is known of a tile at a server.
package enum TileAtServer: Sendable {
    /// Nothing, or nothing is there of it.
    case unknown
    /// There is no such tile.
    case absent(isStale: Bool)
    /// Its bytes are an entry's.
    case entry(TileEntry, isStale: Bool)
}

/// A part of a file at a server, or a file of a set.
package struct LoadedPart: Sendable {
    package let data: Data
    /// What is stored with it.
    package let metadata: TileMetadata
    /// The name of the bytes.
    package let blob: BlobDigest
    /// Where this copy came from.
    package let origin: TileOrigin
    /// Why it is not in the cache, if it was to be.
    package let notStored: (any Error)?

    fileprivate init?(_ tile: CachedTile) {
        guard let data = tile.data, let note = tile.ofPart else { return nil }
        self.data = data
        metadata = note.metadata
        blob = note.blob ?? data.withUnsafeBytes { BlobDigest(hashing: $0) }
        (origin, notStored) = (tile.origin, tile.notStored)
    }
}

/// One question for a tile that lies in a file at a server: has the parts that it leads to read or fetched.
package struct PartLoader: Sendable {
    private let cache: TileCache
    private var order: FetchOrder
    /// How urgent it is.
    package let priority: FetchPriority
    /// Whether a tile that is not here is told: once for each question.
    private var countsMisses = true
    /// See ``ArchivePart/hasStandIn``.
    private var hasStandIn: (@Sendable () -> Bool)?

    init(_ cache: TileCache, _ order: FetchOrder, _ priority: FetchPriority) {
        (self.cache, self.order, self.priority) = (cache, order, priority)
    }

    /// The tile that is asked for.
    package var key: TileKey { order.key }
    /// Its source.
    package var source: TileSource { order.source }
    /// Whether cache or server comes first.
    package var mode: LoadMode { order.mode }
    /// Whether it is for a download: then it asks by other terms than who looks at a map.
    package var isBulk: Bool { order.isBulk }
    /// What tells the cache from all others of the process, also from those that are gone.
    package var cacheNumber: UInt64 { cache.number }
    /// The time by the cache's clock.
    package var now: HTTPDate { HTTPDate(cache.clock.now()) }

    /// The place of the tile.
    ///
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/outOfBounds`` if the source has none there.
    package func address() throws -> TileAddress {
        do { return try cache.address(of: order) } catch let failure as FetchFailure { throw failure.error }
    }

    /// Runs what takes its time on a thread that has it.
    package func compute<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
        try await cache.onFileThread(body)
    }

    /// A part, from the cache or its server, as the mode says.
    ///
    /// What never changes is not asked for where it is there, whatever the mode but ``LoadMode/serverOnly``.
    /// - Parameter reloads: Whether the server is asked whatever is stored.
    /// - Returns: `nil` only where nobody may be asked and nothing is there.
    /// - Throws: ``FetchFailure`` if it cannot be had; `CancellationError`; what the store throws.
    package func part(_ part: ArchivePart, reloads: Bool = false) async throws -> LoadedPart? {
        var (order, part) = (order, part)
        if part.question.isFixed { part.hasStandIn = hasStandIn }
        (order.key, order.part, order.reloads) = (part.key, part, reloads)
        // As fresh as it is: one of another version is not.
        if part.question.isFixed, order.mode == .serverThenCache { order.mode = .standard }
        // Only the tile's own bytes are worth the system's time, which may come in hours.
        if part.key != self.order.key { order.background = nil }
        guard let found = try await load(&order, part) else { return nil }
        guard let loaded = LoadedPart(found) else {
            throw FetchFailure(.badBody, "there are no bytes of it", key: part.key)
        }
        return loaded
    }

    /// The same, where nobody may be asked.
    package var onlyIfCached: PartLoader {
        var loader = self
        loader.order.mode = .cacheOnly
        loader.countsMisses = false
        return loader
    }

    /// The same, where something may be at hand that stands in for what never changes: then that is asked for once.
    package func standingIn(_ hasStandIn: (@Sendable () -> Bool)?) -> PartLoader {
        var loader = self
        loader.hasStandIn = hasStandIn
        return loader
    }

    /// Whether something that is older than a part that is here may stand in for what that leads to.
    ///
    /// - Parameters:
    ///   - replaced: When the part took its place.
    ///   - failure: Why what the part leads to cannot be had; `nil` where nobody may be asked for it.
    package func standsIn(
        for part: LoadedPart, replaced: Timestamp, after failure: FetchFailure?
    ) -> StaleReason? {
        guard let failure, order.mode != .cacheOnly else { return order.mode == .cacheOnly ? .offline : nil }
        return standsIn(for: part, replaced, failure.failure)
    }

    /// Whether it could where the server does not answer.
    package func mayStandIn(for part: LoadedPart, replaced: Timestamp) -> Bool {
        standsIn(for: part, replaced, .unreachable) != nil
    }

    private func standsIn(for part: LoadedPart, _ replaced: Timestamp, _ failure: OriginFailure) -> StaleReason? {
        let old = Candidate(key: order.key, part.metadata, .none, nil).replaced(at: now, since: replaced)
        return reason(old, isPinned: false, after: failure)
    }

    /// Why what another version has taken the place of may be answered, if it may.
    private func reason(_ old: Candidate, isPinned: Bool, after failure: OriginFailure) -> StaleReason? {
        guard order.mode != .serverOnly, !order.isStrict else { return nil }
        let decision = LoadDecision.after(
            failure, order.mode, old.response, isPinned: isPinned, cache.use(source), at: now)
        guard case .serve(let reason) = decision else { return nil }
        return reason ?? .error
    }

    /// Notes the use of a part that was in memory, so that eviction does not take it before what it leads to.
    ///
    /// - Returns: Whether it is there.
    package func touch(_ key: TileKey) throws -> Bool {
        guard let entry = try cache.store.entry(for: key) else { return false }
        try cache.store.touch(key, EntryVersion(entry))
        return true
    }

    /// Whether there is an entry; what cannot be read counts as none.
    package func hasEntry(_ key: TileKey) -> Bool { (try? cache.store.entry(for: key)) != nil }

    /// The tile's own entry, if it is of a version of its file; no look at the server.
    package func storedPart(of version: String) async throws -> LoadedPart? {
        guard order.mode != .serverOnly, let (stored, _) = try await self.stored(order.key),
            stored.entry.metadata.fileMark == version
        else { return nil }
        cache.tell(.hit(order.key, isStale: false))
        return LoadedPart(CachedTile(part: stored, origin: stored.origin == .memory ? .memory : .disk))
    }

    /// The tile's own entry, of whatever version, where nobody may be asked for another one.
    package func storedTile() async throws -> CachedTile? {
        guard order.mode == .cacheOnly, let (stored, _) = try await self.stored(order.key) else { return nil }
        return replaced(stored, .offline)
    }

    /// A tile of whatever version, whose lifetime is over.
    private func replaced(_ stored: StoredTile, _ reason: StaleReason) -> CachedTile {
        let entry = Candidate(stored).replaced(at: now).entry
        return CachedTile(StoredTile(entry: entry, data: stored.data, origin: stored.origin), origin: .stale(reason))
    }

    /// The same where the server has failed, if the rules allow that.
    package func storedTile(after failure: FetchFailure) async throws -> CachedTile? {
        guard order.mode != .serverOnly, let (stored, _) = try await self.stored(order.key),
            let reason = reason(
                Candidate(stored).replaced(at: now), isPinned: stored.entry.isPinned, after: failure.failure)
        else { return nil }
        return replaced(stored, reason)
    }

    /// What is stored under a key, or held in memory because it could not be stored.
    private func stored(_ key: TileKey) async throws -> (tile: StoredTile, isHeld: Bool)? {
        var stored: StoredTile?
        do { stored = try await cache.read(key) } catch let error as StoreError {
            guard order.mode != .cacheOnly, error.code != .closed else { throw error }
            cache.configuration.onEvent?(.notRead(key, error))
        }
        // A download asks again for what could not be stored.
        if !order.isStrict, let held = cache.held.tile(key),
            held.entry.metadata.storedAt >= stored?.entry.metadata.storedAt ?? .distantPast
        {
            return (held, true)
        }
        return stored.map { ($0, false) }
    }

    private func load(_ order: inout FetchOrder, _ part: ArchivePart) async throws -> CachedTile? {
        if order.mode == .serverOnly { return try await cache.answer(to: order, priority) }
        if let (stored, isHeld) = try await self.stored(order.key) {
            (order.stored, order.isHeld) = (cache.judged(part)(stored), isHeld)
        }
        if order.isStrict, !part.question.isFixed, let stored = order.stored, !suffices(stored) {
            order.mode = .serverThenCache
        }
        guard let stored = order.stored, !order.reloads || order.mode == .cacheOnly else {
            if order.isTile, countsMisses { cache.tell(.miss(order.key)) }
            return order.mode == .cacheOnly ? nil : try await cache.answer(to: order, priority)
        }
        return try await cache.outcome(of: order, stored, priority)
    }

    /// Whether what says which version there is will do for a download as it is stored.
    private func suffices(_ stored: StoredTile) -> Bool {
        if let since = order.checkedSince, stored.entry.metadata.storedAt < since { return false }
        if case .serve(nil) = cache.decision(.standard, stored.entry) { return true }
        return false
    }
}

extension TileCache {
    /// How what is stored counts for a part; as it is for a tile.
    func judged(_ part: ArchivePart?) -> (StoredTile) -> StoredTile? {
        let now = HTTPDate(clock.now())
        return { stored in
            guard let part else { return stored }
            return part.judged(Candidate(stored), at: now).map {
                StoredTile(entry: $0.entry, data: stored.data, origin: stored.origin)
            }
        }
    }
}
