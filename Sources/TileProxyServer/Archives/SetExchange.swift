import CacheEngine
import HTTPCaching
import HTTPListener
import NIOCore
import TileArchive
import TileCache
import TileCacheArchive
import TileSets
import TileStore

/// A tile of a published set at a server that is asked for: first `set.json`, then the list as far as it is needed, then the bytes that
/// this names.
///
/// Belongs to its event loop and is used on it alone.
final class SetExchange: TileAnswering, @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    private let steps: StepsToTile
    private let set: RemoteSet
    private let key: TileKey
    /// The first digits of the version's root, if it is not to be the latest one.
    private let digits: String?
    /// The way that is left; `nil` for what is no tile.
    private var way: SetSteps?
    /// `set.json`, if it was asked for.
    private var opening: StepsToTile.Opening?
    /// What is answered if nothing else can be: what failed first, and what that means for stale tiles.
    private var failure: (outcome: TileExchange.Outcome, meaning: OriginFailure?)?

    /// - Parameter version: The first digits of the version's root; `nil` for the latest one.
    init(_ steps: StepsToTile, _ set: RemoteSet, _ key: TileKey, version: String?) {
        (self.steps, self.set, self.key, digits) = (steps, set, key, version)
        way = key.tile.map { SetSteps(to: $0, version: version, known: set.latest) }
    }

    func start() { goOn() }
    func leave() { steps.leave() }

    private func ask(_ part: ArchivePart, reloads: Bool = false, _ then: @escaping (TileExchange.Outcome) -> Void) {
        steps.ask(part.key, .part(part), reloads: reloads, onlyIfCached: way?.isFormer ?? false, then)
    }

    /// Whether a tile of the former version may be here, for whoever cannot have one of the latest.
    private var standIn: (@Sendable () -> Bool)? {
        guard let opening else { return nil }
        let (set, store, use, now) = (set, steps.tiles.service.store, steps.source.use, now)
        let candidate = opening.candidate
        return way?.standIn { root, replaced, place in
            guard candidate.mayStandIn(since: replaced, after: .unreachable, use, at: now),
                let tile = set.known(at: place, of: root)
            else { return false }
            // What cannot be read counts as none.
            return (try? store.entry(for: set.parts.file(of: tile, isRepeated: false).key)) != nil
        }
    }

    private var now: HTTPDate { steps.tiles.time.now }

    // MARK: The way

    private func goOn() {
        guard !steps.isOver else { return }
        let onlyIfCached = steps.onlyIfCached || way?.isFormer ?? false
        switch way?.next(at: now) ?? .absent {
        case .document(let reloads): ask(set.parts.document, reloads: reloads) { [weak self] in self?.opened($0) }
        case .list(let version, let isRepeated):
            set.listing(
                version, isRepeated: isRepeated, of: steps.source, on: steps.tiles, onlyIfCached: onlyIfCached,
                hasStandIn: standIn
            ) { reading in self.read(reading) { $0.take($1) } }
        case .chunk(let number, let listing, let isRepeated):
            set.chunk(
                number, of: listing, isRepeated: isRepeated, of: steps.source, on: steps.tiles,
                onlyIfCached: onlyIfCached, hasStandIn: standIn
            ) { reading in self.read(reading) { $0.take($1, as: number) } }
        case .file(let tile, let isRepeated): ask(for: tile, isRepeated: isRepeated)
        case .absent: steps.end(answer(Candidate(absenceOf: key, mark: nil, at: now), nil))
        case .gone: turnBack(unreadable, nil)
        case .noVersion:
            // It may be newer than the `set.json` that is here.
            if retries() { return goOn() }
            if opening?.from == .stale {
                // It could not be read anew: whether there is such a version nobody knows.
                return steps.end(unreadable)
            }
            let refusal = Refusal(status: 404, words: SourceTable.noSuchVersion)
            steps.end(.refused(refusal, status(detail: "no version"), nil))
        }
    }

    private var unreadable: TileExchange.Outcome { .refused(.unreadableSet, status(detail: nil), nil) }

    private func opened(_ outcome: TileExchange.Outcome) {
        guard let opening = StepsToTile.Opening(outcome) else { return turnBack(outcome, steps.failure) }
        self.opening = opening
        let (former, mayAsk) = (set.latest, !steps.onlyIfCached)
        let isAnswer = opening.from == .miss || opening.from == .revalidated
        set.document(of: opening.candidate, on: steps.tiles) { reading in
            self.read(reading) {
                if $0.take($1, after: former, mayAsk: mayAsk, isAnswer: isAnswer) { self.set.follow($1) }
            }
        }
    }

    /// Takes what was read, and goes on with it.
    private func read<Value>(
        _ reading: Result<Value, PartTrouble>, _ take: (inout SetSteps, Value) -> Void
    ) {
        switch reading {
        case .success(let value):
            if var way {
                take(&way, value)
                self.way = way
            }
            goOn()
        case .failure(let trouble): failed(trouble)
        }
    }

    // MARK: The bytes

    private func ask(for tile: SetTile, isRepeated: Bool) {
        let limit = steps.source.tiles.bodyLimit
        guard tile.size <= limit else {
            let words = "a tile of \(tile.size) bytes, which is more than the \(limit) that the source allows"
            let name = steps.source.name.description
            return failed(PartTrouble(failure: .unusable(.body, words, host: name)))
        }
        var file = set.parts.file(of: tile, isRepeated: isRepeated)
        file.hasStandIn = standIn
        ask(file) { [weak self] in self?.answered($0, tile) }
    }

    private func answered(_ outcome: TileExchange.Outcome, _ tile: SetTile) {
        switch outcome {
        case .tile(let candidate, let status, let from, let isKept):
            let brought = from == .hit ? nil : (status, from, isKept)
            steps.end(answer(candidate.of(key, tile.kind), brought))
        case .refused(let refusal, let status, .some(let failure)):
            failed(PartTrouble(failure: failure, refusal: (refusal, status)))
        case .refused: turnBack(outcome, nil)
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
        keepLists()
        let now = Timestamp(seconds: now.seconds)
        var metadata = candidate.entry.metadata
        let had = opening.map { ($0.status, $0.from) } ?? (status(detail: nil, isHit: true), .hit)
        var (status, from) = brought.map { ($0.status, $0.from) } ?? had
        if digits != nil {
            metadata.response = ResponseFields(
                status: metadata.response.status, mediaType: metadata.response.mediaType,
                contentEncoding: metadata.response.contentEncoding, headers: TileMaking.immutable)
            metadata.expires = now.adding(seconds: TileMaking.immutableLifetime)
            if brought == nil { (status, from) = (self.status(detail: nil, isHit: true), .hit) }
        } else if let opening, let failure, way?.isFormer == true {
            let whole = opening.candidate.entry.metadata
            (metadata.storedAt, metadata.date, metadata.initialAge) = (whole.storedAt, whole.date, whole.initialAge)
            metadata.expires = min(whole.expires, now)
            (status, from) = (self.status(detail: "origin-unreachable"), .stale)
            status.forward = .stale
            if case .status(let code) = failure.meaning {
                (status.forwardStatus, status.detail) = (code, "stale-if-error")
            }
        } else if let opening, opening.from == .stale {
            let whole = opening.candidate.entry.metadata
            (metadata.storedAt, metadata.date, metadata.initialAge) = (whole.storedAt, whole.date, whole.initialAge)
            // It could not be read anew, however short a time ago it was read before.
            metadata.expires = min(whole.expires, now)
        } else {
            let wanted = steps.source.configuration.lifetimes.minimum?.components.seconds ?? 0
            metadata.expires = now.adding(seconds: max(TileMaking.localLifetime, wanted))
        }
        status.timeToLive = Int(clamping: metadata.expires.seconds &- now.seconds)
        return .tile(
            candidate.with(metadata), status, from, isKept: (brought?.isKept ?? true) && (opening?.isKept ?? true))
    }

    /// Sees to it that the lists that have led to the tile are in the cache as they are in memory.
    private func keepLists() {
        let (service, store) = (steps.tiles.service, steps.tiles.service.store)
        guard let way else { return }
        let missing = set.uses.missing(on: way, of: set.parts, at: now) { key in
            do {
                guard let entry = try store.entry(for: key) else { return false }
                try store.touch(key, EntryVersion(entry))
            } catch { service.notRead(key, error) }
            return true
        }
        guard !steps.onlyIfCached, !way.isFormer else { return }
        let (uses, now) = (set.uses, now)
        for list in missing {
            let part = set.parts.file(of: list)
            // The client does not wait for it.
            TileExchange(steps.tiles, steps.source, part.key, onlyIfCached: false, subject: .part(part)) { outcome in
                if case .tile = outcome { uses.note(list, at: now) }
            }.start()
        }
    }

    private func status(detail: String?, isHit: Bool = false) -> CacheStatus {
        var status = CacheStatus(cache: steps.source.use.name)
        (status.hit, status.detail) = (isHit, detail)
        return status
    }

    /// A file cannot be had: where it is gone, the set was renewed, perhaps.
    private func failed(_ trouble: PartTrouble) {
        guard !steps.isOver else { return }
        let refusal = trouble.refusal?.words ?? .unreadableSet
        let status = trouble.refusal?.status ?? opening?.status ?? self.status(detail: nil)
        let outcome = TileExchange.Outcome.refused(refusal, status, trouble.failure)
        if failure == nil, case .unusable(.otherVersion, _, _) = trouble.failure, retries() {
            failure = (outcome, trouble.failure.setback.failure)
            return goOn()
        }
        turnBack(outcome, trouble.failure)
    }

    private func retries() -> Bool {
        !steps.onlyIfCached && way?.retries(latest: set.latest?.document.root, at: now) == true
    }

    /// Answers by what was shown before, which is better than nothing, where it is here and the rules for stale tiles allow it.
    private func turnBack(_ outcome: TileExchange.Outcome, _ why: TileFill.Failure?) {
        let failure = self.failure ?? (outcome, why?.setback.failure)
        self.failure = failure
        guard !steps.onlyIfCached, let opening, let meaning = failure.meaning else { return steps.end(failure.outcome) }
        let (use, now) = (steps.source.use, now)
        let (parts, store) = (set.parts, steps.tiles.service.store)
        let turnsBack = way?.turnsBack { version, replaced in
            // What cannot be read counts as none.
            (try? store.entry(for: parts.key(of: .root(version)))) != nil
                && opening.candidate.mayStandIn(since: replaced, after: meaning, use, at: now)
        }
        guard turnsBack == true else { return steps.end(failure.outcome) }
        goOn()
    }
}

extension Candidate {
    /// Whether a version that a `set.json` has replaced may stand in for the one that it names.
    fileprivate func mayStandIn(
        since replaced: Timestamp, after failure: OriginFailure, _ use: CacheUse, at now: HTTPDate
    ) -> Bool {
        let old = self.replaced(at: now, since: replaced).response
        let decision = LoadDecision.after(failure, .standard, old, isPinned: false, use, at: now)
        if case .serve = decision { return true }
        return false
    }

    /// The bytes of a set's file as those of a tile.
    fileprivate func of(_ key: TileKey, _ kind: SetKind) -> Candidate {
        let stored = entry.metadata
        let metadata = TileMetadata(
            response: ResponseFields(status: 200, mediaType: kind.type, contentEncoding: kind.coding),
            storedAt: stored.storedAt, expires: stored.expires)
        return Candidate(tile: key, metadata, body, owner, blob: entry.blob)
    }
}
