import ContentCoding
import HTTPCaching
import HTTPTypes
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
    var data: Data?
    var metadata: TileMetadata
    /// The name of its bytes, if it is known without hashing them.
    var blob: BlobDigest?
    /// What `Cache-Status` says.
    var status: CacheStatus
    /// The same for the figures.
    var result: Answered.CacheResult
    /// Whether clients may keep it.
    var mayBeKept = true
}

/// An answer about a tile, as the client's conditions, range and codings want it: a value.
struct TileReply: Sendable {
    var response: HTTPResponse
    /// Stretches of the bytes, with texts between them.
    var parts: [(prefix: String, bytes: Data)] = []
    var suffix = ""
    /// The length of the body, or of what a GET would have given.
    var length: Int64?
    var result: Answered.CacheResult

    /// The largest tile that is decoded for clients that cannot.
    static let decodedLimit = 64 << 20

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
        guard var data = tile.data else {
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
        var coding = metadata.response.contentEncoding
        if coding == nil, source.configuration.servedKind == .vector, data.starts(with: [0x1F, 0x8B]) {
            coding = "gzip"
        }
        let varies = coding != nil
        var isDecoded = false
        if coding?.lowercased() == "gzip" || coding?.lowercased() == "x-gzip", !request.permitsGzip,
            let decoded = Gzip.decode(data, limit: Self.decodedLimit)
        {
            (data, coding, isDecoded) = (decoded, nil, true)
        }
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
        let type = metadata.response.mediaType ?? BodySignature(data).pictureType ?? source.fallbackType
        for field in TileFields.content(type: type, coding: coding) { fields.append(field) }
        response = HTTPResponse(status: .ok, headerFields: fields)
        parts = [("", data)]
        length = Int64(data.count)
        guard request.conditions.range != nil else { return }
        let stored = StoredResponse(status: .ok, fields: fields, freshness: StoredFreshness(metadata))
        switch request.conditions.rangeOutcome(
            of: stored, length: Int64(data.count), method: request.method, age: age, boundary: boundary(), now: now)
        {
        case .whole: break
        case .partial(let plan):
            response = plan.response
            let start = data.startIndex
            parts = plan.parts.map { part in
                (part.prefix, data[(start + Int(part.bytes.lowerBound))..<(start + Int(part.bytes.upperBound))])
            }
            suffix = plan.suffix
            length = parts.reduce(Int64(suffix.utf8.count)) { $0 + Int64($1.prefix.utf8.count + $1.bytes.count) }
        case .unsatisfiable(let head):
            response = HTTPResponse(status: head.status, headerFields: common)
            response.headerFields[.contentRange] = head.headerFields[.contentRange]
            (parts, length) = ([], 0)
        }
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
        let body = Data((words + "\n").utf8)
        parts = [("", body)]
        length = Int64(body.count)
        result = .miss
    }
}
