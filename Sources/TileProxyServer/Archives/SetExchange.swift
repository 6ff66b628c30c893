import CacheEngine
import HTTPCaching
import HTTPListener
import NIOCore
import TileArchive
import TileCache
import TileSets
import TileStore

/// A tile of a published set at a server that is asked for: first `set.json`, then the list as far as it is needed, then the bytes that
/// this names.
///
/// Belongs to its event loop and is used on it alone.
final class SetExchange: TileAnswering, @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    private let tiles: TileLoop
    private let source: ServedSource
    private let set: RemoteSet
    private let key: TileKey
    /// The first digits of the version's root, if it is not to be the latest one.
    private let digits: String?
    private let onlyIfCached: Bool
    private var finish: ((TileExchange.Outcome) -> Void)?
    /// What is asked for now.
    private var current: TileExchange?
    /// `set.json`, and how it was had.
    private var opening: (candidate: Candidate, status: CacheStatus, from: CacheTransaction.ServedFrom, isKept: Bool)?
    /// What is answered if `set.json` still names what is missing.
    private var fallback: TileExchange.Outcome?

    /// - Parameters:
    ///   - version: The first digits of the version's root; `nil` for the latest one.
    ///   - onlyIfCached: Whether the server is not to be asked.
    ///   - finish: Called once, on the loop, unless it is left before.
    init(
        _ tiles: TileLoop, _ source: ServedSource, _ set: RemoteSet, _ key: TileKey, version: String?,
        onlyIfCached: Bool,
        _ finish: @escaping (TileExchange.Outcome) -> Void
    ) {
        (self.tiles, self.source, self.set, self.key) = (tiles, source, set, key)
        (digits, self.onlyIfCached) = (version, onlyIfCached)
        self.finish = finish
    }

    func start() {
        // What a version is does not change, so that nobody is asked whether there is a newer one.
        if let digits, let document = set.latestDocument, SetVersion(digits, of: document) != nil {
            return read(document)
        }
        open(reloads: false)
    }

    func leave() {
        finish = nil
        current?.leave()
        current = nil
    }

    private func ask(
        _ part: ArchivePart, reloads: Bool = false, _ then: @escaping (SetExchange, TileExchange.Outcome) -> Void
    ) {
        let exchange = TileExchange(
            tiles, source, part.key, onlyIfCached: onlyIfCached, subject: .part(part), reloads: reloads
        ) { [weak self] outcome in
            guard let self, finish != nil else { return }
            then(self, outcome)
        }
        current = exchange
        exchange.start()
    }

    /// Whether `set.json` was read a moment ago, so that what it names has to be there.
    private var isRepeated: Bool {
        if fallback != nil { return true }
        guard let read = opening?.candidate.entry.metadata.storedAt else { return false }
        return (0..<2).contains(tiles.time.now.seconds - read.seconds)
    }

    // MARK: The version

    private func open(reloads: Bool) { ask(set.document, reloads: reloads) { $0.opened($1) } }

    private func opened(_ outcome: TileExchange.Outcome) {
        guard case .tile(let candidate, let status, let from, let isKept) = outcome else {
            return end(fallback ?? outcome)
        }
        opening = (candidate, status, from, isKept)
        set.document(of: candidate, on: tiles) { reading in
            switch reading {
            case .success(let document): self.read(document)
            case .failure(let trouble): self.failed(trouble, root: nil)
            }
        }
    }

    private func read(_ document: SetDocument) {
        guard finish != nil, let tile = key.tile else { return }
        guard let version = SetVersion(digits, of: document) else {
            let refusal = Refusal(status: 404, words: "The set has no such version.")
            return end(.refused(refusal, status(detail: "no version"), nil))
        }
        set.listing(version, isRepeated: isRepeated, of: source, on: tiles, onlyIfCached: onlyIfCached) { reading in
            switch reading {
            case .success(let listing):
                let place = SetKey(tile)
                self.find(place, SetSearch(place, in: listing), in: listing)
            case .failure(let trouble): self.failed(trouble, root: version.root)
            }
        }
    }

    // MARK: The list

    private func find(_ place: SetKey, _ search: SetSearch, in listing: SetListing) {
        guard finish != nil else { return }
        var search = search
        switch search.next() {
        case .tile(let tile) where tile.key.isAtPlace(of: place): ask(for: tile, of: listing)
        case .tile, .none: end(answer(Candidate(absenceOf: key, mark: nil, at: tiles.time.now), nil))
        case .chunk(let number):
            set.chunk(
                number, of: listing, isRepeated: isRepeated, of: source, on: tiles, onlyIfCached: onlyIfCached
            ) { [search] reading in
                switch reading {
                case .success(let tiles):
                    var search = search
                    search.take(tiles, as: number)
                    self.find(place, search, in: listing)
                case .failure(let trouble): self.failed(trouble, root: listing.root)
                }
            }
        }
    }

    // MARK: The bytes

    private func ask(for tile: SetTile, of listing: SetListing) {
        guard tile.size <= source.tiles.bodyLimit else {
            let limit = source.tiles.bodyLimit
            let words = "a tile of \(tile.size) bytes, which is more than the \(limit) that the source allows"
            return failed(
                PartTrouble(failure: .unusable(.body, words, host: source.name.description)), root: listing.root)
        }
        ask(set.part(of: tile, isRepeated: isRepeated)) { exchange, outcome in
            guard case .tile(let candidate, let status, let from, let isKept) = outcome else {
                guard case .refused(let refusal, let status, let failure) = outcome, let failure else {
                    return exchange.end(outcome)
                }
                return exchange.failed(
                    PartTrouble(failure: failure, refusal: (refusal, status)), root: listing.root)
            }
            let brought = from == .hit ? nil : (status, from, isKept)
            exchange.end(exchange.answer(candidate.of(exchange.key, tile.kind), brought))
        }
    }

    // MARK: The answer

    /// What clients are told of a tile, or of there being none.
    ///
    /// It is as fresh as a tile of this machine is: it was looked up in the list just now. Where `set.json` may be another one by
    /// now, its own freshness counts.
    /// - Parameter brought: How the bytes were had, if they were not in the cache.
    private func answer(
        _ candidate: Candidate, _ brought: (status: CacheStatus, from: CacheTransaction.ServedFrom, isKept: Bool)?
    ) -> TileExchange.Outcome {
        let now = Timestamp(seconds: tiles.time.now.seconds)
        var metadata = candidate.entry.metadata
        let had = opening.map { ($0.status, $0.from) } ?? (status(detail: nil, isHit: true), .hit)
        var (status, from) = brought.map { ($0.status, $0.from) } ?? had
        if digits != nil {
            metadata.response = ResponseFields(
                status: metadata.response.status, mediaType: metadata.response.mediaType,
                contentEncoding: metadata.response.contentEncoding, headers: TileMaking.immutable)
            metadata.expires = now.adding(seconds: TileMaking.immutableLifetime)
            if brought == nil { (status, from) = (self.status(detail: nil, isHit: true), .hit) }
        } else if let opening, opening.from == .stale {
            let whole = opening.candidate.entry.metadata
            (metadata.storedAt, metadata.date, metadata.initialAge) = (whole.storedAt, whole.date, whole.initialAge)
            metadata.expires = whole.expires
        } else {
            let wanted = source.configuration.lifetimes.minimum?.components.seconds ?? 0
            metadata.expires = now.adding(seconds: max(TileMaking.localLifetime, wanted))
        }
        status.timeToLive = Int(clamping: metadata.expires.seconds &- now.seconds)
        return .tile(
            candidate.with(metadata), status, from, isKept: (brought?.isKept ?? true) && (opening?.isKept ?? true))
    }

    private func status(detail: String?, isHit: Bool = false) -> CacheStatus {
        var status = CacheStatus(cache: source.use.name)
        (status.hit, status.detail) = (isHit, detail)
        return status
    }

    /// A file cannot be had: where it is gone, the set was renewed, perhaps.
    private func failed(_ trouble: PartTrouble, root: BlobDigest?) {
        guard finish != nil else { return }
        let refusal =
            trouble.refusal?.words ?? Refusal(status: 502, words: "The set at the tile server cannot be read.")
        let status = trouble.refusal?.status ?? opening?.status ?? self.status(detail: nil)
        let outcome = TileExchange.Outcome.refused(refusal, status, trouble.failure)
        guard !isRepeated, !onlyIfCached, case .unusable(.otherVersion, _, _) = trouble.failure else {
            return end(fallback ?? outcome)
        }
        fallback = outcome
        // Somebody else may have read it anew meanwhile.
        open(reloads: root == set.latestRoot || digits != nil)
    }

    private func end(_ outcome: TileExchange.Outcome) {
        current = nil
        let finish = finish
        self.finish = nil
        finish?(outcome)
    }
}

extension Candidate {
    /// The bytes of a set's file as those of a tile.
    fileprivate func of(_ key: TileKey, _ kind: SetKind) -> Candidate {
        let stored = entry.metadata
        let metadata = TileMetadata(
            response: ResponseFields(status: 200, mediaType: kind.type, contentEncoding: kind.coding),
            storedAt: stored.storedAt, expires: stored.expires)
        return Candidate(tile: key, metadata, body, owner, blob: entry.blob)
    }
}
