import CacheEngine
import HTTPCaching
import HTTPListener
import NIOCore
import TileArchive
import TileCache
import TileCacheArchive
import TileSets
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A published set at a server.
///
/// Its files are entries, as ``SetParts`` says. Here is only what was made of them, so that nothing is made twice.
final class RemoteSet: RemoteTiles {
    fileprivate struct State {
        /// `set.json` as it was read last.
        var known: SetSteps.Known?
        /// The lists that were used last; of the largest that is possible, one takes 6 MB.
        var listings = RecentlyUsed<BlobDigest, SetListing>(mostWeight: 8, mostCount: 8)
    }

    private let given: SourceConfiguration
    /// Its files.
    let parts: SetParts
    private let state = Locked(State())
    let uses = ListUses()
    private let documents: PartReader<SetDocument>
    private let listings: PartReader<SetListing>
    private let chunks: PartReader<[SetTile]>

    /// - Parameter given: A source that names a published set at a server.
    init(_ given: SourceConfiguration) {
        self.given = given
        let name = given.name.description
        (documents, listings, chunks) = (PartReader(of: name), PartReader(of: name), PartReader(of: name))
        parts = SetParts(of: given.name, identity: given.fileIdentity)
    }

    // MARK: Reading

    /// `set.json`, as it is stored or was brought just now.
    ///
    /// - Parameter finish: Called once, on the loop; at once if it is known.
    func document(
        of candidate: Candidate, on tiles: TileLoop,
        _ finish: @escaping @Sendable (Result<SetSteps.Known, PartTrouble>) -> Void
    ) {
        guard let bytes = candidate.entry.blob else {
            return finish(.failure(documents.unusable("a set.json whose bytes are not known")))
        }
        let readAt = candidate.entry.metadata.storedAt
        if let same = latest, same.bytes == bytes {
            return finish(.success(SetSteps.Known(same.document, bytes, readAt: readAt)))
        }
        documents.read("\(bytes)", of: candidate, on: tiles) { data in
            try SetParts.document(data)
        } _: { reading in
            finish(reading.map { SetSteps.Known($0, bytes, readAt: readAt) })
        }
    }

    /// Follows a `set.json` that is believed.
    func follow(_ known: SetSteps.Known) { state.withLock { $0.known = known } }

    /// The tile of a place in a version, if all that leads to it is in memory.
    func known(at place: SetKey, of root: BlobDigest) -> SetTile? {
        state.withLock { $0.listings.find(root) }?.known(at: place)
    }

    /// The list of a version.
    ///
    /// - Parameters:
    ///   - isRepeated: Whether `set.json` was read anew because a file was missing.
    ///   - hasStandIn: Whether something else can be answered where it cannot be had.
    ///   - finish: Called once, on the loop; at once if it is in memory.
    func listing(
        _ version: SetVersion, isRepeated: Bool, of source: ServedSource, on tiles: TileLoop, onlyIfCached: Bool,
        hasStandIn: (@Sendable () -> Bool)? = nil,
        _ finish: @escaping @Sendable (Result<SetListing, PartTrouble>) -> Void
    ) {
        let root = version.root
        if let known = state.withLock({ $0.listings.find(root) }) { return finish(.success(known)) }
        let state = state
        var part = parts.file(of: version, isRepeated: isRepeated)
        part.hasStandIn = hasStandIn
        listings.ask("\(root)", part, of: source, on: tiles, onlyIfCached: onlyIfCached) { data in
            let listing = SetListing(try version.list(data))
            state.withLock { $0.listings.insert(listing, listing.root, weight: 1) }
            return listing
        } _: {
            finish($0)
        }
    }

    /// Reads a chunk of a list, which keeps it.
    ///
    /// - Parameters: As of ``listing(_:isRepeated:of:on:onlyIfCached:_:)``.
    func chunk(
        _ number: Int, of listing: SetListing, isRepeated: Bool, of source: ServedSource, on tiles: TileLoop,
        onlyIfCached: Bool, hasStandIn: (@Sendable () -> Bool)? = nil,
        _ finish: @escaping @Sendable (Result<[SetTile], PartTrouble>) -> Void
    ) {
        if let known = listing.known(number) { return finish(.success(known)) }
        var part = parts.file(of: number, in: listing, isRepeated: isRepeated)
        part.hasStandIn = hasStandIn
        chunks.ask("\(listing.root) \(number)", part, of: source, on: tiles, onlyIfCached: onlyIfCached) { data in
            let tiles = try listing.chunk([UInt8](data), number: number)
            listing.keep(tiles, as: number)
            return tiles
        } _: {
            finish($0)
        }
    }

    // MARK: Asking

    var versions: [SourceVersion] { latest.map { SourceVersion.all(of: $0.document) } ?? [] }

    /// `set.json` as it was read last.
    var latest: SetSteps.Known? { state.withLock { $0.known } }

    func question(
        _ key: TileKey, version: String?, of source: ServedSource, on tiles: TileLoop, onlyIfCached: Bool,
        _ finish: @escaping (TileExchange.Outcome) -> Void
    ) -> any TileAnswering {
        SetExchange(StepsToTile(tiles, source, onlyIfCached: onlyIfCached, finish), self, key, version: version)
    }

    func describe(
        version: String?, of source: ServedSource, on tiles: TileLoop,
        _ finish: @escaping @Sendable (RemoteDescription) -> Void
    ) {
        describe(version: version, of: source, on: tiles, reloads: false, finish)
    }

    private func describe(
        version: String?, of source: ServedSource, on tiles: TileLoop, reloads: Bool,
        _ finish: @escaping @Sendable (RemoteDescription) -> Void
    ) {
        let bound = NIOLoopBound(tiles, eventLoop: tiles.loop)
        TileExchange(
            tiles, source, parts.document.key, onlyIfCached: false, subject: .part(parts.document), reloads: reloads
        ) { outcome in
            guard case .tile(let candidate, _, let from, _) = outcome else {
                return self.describe(self.latest, version, isCertain: false, source, on: bound, finish)
            }
            self.document(of: candidate, on: bound.value) { reading in
                guard case .success(let known) = reading else {
                    return self.describe(self.latest, version, isCertain: false, source, on: bound, finish)
                }
                // It may be newer than the `set.json` that is here.
                let isMissing =
                    SetVersion(version, of: known.document) == nil && !known.isRecent(at: bound.value.time.now)
                if !reloads, isMissing || known.isDoubtful(after: self.latest) {
                    return self.describe(version: version, of: source, on: bound.value, reloads: true, finish)
                }
                // What was stored is no answer to the question whether it counts.
                let isAnswer = from == .miss || from == .revalidated
                if !isAnswer, known.isDoubtful(after: self.latest) {
                    return self.describe(self.latest, version, isCertain: false, source, on: bound, finish)
                }
                self.follow(known)
                self.describe(known, version, isCertain: from != .stale, source, on: bound, finish)
            }
        }.start()
    }

    /// - Parameter isCertain: Whether a version that `set.json` does not name is none.
    private func describe(
        _ known: SetSteps.Known?, _ version: String?, isCertain: Bool, _ source: ServedSource,
        on tiles: NIOLoopBound<TileLoop>, _ finish: @escaping @Sendable (RemoteDescription) -> Void
    ) {
        guard let known else { return finish(version == nil ? .unknown : .unknownVersion) }
        guard let chosen = SetVersion(version, of: known.document) else {
            return finish(isCertain ? .noVersion : .unknownVersion)
        }
        // Where the latest one cannot be had, the one before it tells more than nothing.
        let former = version == nil ? SetVersion.former(of: known.document).prefix(8).map(\.version) : []
        let isNamed = version != nil
        ends(of: [chosen] + former, onlyIfCached: false, source, on: tiles) { version, ends in
            let said = ArchiveMetadata(of: known.document, version: version.root, ends: ends)
            let kind: TileKind = said.tileFormat == "pbf" || said.tileFormat == "mvt" ? .vector : .any
            let (configuration, map) = self.given.described(by: said, kind: kind)
            let name = isNamed ? SourceVersion(root: version.root, replaced: nil) : nil
            finish(.said(configuration, map, name, isWhole: ends != nil && version == chosen))
        }
    }

    /// The first tile and the last one of the first version of which they can be had: as good as at hand once tiles of it were asked for.
    ///
    /// - Parameters:
    ///   - versions: Not empty; of the first of them the server is asked.
    ///   - finish: Called once, on the loop: with the first version, and nothing, if none can be had.
    private func ends(
        of versions: [SetVersion], onlyIfCached: Bool, _ source: ServedSource, on tiles: NIOLoopBound<TileLoop>,
        _ finish: @escaping @Sendable (SetVersion, (first: SetTile, last: SetTile)?) -> Void
    ) {
        let version = versions[0]
        let next: @Sendable () -> Void = {
            guard versions.count > 1 else { return finish(version, nil) }
            self.ends(of: Array(versions.dropFirst()), onlyIfCached: true, source, on: tiles) { found, ends in
                finish(ends == nil ? version : found, ends)
            }
        }
        let chunk: @Sendable (Int, SetListing, @escaping @Sendable ([SetTile]) -> Void) -> Void = {
            number, listing, take in
            self.chunk(
                number, of: listing, isRepeated: false, of: source, on: tiles.value, onlyIfCached: onlyIfCached
            ) { reading in
                if case .success(let found) = reading, !found.isEmpty { take(found) } else { next() }
            }
        }
        listing(version, isRepeated: false, of: source, on: tiles.value, onlyIfCached: onlyIfCached) { reading in
            guard case .success(let listing) = reading else { return next() }
            guard let last = listing.items.indices.last else { return finish(version, nil) }
            chunk(0, listing) { start in chunk(last, listing) { end in finish(version, (start[0], end[end.count - 1])) }
            }
        }
    }
}
