import CacheEngine
import HTTPCaching
import HTTPListener
import NIOCore
import TileStore

/// A question for a tile, from which one can go away.
protocol TileAnswering: AnyObject, Sendable {
    /// Begins.
    func start()
    /// Nobody waits for it any more.
    func leave()
}

/// A tile of an archive at a server that is asked for: first its version, then the tile of just this version.
///
/// Belongs to its event loop and is used on it alone.
final class ArchiveExchange: TileAnswering, @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    private let tiles: TileLoop
    private let source: ServedSource
    private let archive: RemoteArchive
    private let key: TileKey
    private let onlyIfCached: Bool
    private var finish: ((TileExchange.Outcome) -> Void)?
    /// What is asked for now.
    private var current: TileExchange?
    /// The beginning of the file that tells the version, and how it was had.
    private var opening: (candidate: Candidate, status: CacheStatus, from: CacheTransaction.ServedFrom, isKept: Bool)?
    /// What is answered if the archive, which was another one, cannot be opened anew.
    private var fallback: TileExchange.Outcome?

    /// - Parameters:
    ///   - onlyIfCached: Whether the server is not to be asked.
    ///   - finish: Called once, on the loop, unless it is left before.
    init(
        _ tiles: TileLoop, _ source: ServedSource, _ archive: RemoteArchive, _ key: TileKey, onlyIfCached: Bool,
        _ finish: @escaping (TileExchange.Outcome) -> Void
    ) {
        (self.tiles, self.source, self.archive, self.key) = (tiles, source, archive, key)
        self.onlyIfCached = onlyIfCached
        self.finish = finish
    }

    func start() { open(reloads: false) }

    func leave() {
        finish = nil
        current?.leave()
        current = nil
    }

    private func ask(
        _ key: TileKey, _ subject: TileSubject, reloads: Bool = false,
        _ then: @escaping (ArchiveExchange, TileExchange.Outcome) -> Void
    ) {
        let exchange = TileExchange(
            tiles, source, key, onlyIfCached: onlyIfCached, subject: subject, reloads: reloads
        ) { [weak self] outcome in
            guard let self, finish != nil else { return }
            then(self, outcome)
        }
        current = exchange
        exchange.start()
    }

    // MARK: The version

    private func open(reloads: Bool) {
        ask(archive.start.key, .part(archive.start), reloads: reloads) { $0.opened($1) }
    }

    private func opened(_ outcome: TileExchange.Outcome) {
        guard case .tile(let candidate, let status, let from, let isKept) = outcome else {
            return end(fallback ?? outcome)
        }
        opening = (candidate, status, from, isKept)
        archive.version(of: candidate, on: tiles) { reading in
            guard self.finish != nil else { return }
            switch reading {
            case .success(let version): self.ask(for: version)
            case .failure(let trouble):
                let refusal = Refusal(status: 502, words: "The archive at the tile server cannot be read.")
                self.end(self.fallback ?? .refused(refusal, status, trouble.failure))
            }
        }
    }

    // MARK: The tile

    private func ask(for version: ArchiveVersion) {
        ask(key, .archived(archive, version, isRepeated: fallback != nil)) { $0.answered($1, version) }
    }

    private func answered(_ outcome: TileExchange.Outcome, _ version: ArchiveVersion) {
        guard fallback == nil, case .unusable(.otherVersion, _, _) = current?.failure else {
            return end(asFresh(outcome, version))
        }
        // Thrown away and opened anew, once. Somebody else may have done so meanwhile.
        fallback = outcome
        open(reloads: archive.latest?.id == version.id)
    }

    /// What is of the version is as fresh as the version is.
    private func asFresh(_ outcome: TileExchange.Outcome, _ version: ArchiveVersion) -> TileExchange.Outcome {
        guard case .tile(let candidate, var status, var from, var isKept) = outcome, let opening,
            candidate.entry.metadata.fileMark == version.id
        else { return outcome }
        let whole = opening.candidate.entry.metadata
        if from == .hit {
            // Nothing was asked but whether there is another version.
            (status, from) = (opening.status, opening.from)
        } else {
            status.timeToLive = opening.status.timeToLive
        }
        isKept = isKept && opening.isKept
        var metadata = candidate.entry.metadata
        metadata.response = ResponseFields(
            status: metadata.response.status, mediaType: metadata.response.mediaType,
            contentEncoding: metadata.response.contentEncoding,
            staleWhileRevalidate: whole.response.staleWhileRevalidate, staleIfError: whole.response.staleIfError,
            mustRevalidate: whole.response.mustRevalidate, noCache: whole.response.noCache,
            headers: whole.response.headers)
        (metadata.storedAt, metadata.date, metadata.initialAge) = (whole.storedAt, whole.date, whole.initialAge)
        metadata.expires = whole.expires
        return .tile(candidate.with(metadata), status, from, isKept: isKept)
    }

    private func end(_ outcome: TileExchange.Outcome) {
        current = nil
        let finish = finish
        self.finish = nil
        finish?(outcome)
    }
}
