import CacheEngine
import HTTPCaching
import HTTPListener
import NIOCore
import TileCacheArchive
import TileStore

/// A tile of an archive at a server that is asked for: first its version, then the tile of just this version.
///
/// Belongs to its event loop and is used on it alone.
final class ArchiveExchange: TileAnswering, @unchecked Sendable {
    // Sendable so that it can wait for other threads and be called back on its loop; nothing is touched off the loop.

    private let steps: StepsToTile
    private let archive: RemoteArchive
    private let key: TileKey
    /// The beginning of the file, which tells the version.
    private var opening: StepsToTile.Opening?
    /// What is answered if the archive, which was another one, cannot be opened anew.
    private var fallback: TileExchange.Outcome?

    init(_ steps: StepsToTile, _ archive: RemoteArchive, _ key: TileKey) {
        (self.steps, self.archive, self.key) = (steps, archive, key)
    }

    func start() { open(reloads: false) }
    func leave() { steps.leave() }

    // MARK: The version

    private func open(reloads: Bool) {
        let start = archive.parts.start
        steps.ask(start.key, .part(start), reloads: reloads) { [weak self] in self?.opened($0) }
    }

    private func opened(_ outcome: TileExchange.Outcome) {
        guard let opening = StepsToTile.Opening(outcome) else { return steps.end(fallback ?? outcome) }
        self.opening = opening
        archive.version(of: opening.candidate, on: steps.tiles) { reading in
            guard !self.steps.isOver else { return }
            switch reading {
            case .success(let version): self.ask(for: version)
            case .failure(let trouble):
                let refusal = Refusal(status: 502, words: "The archive at the tile server cannot be read.")
                self.steps.end(self.fallback ?? .refused(refusal, opening.status, trouble.failure))
            }
        }
    }

    // MARK: The tile

    private func ask(for version: ArchiveVersion) {
        steps.ask(key, .archived(archive, version, isRepeated: fallback != nil)) { [weak self] in
            self?.answered($0, version)
        }
    }

    private func answered(_ outcome: TileExchange.Outcome, _ version: ArchiveVersion) {
        guard fallback == nil, case .unusable(.otherVersion, _, _) = steps.failure else {
            return steps.end(asFresh(outcome, version))
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
}
