import CacheEngine
import HTTPCaching
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What is asked of a source under a key.
enum TileSubject: Sendable {
    /// A tile with a URL of its own.
    case tile
    /// A part of an archive at a server: its beginning, a directory, its metadata.
    case part(ArchivePart)
    /// A tile of one version of an archive at a server.
    ///
    /// - Parameter isRepeated: Whether the archive has turned out to be another one already.
    case archived(RemoteArchive, ArchiveVersion, isRepeated: Bool)

    /// The version that a tile has to be of.
    var version: String? { if case .archived(_, let version, _) = self { version.id } else { nil } }

    /// What is stored, as it counts for this subject.
    ///
    /// What is of the very version that is asked for never changes, whatever its own answer said of its lifetime. A tile of another
    /// version is stale.
    func judged(_ candidate: Candidate, at now: HTTPDate) -> Candidate {
        switch self {
        case .tile: return candidate
        case .part(let part):
            guard part.question.version != nil else { return candidate }
            let isOfVersion = candidate.entry.metadata.fileMark == part.question.mark && candidate.length == part.length
            return isOfVersion ? candidate.lasting(at: now) : candidate.expired(at: Timestamp(seconds: now.seconds))
        case .archived(_, let version, _):
            return candidate.entry.metadata.fileMark == version.id
                ? candidate.lasting(at: now) : candidate.replaced(at: now)
        }
    }

    /// The same of a look-up.
    func judged(_ lookup: Lookup, at now: HTTPDate) -> Lookup {
        if case .found(let candidate) = lookup { .found(judged(candidate, at: now)) } else { lookup }
    }

    /// The use of the engine, with room for what is asked for.
    func use(_ use: CacheUse) -> CacheUse {
        guard case .part(let part) = self else { return use }
        var use = use
        use.storedBodyBytes = part.length
        return use
    }
}

/// A part of an archive at a server that has an entry of its own.
struct ArchivePart: Sendable {
    let key: TileKey
    let question: RangeQuestion
    /// What is wrong with its bytes, given how many bytes the file has; it may take its time.
    let objection: @Sendable (Data, _ fileLength: Int64) -> String?

    /// How many bytes it has at most.
    var length: Int { question.bytes.count }
}

extension Candidate {
    /// The same, fresh: it cannot change.
    fileprivate func lasting(at now: HTTPDate) -> Candidate {
        let (stored, received) = (entry.metadata, Timestamp(seconds: now.seconds))
        let response = ResponseFields(
            status: stored.response.status, mediaType: stored.response.mediaType,
            contentEncoding: stored.response.contentEncoding)
        let metadata = TileMetadata(
            response: response, storedAt: received, expires: received.adding(seconds: Self.whileLasting))
        return with(metadata.noting(stored.fileMark))
    }

    /// The same, stale: another version has taken its place, and it stands in for a tile of that one if there is an error.
    fileprivate func replaced(at now: HTTPDate) -> Candidate {
        let stale = expired(at: Timestamp(seconds: now.seconds))
        var metadata = stale.entry.metadata
        let stored = metadata.response
        metadata.response = ResponseFields(
            status: stored.status, mediaType: stored.mediaType, contentEncoding: stored.contentEncoding,
            staleIfError: stored.staleIfError, mustRevalidate: stored.mustRevalidate, noCache: stored.noCache,
            headers: stored.headers)
        return stale.with(metadata)
    }

    /// That an archive has no such tile, by its directories.
    convenience init(absenceOf key: TileKey, in version: ArchiveVersion, at now: HTTPDate) {
        let received = Timestamp(seconds: now.seconds)
        let metadata = TileMetadata(
            response: ResponseFields(status: 404), storedAt: received,
            expires: received.adding(seconds: Self.whileLasting))
        self.init(key: key, metadata.noting(version.id), .none, nil)
    }

    /// For as long as it is looked at: what is answered is as fresh as the version.
    private static let whileLasting: Int64 = 60
}
