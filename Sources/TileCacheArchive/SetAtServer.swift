import CacheEngine
import HTTPCaching
import TileArchive
import TileCache
import TileSets
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The tiles of a published set at a server.
///
/// Its files are entries of the cache, as ``SetParts`` says. Here is only what was made of them, so that nothing is made twice.
final class SetAtServer: TilesAtServer {
    private struct State {
        /// `set.json` as it was read last.
        var known: SetSteps.Known?
        /// The version that was named, once it is known: it may be kept here for longer than `set.json` names it.
        var chosen: SetVersion?
        /// The lists that were used last; of the largest that is possible, one takes 6 MB.
        var listings = RecentlyUsed<BlobDigest, SetListing>(mostWeight: 4, mostCount: 4)
    }

    /// A list whose bytes are made a value: once for all who wait in a cache, which may be closed.
    private struct Reading: Hashable, Sendable {
        let cache: UInt64
        let root: BlobDigest
        let name: BlobDigest
    }

    private let parts: SetParts
    /// The first digits of the version's root, if it is not to be the latest one.
    private let digits: String?
    private let state: Locked<State>
    private let uses = ListUses()
    private let listings = SingleFlight<Reading, SetListing>()
    private let chunks = SingleFlight<Reading, [SetTile]>()

    init(_ parts: SetParts, version: String?) {
        (self.parts, digits) = (parts, version)
        state = Locked(State(chosen: version.flatMap { SetVersion(allDigits: $0) }))
    }

    var isPinnable: Bool { false }

    // MARK: A tile

    func tile(_ loader: PartLoader) async throws -> CachedTile? {
        let address = try loader.address()
        let (known, chosen) = state.withLock { ($0.known, $0.chosen) }
        var way = SetSteps(to: address, version: digits, chosen: chosen, known: known)
        var opening: Opening?
        var failure: FetchFailure?
        while true {
            do {
                let loader = way.isFormer ? loader.onlyIfCached : loader.standingIn(standIn(way, opening?.part, loader))
                switch try await step(&way, &opening, loader) {
                case .more: continue
                case .end(let tile): return tile
                case .missing: break
                }
            } catch let new as FetchFailure {
                let isFirst = failure == nil
                failure = failure ?? new
                // Where a file is gone, the set was renewed, perhaps.
                if isFirst, new.isOtherVersion, retries(&way, loader) { continue }
            }
            // What was shown before is better than nothing, where it is here and the rules for stale tiles allow it.
            let part = opening?.part
            let turnsBack = way.turnsBack { version, replaced in
                guard let part, loader.hasEntry(parts.key(of: .root(version))),
                    let reason = loader.standsIn(for: part, replaced: replaced, after: failure)
                else {
                    return false
                }
                opening?.reason = reason
                return true
            }
            guard turnsBack else {
                if let failure { throw failure }
                return nil
            }
        }
    }

    /// `set.json`, and why something older than the version that it names is answered.
    private struct Opening {
        let part: LoadedPart
        var reason: StaleReason?
    }

    private enum Stepped {
        case more
        case end(CachedTile)
        /// Nobody may be asked, and something is not here.
        case missing
    }

    private func step(
        _ way: inout SetSteps, _ opening: inout Opening?, _ loader: PartLoader
    ) async throws -> Stepped {
        switch way.next(at: loader.now) {
        case .document(let reloads):
            guard let part = try await loader.part(parts.document, reloads: reloads) else { return .missing }
            let former = state.withLock { $0.known }
            let known = try await document(part, loader)
            opening = Opening(part: part)
            let isAnswer = part.origin == .network || part.origin == .revalidated
            guard way.take(known, after: former, mayAsk: loader.mode != .cacheOnly, isAnswer: isAnswer) else {
                return .more
            }
            state.withLock { $0.known = known }
        case .list(let version, let isRepeated):
            guard let listing = try await listing(version, isRepeated, loader) else { return .missing }
            if digits != nil { state.withLock { $0.chosen = version } }
            way.take(listing)
        case .chunk(let number, let listing, let isRepeated):
            guard let tiles = try await chunk(number, of: listing, isRepeated, loader) else { return .missing }
            way.take(tiles, as: number)
        case .file(let tile, let isRepeated):
            guard let part = try await file(of: tile, isRepeated, loader) else { return .missing }
            let notStored = try await keep(way, loader)
            return .end(answer(tile, part, opening, part.notStored ?? notStored, loader))
        case .absent:
            let notStored = try await keep(way, loader)
            return .end(answer(nil, nil, opening, notStored, loader))
        case .gone: return .missing
        case .noVersion:
            // It may be newer than the `set.json` that is here.
            if retries(&way, loader) { return .more }
            if let part = opening?.part, case .stale = part.origin, loader.mode != .cacheOnly {
                throw TileCacheError(
                    .noAnswer,
                    "source \(loader.source.name): the set's document cannot be read anew, and the one that is here has no version "
                        + "\(digits ?? "")", key: loader.key)
            }
            throw TileCacheError(
                .invalidSource,
                "source \(loader.source.name): the set has no version \(digits ?? ""), or more than one: give the first digits "
                    + "of a root that it keeps", key: loader.key)
        }
        return .more
    }

    /// Whether a tile of the former version may be here, for whoever cannot have one of the latest.
    private func standIn(
        _ way: SetSteps, _ opening: LoadedPart?, _ loader: PartLoader
    ) -> (@Sendable () -> Bool)? {
        guard let opening else { return nil }
        return way.standIn { [self] root, replaced, place in
            guard loader.mayStandIn(for: opening, replaced: replaced),
                let tile = state.withLock({ $0.listings.find(root) })?.known(at: place)
            else { return false }
            return loader.hasEntry(parts.file(of: tile, isRepeated: false).key)
        }
    }

    private func retries(_ way: inout SetSteps, _ loader: PartLoader) -> Bool {
        loader.mode != .cacheOnly
            && way.retries(latest: state.withLock { $0.known?.document.root }, at: loader.now)
    }

    /// Sees to it that the lists are in the cache as they are in memory.
    ///
    /// Who looks at a map does not wait for that; a download is not done before.
    /// - Returns: Why one is not stored that had to be.
    private func keep(_ way: SetSteps, _ loader: PartLoader) async throws -> (any Error)? {
        guard loader.mode != .serverOnly, loader.mode != .cacheOnly else { return nil }
        let missing = try uses.missing(
            on: way, of: parts, in: loader.cacheNumber, isCertain: loader.isBulk, at: loader.now
        ) { try loader.touch($0) }
        guard !missing.isEmpty else { return nil }
        if loader.isBulk {
            for list in missing {
                if let notStored = try await loader.part(parts.file(of: list))?.notStored { return notStored }
            }
            return nil
        }
        Task { [parts, uses] in
            for list in missing {
                // The tile is here without it: it is asked for again with the next one, unless it is left alone for a while.
                do { _ = try await loader.part(parts.file(of: list)) } catch { continue }
                // Nor is one that its server forbids to store asked for with each tile.
                uses.note(list, in: loader.cacheNumber, at: loader.now)
            }
        }
        return nil
    }

    private func file(of tile: SetTile, _ isRepeated: Bool, _ loader: PartLoader) async throws -> LoadedPart? {
        let limit = loader.source.bodyLimit
        guard tile.size <= limit else {
            throw FetchFailure(
                .badBody, "it has \(tile.size) bytes, more than the \(limit) that the source allows", key: loader.key)
        }
        guard let part = try await loader.part(parts.file(of: tile, isRepeated: isRepeated)) else { return nil }
        if let objection = loader.source.kind.objection(
            to: part.data, mediaType: tile.kind.type, contentEncoding: tile.kind.coding)
        {
            throw FetchFailure(.badBody, "it is \(objection)", key: loader.key)
        }
        return part
    }

    /// A tile, or that there is none.
    ///
    /// It is as fresh as a tile of this machine is: it was looked up in the list just now. Where `set.json` may be another one by now,
    /// its own freshness counts.
    private func answer(
        _ tile: SetTile?, _ part: LoadedPart?, _ opening: Opening?, _ notStored: (any Error)?, _ loader: PartLoader
    ) -> CachedTile {
        let now = Timestamp(seconds: loader.now.seconds)
        var (expires, origin) = (now.adding(seconds: 1), part?.origin ?? opening?.part.origin ?? .memory)
        if digits != nil {
            expires = now.adding(seconds: Self.immutableLifetime)
        } else if let reason = opening?.reason {
            (expires, origin) = (now, .stale(reason))
        } else if let opening = opening?.part, case .stale = opening.origin {
            (expires, origin) = (min(now, opening.metadata.expires), opening.origin)
        }
        let metadata = TileMetadata(
            response: ResponseFields(
                status: tile == nil ? 404 : 200, mediaType: tile?.kind.type, contentEncoding: tile?.kind.coding),
            etag: tile?.blob.entityTag, storedAt: now, expires: expires)
        var answer = CachedTile(key: loader.key, data: part?.data, metadata, origin: origin)
        answer.notStored = notStored ?? opening?.part.notStored
        return answer
    }

    /// How long one of a version, which never changes, is fresh: a year, as is usual.
    private static let immutableLifetime: Int64 = 31_536_000

    // MARK: Reading

    private func document(_ part: LoadedPart, _ loader: PartLoader) async throws -> SetSteps.Known {
        let (data, readAt) = (part.data, part.metadata.storedAt)
        if let same = state.withLock({ $0.known }), same.bytes == part.blob {
            return SetSteps.Known(same.document, part.blob, readAt: readAt)
        }
        let document = try await reading(loader, parts.document.key) { try SetParts.document(data) }
        return SetSteps.Known(document, part.blob, readAt: readAt)
    }

    private func listing(
        _ version: SetVersion, _ isRepeated: Bool, _ loader: PartLoader
    ) async throws -> SetListing? {
        if let known = state.withLock({ $0.listings.find(version.root) }) { return known }
        let part = parts.file(of: version, isRepeated: isRepeated)
        guard let data = try await loader.part(part)?.data else { return nil }
        let name = Reading(cache: loader.cacheNumber, root: version.root, name: version.root)
        return try await listings.value(for: name, priority: loader.priority) { _ in
            let listing = try await self.reading(loader, part.key) { SetListing(try version.list(data)) }
            self.state.withLock { $0.listings.insert(listing, listing.root, weight: 1) }
            return listing
        }
    }

    private func chunk(
        _ number: Int, of listing: SetListing, _ isRepeated: Bool, _ loader: PartLoader
    ) async throws -> [SetTile]? {
        if let known = listing.known(number) { return known }
        let part = parts.file(of: number, in: listing, isRepeated: isRepeated)
        guard let data = try await loader.part(part)?.data else { return nil }
        let name = Reading(cache: loader.cacheNumber, root: listing.root, name: listing.items[number].digest)
        return try await chunks.value(for: name, priority: loader.priority) { _ in
            let tiles = try await self.reading(loader, part.key) { try listing.chunk([UInt8](data), number: number) }
            listing.keep(tiles, as: number)
            return tiles
        }
    }

    /// Makes a value of a part's bytes, which takes its time.
    private func reading<Value: Sendable>(
        _ loader: PartLoader, _ key: TileKey, _ make: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        do { return try await loader.compute(make) } catch let error as SetError {
            throw FetchFailure(.badBody, error.message, key: key)
        }
    }

    // MARK: What is known

    func state(of key: TileKey, in cache: TileCache) throws -> TileAtServer {
        guard let tile = key.tile, let (_, listing) = followed else { return .unknown }
        let isStale = digits == nil && cache.now() >= freshUntil
        let place = SetKey(tile)
        var search = SetSearch(place, in: listing)
        switch search.next() {
        case .chunk: return .unknown
        case .tile(let tile) where tile.key.isAtPlace(of: place):
            let part = parts.file(of: tile, isRepeated: false)
            guard let entry = try cache.store.entry(for: part.key), entry.blob == tile.blob else { return .unknown }
            return .entry(entry, isStale: isStale)
        case .tile, .none: return .absent(isStale: isStale)
        }
    }

    /// The version that counts, and its list; `nil` if they are not in memory.
    private var followed: (SetVersion, SetListing)? {
        state.withLock { state in
            let version = state.chosen ?? state.known.flatMap { SetVersion(digits, of: $0.document) }
            return version.flatMap { version in state.listings.find(version.root).map { (version, $0) } }
        }
    }

    /// Until when `set.json` needs no look.
    private var freshUntil: Timestamp {
        checkedAt.map { $0.adding(seconds: parts.document.lifetime ?? 0) } ?? .distantPast
    }

    var checkedAt: Timestamp? { digits == nil ? state.withLock { $0.known?.readAt } : .distantFuture }

    func isThere(_ key: TileKey, in cache: TileCache) throws -> Bool {
        guard let tile = key.tile, let (version, listing) = followed,
            try cache.store.entry(for: parts.key(of: .root(version))) != nil
        else { return false }
        // All digits of a root need no `set.json`.
        if digits?.count != 64, try cache.store.entry(for: parts.document.key) == nil { return false }
        let place = SetKey(tile)
        var search = SetSearch(place, in: listing)
        while true {
            let step = search.next()
            guard
                try search.path.allSatisfy({ try cache.store.entry(for: parts.key(of: .chunk($0, of: listing))) != nil }
                )
            else { return false }
            switch step {
            case .tile(let tile) where tile.key.isAtPlace(of: place):
                let part = parts.file(of: tile, isRepeated: false)
                return try cache.store.entryWithBlob(part.key)?.blob == tile.blob
            case .tile, .none: return true
            case .chunk(let number):
                // They were put out of memory by others.
                guard let data = try cache.store.read(parts.key(of: .chunk(number, of: listing)))?.data,
                    case .success(let tiles) = Result(catching: { try listing.chunk([UInt8](data), number: number) })
                else { return false }
                listing.keep(tiles, as: number)
                search.take(tiles, as: number)
            }
        }
    }
}
