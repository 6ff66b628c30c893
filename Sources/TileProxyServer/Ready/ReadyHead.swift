import CacheEngine
import HTTPCaching
import HTTPListener
import HTTPTypes
import HTTPWire
import NIOCore
import TileStore

/// The head of an answer from the store, made ready for all entries that share their ``ResponseFields``.
///
/// Fields that are the same for all are kept as bytes. The entity tag, dates, the age and lengths are filled in for each
/// answer.
final class ReadyHead {
    /// A part of a head.
    struct Piece {
        enum Kind: UInt8 {
            /// Constant bytes: those from `start` to `end`.
            case text
            /// The whole `ETag` line, if there is a tag.
            case tag
            /// The whole `Last-Modified` line, if there is such a time.
            case lastModified
            /// A date that lies `number` seconds after the time of receipt.
            case date
            case age
            /// What `Cache-Status` says of the time to live.
            case timeToLive
            /// `max-age`, and `s-maxage` where it differs; `number` is the origin's `max-age` for browsers, or -1.
            case lifetime
            /// The body's length.
            case length
        }

        var kind: Kind
        /// Whether a 304 has it too.
        var isInNotModified: Bool
        var start: Int32 = 0
        var end: Int32 = 0
        var number = 0
    }

    /// The shared fields it was made from; kept so that no other value can have their identity.
    let fields: ResponseFields
    let status: Int
    /// Whether it can be used; if not, all its entries take the long way.
    let isUsable: Bool
    /// Whether the body is gzip, for clients that accept it only.
    var needsGzip = false
    /// Whether the body must be checked: an undeclared gzip body takes the long way.
    var mustNotBeGzip = false
    /// Whether entries have a body; `nil` if both kinds may share it.
    var hasBody: Bool?
    /// Whether an entry without a tag gets one made from its digest.
    var makesTag = false
    /// How many targets use it.
    var uses = 0
    /// Whether the head has the entry's tag, so that `If-None-Match` can be decided and answered with 304.
    private(set) var isRevalidatable = false
    /// Whether the status is a success.
    var isSuccess: Bool { (200...299).contains(status) }
    private(set) var hasDate = false
    private var statusLine: [UInt8] = []
    private var text: [UInt8] = []
    private var pieces: [Piece] = []
    private var mostBytes = 0

    /// Longer heads are not kept.
    static let longest = 4096

    /// A head that cannot be used.
    init(unusable fields: ResponseFields) {
        self.fields = fields
        status = 0
        isUsable = false
    }

    /// Makes one from the long way's answers for an entry with the metadata of ``sample(of:)``.
    ///
    /// - Parameters:
    ///   - full: The answer to a GET.
    ///   - notModified: The answer to a GET with the sample's tag, if that is a 304.
    ///   - hasLength: Whether `Content-Length` is sent.
    ///   - cacheControl: How the lifetime is told, where that is not a stored field.
    init(
        _ fields: ResponseFields, full: HTTPResponse, notModified: HTTPResponse?, hasLength: Bool,
        cacheControl: TileCacheControl? = nil
    ) {
        self.fields = fields
        status = full.status.code
        var line = ByteBuffer()
        line.writeStatusLine(full.status.code, reason: full.status.reasonPhrase)
        statusLine = Array(line.readableBytesView)
        var builder = Builder(kept: notModified.map { Set($0.headerFields.map(\.name)) } ?? [])
        for field in full.headerFields { builder.add(field, fields, cacheControl) }
        if hasLength { builder.addLength() }
        (text, pieces, mostBytes) = (builder.text, builder.pieces, builder.mostBytes)
        hasDate = full.headerFields.contains(.date)
        isRevalidatable = notModified != nil && pieces.contains { $0.kind == .tag }
        isUsable = text.count + statusLine.count <= Self.longest
    }

    /// About how much memory it takes.
    var cost: Int { text.count + pieces.count * MemoryLayout<Piece>.stride + 400 }

    // MARK: The sample

    private static let sampleTag = "\"-- a tag that no server sends --\""
    private static let sampleModified = Timestamp(seconds: 900_000_001)
    private static let sampleReceipt = Timestamp(seconds: 1_000_000_000)
    private static let sampleStatus: CacheStatus = {
        var status = CacheStatus(cache: "tileproxy")
        status.hit = true
        status.timeToLive = 7
        return status
    }()

    /// Metadata with recognisable values, by which the fields that differ between entries are found in an answer.
    static func sample(of fields: ResponseFields) -> TileMetadata {
        TileMetadata(
            response: fields, etag: sampleTag, lastModified: sampleModified, storedAt: sampleReceipt,
            date: sampleReceipt, expires: sampleReceipt.adding(seconds: 7))
    }

    /// The conditions of a client that has the sample.
    static var sampleConditions: ClientPreconditions { ClientPreconditions([.ifNoneMatch: sampleTag]) }
    /// What `Cache-Status` says of the sample.
    static var sampleCacheStatus: CacheStatus { sampleStatus }
    static var sampleTime: HTTPDate { HTTPDate(seconds: sampleReceipt.seconds) }

    private struct Builder {
        let kept: Set<HTTPField.Name>
        var text: [UInt8] = []
        var pieces: [Piece] = []
        var mostBytes = 0

        mutating func add(_ field: HTTPField, _ fields: ResponseFields, _ cacheControl: TileCacheControl?) {
            let inBoth = kept.contains(field.name)
            switch field.name.canonicalName {
            // The connection's own fields are for the server to write.
            case "connection", "content-length", "transfer-encoding", "keep-alive": return
            default: break
            }
            switch field.name {
            case .eTag where field.value == ReadyHead.sampleTag:
                add(.tag, inBoth, 8 + KnownEntry.tagRoom)
                return
            case .lastModified
            where field.value == HTTPDate(seconds: ReadyHead.sampleModified.seconds).description:
                add(.lastModified, inBoth, 17 + 29)
                return
            default: break
            }
            add(field.name.rawName + ": ", inBoth)
            if field.name == .age {
                add(.age, inBoth, 20)
            } else if field.name == .cacheStatus, field.value == ReadyHead.sampleStatus.description {
                add("tileproxy; hit; ttl=", inBoth)
                add(.timeToLive, inBoth, 20)
            } else if field.name == .cacheControl, let cacheControl {
                add("public, ", inBoth)
                add(.lifetime, inBoth, 60, cacheControl.own ?? -1)
                add(cacheControl.rest, inBoth)
            } else if let distance = distance(of: field.name, fields) {
                add(.date, inBoth, 29, distance)
            } else {
                field.withUnsafeBytesOfValue { add($0, inBoth) }
            }
            add("\r\n", inBoth)
        }

        mutating func addLength() {
            add("Content-Length: ", false)
            add(.length, false, 20)
            add("\r\n", false)
        }

        /// How far a date lies from the time of receipt, if it is kept as a distance.
        private func distance(of name: HTTPField.Name, _ fields: ResponseFields) -> Int? {
            let marker = name == .date ? storedDateName : name == .expires ? storedExpiresName : nil
            guard let marker else { return nil }
            return fields.headers.first { $0.name == marker }.flatMap { Int($0.value) }
        }

        private mutating func add(_ bytes: some Sequence<UInt8>, _ inBoth: Bool) {
            let start = Int32(clamping: text.count)
            text.append(contentsOf: bytes)
            mostBytes += text.count - Int(start)
            let end = Int32(clamping: text.count)
            if let last = pieces.last, last.kind == .text, last.isInNotModified == inBoth, last.end == start {
                pieces[pieces.count - 1].end = end
            } else {
                pieces.append(Piece(kind: .text, isInNotModified: inBoth, start: start, end: end))
            }
        }

        private mutating func add(_ string: String, _ inBoth: Bool) { add(string.utf8, inBoth) }

        private mutating func add(_ kind: Piece.Kind, _ inBoth: Bool, _ most: Int, _ number: Int = 0) {
            pieces.append(Piece(kind: kind, isInNotModified: inBoth, number: number))
            mostBytes += most
        }
    }

    // MARK: Writing

    /// What differs from answer to answer.
    struct Values {
        let entry: KnownEntry
        let freshness: StoredFreshness
        let now: HTTPDate
        /// The entity tag's bytes; empty without one.
        let tag: UnsafeRawBufferPointer

        /// As ``CacheStatus`` says it.
        var timeToLive: Int { min(freshness.expires.seconds(since: now), 999_999_999) }
    }

    /// Writes the status line, `Date` and all fields but `Connection`.
    @inline(__always)
    func write(_ values: Values, isNotModified: Bool, _ time: LoopTime, into buffer: inout ByteBuffer) {
        if isNotModified {
            buffer.writeStaticString("HTTP/1.1 304 Not Modified\r\n")
        } else {
            buffer.writeBytes(statusLine)
        }
        if !hasDate { time.writeDate(into: &buffer) }
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: mostBytes) { room in
            var out = HeadWriter(room)
            text.withUnsafeBytes { text in
                for piece in pieces where piece.isInNotModified || !isNotModified {
                    write(piece, text, values, to: &out)
                }
            }
            return out.count
        }
    }

    /// About how many bytes ``write(_:isNotModified:_:into:)`` needs.
    var room: Int { statusLine.count + mostBytes + 64 }

    @inline(__always)
    private func write(
        _ piece: Piece, _ text: UnsafeRawBufferPointer, _ values: Values, to out: inout HeadWriter
    ) {
        switch piece.kind {
        case .text: out.write(text.part(Int(piece.start), Int(piece.end)))
        case .tag:
            guard !values.tag.isEmpty else { return }
            out.write("ETag: ")
            out.write(values.tag)
            out.write("\r\n")
        case .lastModified:
            guard let modified = values.entry.lastModified else { return }
            out.write("Last-Modified: ")
            out.write(HTTPDate(seconds: modified.seconds))
            out.write("\r\n")
        case .date: out.write(values.freshness.storedAt.adding(seconds: piece.number))
        case .age: out.write(values.freshness.age(at: values.now))
        case .timeToLive: out.write(values.timeToLive)
        case .length: out.write(values.entry.size)
        case .lifetime:
            let lifetime = TileFields.lifetime(values.freshness)
            if piece.number >= 0, piece.number < lifetime {
                out.write("max-age=")
                out.write(piece.number)
                out.write(", s-maxage=")
            } else {
                out.write("max-age=")
            }
            out.write(lifetime)
        }
    }
}
