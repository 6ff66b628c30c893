import CacheEngine
import ContentCoding
import HTTPCaching
import HTTPListener
import HTTPTypes
import HTTPWire
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a client asked about a tile, apart from which one.
struct TileRequest: Sendable {
    var method: HTTPRequest.Method = .get
    var conditions = ClientPreconditions()
    var permitsGzip = false
    /// `Cache-Control: only-if-cached`, the one wish that tile routes obey.
    var onlyIfCached = false

    init() {}

    init(_ head: RequestHead) {
        method = head.method == .head ? .head : .get
        permitsGzip = head.fields.permitsGzip
        if !head.fields.present.isDisjoint(with: .conditions) { conditions = ClientPreconditions(head.fields.all) }
        onlyIfCached = head.fields.has("only-if-cached", in: .cacheControl)
    }
}

/// A tile that is there, with what was found out about it.
struct ServedTile: Sendable {
    /// Its bytes as they are stored; `none` if the origin says that there is no such tile.
    var body: StoredBody
    /// Its bytes without gzip, for a client that does not take it.
    var decoded: DecodedTile?
    var metadata: TileMetadata
    /// The name of its bytes, if it is known without hashing them.
    var blob: BlobDigest?
    /// What `Cache-Status` says.
    var status: CacheStatus
    /// The same for the figures.
    var result: Answered.CacheResult
    /// Whether clients may keep it.
    var mayBeKept = true
    /// What accounts for the memory of its bytes.
    var owner: HeldBody?

    /// Whether what an answer says of it is known without looking at its bytes.
    func isKnown(of source: ServedSource) -> Bool {
        let response = metadata.response
        return response.mediaType != nil && (response.contentEncoding != nil || source.kind != .vector)
    }

    /// Its bytes, if they are in memory.
    var data: Data? {
        if case .memory(let data) = body { data } else { nil }
    }

    /// How its bytes are coded, by what the origin said, or by the look of them.
    func coding(of source: ServedSource) -> String? {
        if let coding = metadata.response.contentEncoding { return coding }
        return source.kind == .vector && data.map(Gzip.isMarked) == true ? "gzip" : nil
    }

    /// Whether it has to be decoded for a client.
    func needsDecoding(for request: TileRequest, of source: ServedSource) -> Bool {
        guard !request.permitsGzip, let coding = coding(of: source)?.lowercased() else { return false }
        return coding == "gzip" || coding == "x-gzip"
    }
}

extension ServedTile {
    /// What is stored of a tile, or was brought.
    init(_ candidate: Candidate, _ status: CacheStatus, _ from: CacheTransaction.ServedFrom, isKept: Bool) {
        self.init(
            body: candidate.body, metadata: candidate.entry.metadata, blob: candidate.entry.blob, status: status,
            result: Answered.CacheResult(from), mayBeKept: isKept, owner: candidate.owner)
    }
}

/// An answer about a tile, as the client's conditions, range and codings want it: a value.
struct TileReply: Sendable {
    var response: HTTPResponse
    /// The bytes that the stretches are of.
    var body = StoredBody.none
    /// Stretches of the bytes, with texts between them.
    var parts: [BodyPart] = []
    /// What accounts for the memory of the bytes.
    var owner: (any AnyObject & Sendable)?
    var suffix = ""
    /// The length of the body, or of what a GET would have given.
    var length: Int64?
    var result: Answered.CacheResult

    /// Makes the answer.
    ///
    /// - Parameter boundary: Parts several ranges; a random text.
    init(
        _ tile: ServedTile, of source: ServedSource, to request: TileRequest, now: HTTPDate,
        boundary: @autoclosure () -> String
    ) {
        result = tile.result
        let metadata = tile.metadata
        let age = TileFields.age(metadata, now: now)
        (body, owner) = (tile.body, tile.owner)
        if case .none = tile.body {
            // The origin says that there is no such tile.
            let code = metadata.response.status
            var fields = TileFields.common(
                metadata, tag: nil, varies: false, mayBeKept: tile.mayBeKept, allowedOrigin: source.allowedOrigin)
            fields[.lastModified] = nil
            fields[.age] = String(age)
            tile.status.add(to: &fields)
            response = HTTPResponse(status: .init(code: code == 204 || code == 410 ? code : 404), headerFields: fields)
            length = code == 204 ? nil : 0
            return
        }
        var coding = tile.coding(of: source)
        let varies = coding != nil
        let isDecoded = tile.decoded != nil
        if let decoded = tile.decoded { (body, coding, owner) = (.memory(decoded.data), nil, decoded) }
        let tag =
            TileFields.tag(metadata, blob: tile.blob, isDecoded: isDecoded)
            ?? TileFields.tag(
                metadata, blob: tile.data?.withUnsafeBytes { BlobDigest(hashing: $0) }, isDecoded: isDecoded)
        var common = TileFields.common(
            metadata, tag: tag, varies: varies, mayBeKept: tile.mayBeKept, allowedOrigin: source.allowedOrigin)
        common[.age] = String(age)
        tile.status.add(to: &common)
        let validators = Validators(
            entityTag: tag.flatMap { EntityTag($0) },
            lastModified: metadata.lastModified.map { HTTPDate(seconds: $0.seconds) },
            date: metadata.date.map { HTTPDate(seconds: $0.seconds) })
        switch request.conditions.outcome(for: validators, method: request.method, role: .origin, now: now) {
        case .proceed, .forward: break
        case .notModified:
            response = HTTPResponse(status: .notModified, headerFields: common)
            return
        case .failed:
            response = HTTPResponse(status: .preconditionFailed, headerFields: common)
            length = 0
            return
        }
        var fields = common
        let size = Int64(body.count)
        let type = metadata.response.mediaType ?? Self.pictureType(body) ?? source.fallbackType
        for field in TileFields.content(type: type, coding: coding) { fields.append(field) }
        response = HTTPResponse(status: .ok, headerFields: fields)
        parts = size > 0 ? [BodyPart(prefix: "", bytes: 0..<size)] : []
        length = size
        guard request.conditions.range != nil else { return }
        let stored = StoredResponse(status: .ok, fields: fields, freshness: StoredFreshness(metadata))
        switch request.conditions.rangeOutcome(
            of: stored, length: size, method: request.method, age: age, boundary: boundary(), now: now)
        {
        case .whole: break
        case .partial(let plan):
            response = plan.response
            parts = plan.parts.map { BodyPart(prefix: $0.prefix, bytes: $0.bytes) }
            suffix = plan.suffix
            length = parts.reduce(Int64(suffix.utf8.count)) { $0 + Int64($1.prefix.utf8.count + $1.bytes.count) }
        case .unsatisfiable(let head):
            response = HTTPResponse(status: head.status, headerFields: common)
            response.headerFields[.contentRange] = head.headerFields[.contentRange]
            (parts, length) = ([], 0)
        }
    }

    private static func pictureType(_ body: StoredBody) -> String? {
        if case .memory(let data) = body { BodySignature(data).pictureType } else { nil }
    }

    /// Why there is no tile.
    init(_ refusal: Refusal, _ status: CacheStatus, of source: ServedSource) {
        self.init(
            refusal.status, refusal.words, allowedOrigin: source.allowedOrigin, cacheStatus: status,
            retryAfter: refusal.retryAfter)
    }

    /// A few words instead of a tile.
    init(
        _ status: Int, _ words: String, allowedOrigin: String?, cacheStatus: CacheStatus?, keepFor seconds: Int = 0,
        retryAfter: Int? = nil
    ) {
        var fields = HTTPFields()
        fields[.contentType] = "text/plain; charset=utf-8"
        fields[.cacheControl] = seconds > 0 ? "public, max-age=\(seconds)" : "no-store"
        fields[.accessControlAllowOrigin] = allowedOrigin
        fields[.retryAfter] = retryAfter.map(String.init)
        cacheStatus?.add(to: &fields)
        response = HTTPResponse(status: .init(code: status), headerFields: fields)
        suffix = words + "\n"
        length = Int64(suffix.utf8.count)
        result = .miss
    }
}
