package import HTTPCaching
package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// A part of an archive, or a file of a set, at a server; it has an entry of its own.
///
/// A value: it says what to ask, and how what is stored under its key counts.
package struct ArchivePart: Sendable {
    /// The key of its entry.
    package let key: TileKey
    /// What is asked for.
    package let question: FileQuestion
    /// Where the file is, from the place of the one that the source names; `nil` for that one.
    package var path: String?
    /// For how many seconds it counts as fresh, whatever its server says; `nil` for as long as that says.
    package var lifetime: Int64?
    /// The name of its bytes, if that is known beforehand.
    package var blob: BlobDigest?
    /// What is wrong with its bytes, given how many bytes the file has; it may take its time.
    package let objection: @Sendable (Data, _ fileLength: Int64) -> String?
    /// Whether it is the bytes of a tile, and not what leads to them.
    package var isTile = false
    /// What its bytes are, where that is to be stored with them: media type and content coding.
    package var content: (@Sendable (Data) -> (type: String?, coding: String?))?

    /// Whether something else can be answered where it cannot be had: then it is asked for once, as what is stale is.
    package var hasStandIn: (@Sendable () -> Bool)?

    /// Describes a part.
    package init(
        key: TileKey, question: FileQuestion, path: String? = nil, lifetime: Int64? = nil, blob: BlobDigest? = nil,
        objection: @escaping @Sendable (Data, _ fileLength: Int64) -> String?
    ) {
        self.key = key
        self.question = question
        self.path = path
        self.lifetime = lifetime
        self.blob = blob
        self.objection = objection
    }

    /// How often it is asked for at most.
    package func attempts(of usual: Int) -> Int { hasStandIn?() == true ? 1 : usual }

    /// How many bytes it has at most.
    package var length: Int { question.mostBytes }

    /// What is stored, as it counts; `nil` if it is something else.
    package func judged(_ candidate: Candidate, at now: HTTPDate) -> Candidate? {
        switch question.extent {
        case .beginning, .document: return lifetime.map { candidate.checked(at: now, every: $0) } ?? candidate
        case .object:
            if let blob, candidate.entry.blob != blob { return nil }
            return candidate.lasting(at: now)
        case .bytes:
            let isOfVersion = candidate.entry.metadata.fileMark == question.mark && candidate.length == length
            return isOfVersion ? candidate.lasting(at: now) : candidate.replaced(at: now)
        }
    }

    /// What is to be stored of an answer.
    ///
    /// Of a document the answer that was received last counts, whatever its server's clock said: one that was not stored because of an
    /// earlier `Date` would be asked for with every tile, and the former one would come back.
    ///
    /// One that was changed less than two seconds before it was sent is stored without validators, so that it is asked for whole
    /// next time: another change in them leaves the date as it is (RFC 9110 §8.8.2.2), and the tags that many servers make of date
    /// and length.
    package func stored(_ record: AnswerRecord) -> AnswerRecord {
        guard case .document = question.extent else { return record }
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

    /// The use of the engine, with room for it.
    package func use(_ use: CacheUse) -> CacheUse {
        var use = use
        use.storedBodyBytes = length
        return use
    }
}

extension Candidate {
    /// The same, fresh: it cannot change.
    package func lasting(at now: HTTPDate) -> Candidate {
        let (stored, received) = (entry.metadata, Timestamp(seconds: now.seconds))
        let response = ResponseFields(
            status: stored.response.status, mediaType: stored.response.mediaType,
            contentEncoding: stored.response.contentEncoding)
        let metadata = TileMetadata(
            response: response, storedAt: received, expires: received.adding(seconds: Self.whileLasting))
        return with(metadata.noting(stored.fileMark))
    }

    /// The same, stale: another version has taken its place, and it stands in for a tile of that one if there is an error.
    ///
    /// - Parameter since: Since when, if that is known.
    package func replaced(at now: HTTPDate, since: Timestamp = .distantFuture) -> Candidate {
        let stale = expired(at: min(Timestamp(seconds: now.seconds), since))
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
    /// What is answered by means of it is made here, and is not the server's response. Stale it counts as that forbids or allows.
    fileprivate func checked(at now: HTTPDate, every seconds: Int64) -> Candidate {
        var metadata = entry.metadata
        let (stored, last) = (metadata.response, metadata.storedAt.adding(seconds: seconds))
        let isFresh = metadata.storedAt.seconds <= now.seconds && now.seconds < last.seconds
        metadata.expires = isFresh ? last : min(metadata.expires, last, Timestamp(seconds: now.seconds))
        metadata.response = ResponseFields(
            status: stored.status, mediaType: stored.mediaType, contentEncoding: stored.contentEncoding,
            staleIfError: stored.staleIfError, mustRevalidate: stored.mustRevalidate || stored.noCache,
            noCache: stored.noCache && !isFresh, headers: stored.headers)
        return with(metadata)
    }

    /// That an archive has no such tile, by its directories.
    ///
    /// - Parameter mark: What tells its version, if entries note that.
    package convenience init(absenceOf key: TileKey, mark: String?, at now: HTTPDate) {
        let received = Timestamp(seconds: now.seconds)
        let metadata = TileMetadata(
            response: ResponseFields(status: 404), storedAt: received,
            expires: received.adding(seconds: Self.whileLasting))
        self.init(key: key, metadata.noting(mark), .none, nil)
    }

    /// For as long as it is looked at: what is answered is as fresh as the version.
    private static let whileLasting: Int64 = 60
}
