import ContentCoding
import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileCache
import TileStore

@testable import TileProxyServer

/// What is stored, and the `Cache-Control` that clients get.
struct ControlRow: Sendable, CustomTestStringConvertible {
    var origin: String?
    var response: ResponseFields
    var lifetime: Int64 = 600
    var initialAge = 0
    var control: String
    var testDescription: String { control }
}

@Suite(.timeLimit(.minutes(60)))
struct TileFieldsTests {
    static let now = HTTPDate(seconds: 1_700_000_000)

    static func metadata(
        _ response: ResponseFields = ResponseFields(mediaType: "image/png"), lifetime: Int64 = 600, age: Int = 0,
        tag: String? = "\"v1\"", storedAgo: Int64 = 0
    ) -> TileMetadata {
        let stored = Timestamp(seconds: now.seconds - storedAgo)
        return TileMetadata(
            response: response, etag: tag, lastModified: Timestamp(seconds: 1_600_000_000), storedAt: stored,
            initialAge: age, expires: stored.adding(seconds: lifetime))
    }

    static let controls = [
        ControlRow(response: ResponseFields(), control: "public, max-age=600"),
        // RFC 9111 §4.2: who gets Age subtracts it, so what it was old at the start comes on top.
        ControlRow(response: ResponseFields(), initialAge: 40, control: "public, max-age=640"),
        ControlRow(response: ResponseFields(noCache: true), lifetime: 0, control: "public, max-age=0, no-cache"),
        ControlRow(response: ResponseFields(mustRevalidate: true), control: "public, max-age=600, must-revalidate"),
        ControlRow(
            response: ResponseFields(staleWhileRevalidate: 30, staleIfError: 60),
            control: "public, max-age=600, stale-while-revalidate=30, stale-if-error=60"),
        ControlRow(
            origin: "max-age=60, s-maxage=600", response: ResponseFields(), control: "public, max-age=60, s-maxage=600"),
        ControlRow(
            origin: "max-age=600, immutable", response: ResponseFields(), control: "public, max-age=600, immutable"),
        ControlRow(response: ResponseFields(), lifetime: -5, control: "public, max-age=0"),
    ]

    @Test(arguments: controls)
    func cacheControlLeavesClientsTheLifetimeThatIsLeft(_ row: ControlRow) {
        let old = row.response
        let headers = row.origin.map { [ResponseFields.Header(name: "Cache-Control", value: $0)] } ?? []
        let response = ResponseFields(
            status: 200, staleWhileRevalidate: old.staleWhileRevalidate, staleIfError: old.staleIfError,
            mustRevalidate: old.mustRevalidate, noCache: old.noCache, headers: headers)
        #expect(
            TileFields.cacheControl(Self.metadata(response, lifetime: row.lifetime, age: row.initialAge)) == row.control
        )
    }

    private func reply(
        _ tile: ServedTile? = nil, kind: String = "osm=https://h/{z}/{x}/{y}.png",
        _ change: (inout TileRequest) -> Void = { _ in }
    ) throws -> TileReply {
        var configuration = try SourceConfiguration(argument: kind)
        if kind.contains("pbf") { configuration.kind = .vector }
        let source = try ServedSource(configuration, index: 0)
        var request = TileRequest()
        change(&request)
        var status = CacheStatus(cache: "tileproxy")
        status.hit = true
        let body = Data("0123456789".utf8)
        let tile =
            tile
            ?? ServedTile(
                body: .memory(body), metadata: Self.metadata(storedAgo: 7), status: status, result: .hit)
        return TileReply(tile, of: source, to: request, now: Self.now, boundary: "b")
    }

    private func body(_ reply: TileReply) -> String {
        var text = ""
        for part in reply.parts {
            text += part.prefix
            guard case .memory(let data) = reply.body else { return "in a file" }
            text += String(decoding: data[Int(part.bytes.lowerBound)..<Int(part.bytes.upperBound)], as: UTF8.self)
        }
        return text + reply.suffix
    }

    @Test
    func aHitSaysWhereItCameFrom() throws {
        let reply = try reply()
        let fields = reply.response.headerFields
        #expect(reply.response.status == .ok && body(reply) == "0123456789" && reply.length == 10)
        #expect(fields[.age] == "7" && fields[.eTag] == "\"v1\"" && fields[.cacheControl] == "public, max-age=600")
        #expect(fields[.cacheStatus] == "tileproxy; hit" && fields[.accessControlAllowOrigin] == "*")
        #expect(fields[.contentType] == "image/png" && fields[.xContentTypeOptions] == "nosniff")
        #expect(fields[.vary] == nil && fields[.lastModified] == "Sun, 13 Sep 2020 12:26:40 GMT")
    }

    @Test
    func withoutATagOneIsMadeOfTheBytes() throws {
        let status = CacheStatus(cache: "c")
        func tag(_ text: String) throws -> String? {
            let tile = ServedTile(
                body: .memory(Data(text.utf8)), metadata: Self.metadata(tag: nil), status: status, result: .hit)
            return try reply(tile).response.headerFields[.eTag]
        }
        #expect(try tag("a") == tag("a") && tag("a") != tag("b"))
        #expect(try tag("a")?.count == 34)
    }

    @Test
    func conditionsAreAnswered() throws {
        var fields: HTTPFields = [.ifNoneMatch: "W/\"v1\""]
        let same = try reply { $0.conditions = ClientPreconditions(fields) }
        #expect(same.response.status == .notModified && same.parts.isEmpty && same.length == nil)
        #expect(same.response.headerFields[.eTag] == "\"v1\"" && same.response.headerFields[.contentType] == nil)
        fields = [.ifNoneMatch: "\"v2\"", .ifModifiedSince: "Sun, 13 Sep 2020 12:26:40 GMT"]
        #expect(try reply { $0.conditions = ClientPreconditions(fields) }.response.status == .ok)
        fields = [.ifModifiedSince: "Sun, 13 Sep 2020 12:26:40 GMT"]
        #expect(try reply { $0.conditions = ClientPreconditions(fields) }.response.status == .notModified)
        fields = [.ifMatch: "\"v2\""]
        #expect(try reply { $0.conditions = ClientPreconditions(fields) }.response.status == .preconditionFailed)
    }

    @Test
    func rangesAreAnswered() throws {
        var fields: HTTPFields = [.range: "bytes=2-4"]
        let part = try reply { $0.conditions = ClientPreconditions(fields) }
        #expect(part.response.status == .partialContent && body(part) == "234" && part.length == 3)
        #expect(part.response.headerFields[.contentRange] == "bytes 2-4/10")
        fields = [.range: "bytes=50-"]
        let none = try reply { $0.conditions = ClientPreconditions(fields) }
        #expect(none.response.status == .rangeNotSatisfiable && none.length == 0)
        #expect(none.response.headerFields[.contentRange] == "bytes */10")
        fields = [.range: "bytes=2-4", .ifRange: "\"other\""]
        #expect(try reply { $0.conditions = ClientPreconditions(fields) }.response.status == .ok)
    }

    /// `hello tile`, compressed by gzip(1).
    static let zipped = Data(base64Encoded: "H4sIAAAAAAAC/8tIzcnJVyjJzEkFAO+ftJMKAAAA") ?? Data()

    @Test
    func aCodingThatTheClientDoesNotTakeIsUndone() async throws {
        let metadata = Self.metadata(ResponseFields(mediaType: "application/x-protobuf", contentEncoding: "gzip"))
        var tile = ServedTile(
            body: .memory(Self.zipped), metadata: metadata, status: CacheStatus(cache: "c"), result: .hit)
        let coded = try reply(tile, kind: "v=https://h/{z}/{x}/{y}.pbf") { $0.permitsGzip = true }
        #expect(coded.response.headerFields[.contentEncoding] == "gzip" && coded.length == Int64(Self.zipped.count))
        let digest = Self.zipped.withUnsafeBytes { BlobDigest(hashing: $0) }
        guard case .decoded(let decoded) = await TileDecoder().decode(Self.zipped, digest) else {
            Issue.record("not decoded")
            return
        }
        tile.decoded = decoded
        let plain = try reply(tile, kind: "v=https://h/{z}/{x}/{y}.pbf")
        #expect(body(plain) == "hello tile" && plain.response.headerFields[.contentEncoding] == nil)
        #expect(plain.response.headerFields[.vary] == "Accept-Encoding")
        #expect(coded.response.headerFields[.vary] == "Accept-Encoding")
        #expect(
            plain.response.headerFields[.eTag] == "\"v1-identity\"" && coded.response.headerFields[.eTag] == "\"v1\"")
        // Each form is confirmed by its own tag.
        let fields: HTTPFields = [.ifNoneMatch: "\"v1\""]
        let other = try reply(tile, kind: "v=https://h/{z}/{x}/{y}.pbf") { $0.conditions = ClientPreconditions(fields) }
        #expect(other.response.status == .ok)
    }

    @Test
    func whatDoesNotDecodeIsGivenAsItIs() async throws {
        let metadata = Self.metadata(ResponseFields(contentEncoding: "gzip"))
        let broken = Self.zipped.prefix(20)
        let tile = ServedTile(body: .memory(broken), metadata: metadata, status: CacheStatus(cache: "c"), result: .hit)
        let reply = try reply(tile, kind: "v=https://h/{z}/{x}/{y}.pbf")
        #expect(reply.response.headerFields[.contentEncoding] == "gzip" && reply.length == 20)
        guard case .undecodable = await TileDecoder().decode(broken, broken.withUnsafeBytes { BlobDigest(hashing: $0) })
        else {
            Issue.record("decoded")
            return
        }
        #expect(Gzip.decode(Self.zipped, limit: 9) == nil, "ten bytes do not fit")
        #expect(Gzip.decode(Self.zipped, limit: 10)?.count == 10)
        #expect(Gzip.decode(Self.zipped + Self.zipped, limit: 99)?.count == 20, "two members are one content")
        #expect(Gzip.decode(Self.zipped + Data([1]), limit: 99) == nil)
    }

    @Test(arguments: [
        ("gzip", true), ("GZIP", true), ("deflate, gzip;q=0.5", true), ("gzip;q=0", false), ("gzip; q=0.000", false),
        ("*", true), ("*;q=0", false), ("br", false), ("identity", false), ("", false), ("x-gzip", true),
        ("*;q=0, gzip", true),
    ])
    func acceptEncodingIsRead(_ value: String, _ permits: Bool) {
        #expect(Array(value.utf8).withUnsafeBytes(AcceptedCoding.permitsGzip) == permits)
    }

    @Test
    func anAbsentTileStaysAbsentForAWhile() throws {
        let metadata = Self.metadata(ResponseFields(status: 404), lifetime: 300)
        let tile = ServedTile(body: .none, metadata: metadata, status: CacheStatus(cache: "c"), result: .hit)
        let reply = try reply(tile)
        #expect(reply.response.status == .notFound && reply.length == 0 && reply.parts.isEmpty)
        #expect(reply.response.headerFields[.cacheControl] == "public, max-age=300")
        #expect(reply.response.headerFields[.accessControlAllowOrigin] == "*")
    }

    @Test
    func whatMayNotBeStoredIsNotKeptByClientsEither() throws {
        var tile = ServedTile(
            body: .memory(Data("x".utf8)), metadata: Self.metadata(), status: CacheStatus(cache: "c"), result: .miss)
        tile.mayBeKept = false
        #expect(try reply(tile).response.headerFields[.cacheControl] == "no-store")
    }

    @Test
    func aPictureThatCouldRunScriptsMayNot() throws {
        let tile = ServedTile(
            body: .memory(Data("<svg/>".utf8)), metadata: Self.metadata(ResponseFields(mediaType: "image/svg+xml")),
            status: CacheStatus(cache: "c"), result: .hit)
        #expect(try reply(tile).response.headerFields[.contentSecurityPolicy]?.contains("sandbox") == true)
    }
}
