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
    /// A part of an archive at a server (its beginning, a directory, its metadata), or a file of a published set.
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
    func judged(_ lookup: Lookup, at now: HTTPDate) -> Lookup {
        guard case .found(let candidate) = lookup else { return lookup }
        switch self {
        case .tile: return lookup
        case .part(let part): return part.judged(candidate, at: now).map { .found($0) } ?? .miss
        case .archived(_, let version, _):
            let isOfVersion = candidate.entry.metadata.fileMark == version.id
            return .found(isOfVersion ? candidate.lasting(at: now) : candidate.replaced(at: now))
        }
    }

    /// What is to be stored.
    ///
    /// Of a document the answer that was received last counts, whatever its server's clock said: one that was not stored because of an
    /// earlier `Date` would be asked for with every tile, and the former one would come back.
    ///
    /// One that was changed less than two seconds before it was sent is stored without validators, so that it is asked for whole
    /// next time: another change in them leaves the date as it is (RFC 9110 §8.8.2.2), and the tags that many servers make of date
    /// and length.
    func stored(_ record: AnswerRecord) -> AnswerRecord {
        guard case .part(let part) = self, case .document = part.question.extent else { return record }
        var metadata = record.intent.metadata
        let sent = metadata.date ?? metadata.storedAt
        if let changed = metadata.lastModified, sent.seconds &- changed.seconds < 2 {
            (metadata.etag, metadata.lastModified) = (nil, nil)
        }
        metadata.date = nil
        var record = record
        record.intent.metadata = metadata
        return record
    }

    /// The use of the engine, with room for what is asked for.
    func use(_ use: CacheUse) -> CacheUse {
        guard case .part(let part) = self else { return use }
        var use = use
        use.storedBodyBytes = part.length
        return use
    }
}

/// A part of an archive, or a file of a set, at a server; it has an entry of its own.
struct ArchivePart: Sendable {
    let key: TileKey
    let question: FileQuestion
    /// Where the file is, from the place of the one that the source names; `nil` for that one.
    var path: String?
    /// For how many seconds it counts as fresh, whatever its server says; `nil` for as long as that says.
    var lifetime: Int64?
    /// The name of its bytes, if that is known beforehand.
    var blob: BlobDigest?
    /// What is wrong with its bytes, given how many bytes the file has; it may take its time.
    let objection: @Sendable (Data, _ fileLength: Int64) -> String?

    /// How many bytes it has at most.
    var length: Int { question.mostBytes }

    /// What is stored, as it counts; `nil` if it is something else.
    fileprivate func judged(_ candidate: Candidate, at now: HTTPDate) -> Candidate? {
        switch question.extent {
        case .beginning, .document: return lifetime.map { candidate.checked(at: now, every: $0) } ?? candidate
        case .object:
            if let blob, candidate.entry.blob != blob { return nil }
            return candidate.lasting(at: now)
        case .bytes:
            let isOfVersion = candidate.entry.metadata.fileMark == question.mark && candidate.length == length
            return isOfVersion ? candidate.lasting(at: now) : candidate.expired(at: Timestamp(seconds: now.seconds))
        }
    }
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

    /// The same, fresh for so many seconds after it was checked, whatever its server says of that.
    ///
    /// What is answered by means of it is made here, and is not the server's response.
    fileprivate func checked(at now: HTTPDate, every seconds: Int64) -> Candidate {
        var metadata = entry.metadata
        let (stored, last) = (metadata.response, metadata.storedAt.adding(seconds: seconds))
        let isFresh = metadata.storedAt.seconds <= now.seconds && now.seconds < last.seconds
        metadata.expires = isFresh ? last : min(metadata.expires, last, Timestamp(seconds: now.seconds))
        metadata.response = ResponseFields(
            status: stored.status, mediaType: stored.mediaType, contentEncoding: stored.contentEncoding,
            staleIfError: stored.staleIfError, mustRevalidate: stored.mustRevalidate,
            noCache: stored.noCache && !isFresh, headers: stored.headers)
        return with(metadata)
    }

    /// That an archive has no such tile, by its directories.
    ///
    /// - Parameter mark: What tells its version, if entries note that.
    convenience init(absenceOf key: TileKey, mark: String?, at now: HTTPDate) {
        let received = Timestamp(seconds: now.seconds)
        let metadata = TileMetadata(
            response: ResponseFields(status: 404), storedAt: received,
            expires: received.adding(seconds: Self.whileLasting))
        self.init(key: key, metadata.noting(mark), .none, nil)
    }

    /// For as long as it is looked at: what is answered is as fresh as the version.
    private static let whileLasting: Int64 = 60
}
