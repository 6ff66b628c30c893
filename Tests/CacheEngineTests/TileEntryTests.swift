import HTTPCaching
import HTTPTypes
import Testing
import TileStore

@testable import CacheEngine

/// What entries keep of tiles: few fields, the same for most.
@Suite(.timeLimit(.minutes(60)))
struct TileEntryTests {
    private let now = Timestamp(seconds: 1_700_000_000)
    private let request = HTTPRequest(
        method: .get, scheme: "https", authority: "a", path: "/", headerFields: [.authorization: "Bearer secret"])

    private func use(_ kind: CacheKind) -> CacheUse {
        CacheUse(
            tiles: CachePolicy(kind: kind, defaultLifetime: 7 * 86_400), absent: 3600, staleOnError: 0,
            storedBodyBytes: 1000,
            name: "test")
    }

    private func record(_ status: Int, _ fields: HTTPFields, _ kind: CacheKind = .private) -> AnswerRecord {
        use(kind).record(
            HTTPResponse(status: HTTPResponse.Status(code: status), headerFields: fields), to: request,
            requestedAt: HTTPDate(now), receivedAt: HTTPDate(now))
    }

    private func refresh(
        _ stored: TileMetadata, _ fields: HTTPFields, _ kind: CacheKind = .private, after seconds: Int64 = 100
    ) -> AnswerRecord {
        let then = HTTPDate(now.adding(seconds: seconds))
        return use(kind).refreshed(
            storedResponse(of: stored), by: HTTPResponse(status: 304, headerFields: fields), to: request,
            requestedAt: then, receivedAt: then
        ).record
    }

    /// Status, fields, seconds of life, whether it is kept.
    private static let lifetimes: [(Int, HTTPFields, Int64, Bool)] = [
        (200, [:], 7 * 86_400, true),
        (200, [.eTag: "\"a\""], 7 * 86_400, true),
        (200, [.cacheControl: "max-age=60"], 60, true),
        (200, [.cacheControl: "max-age=60, s-maxage=5"], 60, true),
        (200, [.cacheControl: "no-store"], 0, false),
        (200, [.cacheControl: "public"], 0, true),
        (200, [.vary: "*", .cacheControl: "max-age=60"], 60, false),
        (200, [.vary: "Cookie", .cacheControl: "max-age=60"], 60, true),
        (200, [.expires: "0"], 0, true),
        (200, [.date: "Tue, 14 Nov 2023 22:13:20 GMT", .expires: "Tue, 14 Nov 2023 22:14:20 GMT"], 60, true),
        (200, [.cacheControl: "max-age=60", .age: "20"], 40, true),
        (404, [:], 3600, true), (410, [:], 3600, true), (204, [:], 3600, true),
        (404, [.cacheControl: "max-age=5"], 5, true),
        (404, [.cacheControl: "no-cache"], 0, true),
        (404, [.cacheControl: "no-store"], 3600, false),
    ]

    @Test func lifetimesFollowTheServerAndThenTheSource() {
        for (status, fields, seconds, isKept) in Self.lifetimes {
            let outcome = record(status, fields)
            #expect(outcome.isStorable == isKept, "\(status) \(fields)")
            if isKept {
                #expect(outcome.intent.metadata.expires == now.adding(seconds: seconds), "\(status) \(fields)")
            }
        }
    }

    @Test func whatWasKeptReadsBackAsTheSameFields() {
        let fields: HTTPFields = [
            .cacheControl: "public, max-age=60, stale-while-revalidate=30, stale-if-error=90", .eTag: "W/\"x\"",
            .lastModified: "Mon, 13 Nov 2023 10:00:00 GMT", .contentType: "image/png", .contentEncoding: "gzip",
            .date: "Tue, 14 Nov 2023 22:13:20 GMT", .setCookie: "id=secret", .server: "nginx",
        ]
        let metadata = record(200, fields).intent.metadata
        #expect(metadata.response.staleWhileRevalidate == 30 && metadata.response.staleIfError == 90)
        let read = storedResponse(of: metadata).fields
        for name in [
            HTTPField.Name.cacheControl, .eTag, .lastModified, .contentType, .contentEncoding, .date,
        ] { #expect(read[name] == fields[name]) }
        #expect(read[.setCookie] == nil && read[.server] == nil)
    }

    @Test func fieldsThatAreTooLongOrEmptyAreNotKept() {
        let long = String(repeating: "x", count: 2000)
        let metadata = record(
            200, [.eTag: "\"\(long)\"", .contentType: long, .contentEncoding: "", .cacheControl: "max-age=60, \(long)"]
        ).intent.metadata
        #expect(metadata.etag == nil && metadata.response.mediaType == nil && metadata.response.contentEncoding == nil)
        #expect(metadata.response.headers.isEmpty)
        #expect(record(200, [.contentEncoding: "Identity"]).intent.metadata.response.contentEncoding == nil)
    }

    /// RFC 9111 §4.3.4.
    @Test func a304BringsTheLifetimeUpToDate() {
        let stored = record(200, [.cacheControl: "max-age=60", .eTag: "\"a\"", .contentType: "image/png"]).intent
            .metadata
        let same = refresh(stored, [.eTag: "\"a\""])
        #expect(same.isStorable && same.intent.metadata.expires == now.adding(seconds: 160))
        #expect(same.intent.metadata.response == stored.response, "nothing new: the shared set stays")
        let longer = refresh(stored, [.eTag: "\"a\"", .cacheControl: "max-age=600", .contentType: "text/html"])
        #expect(longer.intent.metadata.expires == now.adding(seconds: 700))
        #expect(longer.intent.metadata.response.mediaType == "image/png")
        #expect(refresh(stored, [:]).intent.metadata.etag == "\"a\"")
        #expect(refresh(stored, [.cacheControl: "no-store"]).isStorable == false)
    }

    @Test func a304KeepsTheDefaultLifetimeAndTheOneByExpires() throws {
        let plain = record(200, [.eTag: "\"a\""]).intent.metadata
        #expect(refresh(plain, [:]).intent.metadata.expires == now.adding(seconds: 100 + 7 * 86_400))
        let dated = record(
            200,
            [.eTag: "\"a\"", .date: "Tue, 14 Nov 2023 22:13:20 GMT", .expires: "Tue, 14 Nov 2023 22:14:20 GMT"]
        ).intent.metadata
        let again = refresh(dated, [.expires: "Tue, 14 Nov 2023 22:20:00 GMT"])
        #expect(again.intent.metadata.expires == now.adding(seconds: 400))
    }

    /// RFC 9213 §2.2: what decided about the answer decides after a 304 that does not repeat it.
    @Test func theTargetedFieldThatDecidedIsKept() throws {
        let name = try #require(HTTPField.Name("CDN-Cache-Control"))
        let stored = record(200, [name: "max-age=600", .cacheControl: "max-age=1", .eTag: "\"a\""], .shared)
        #expect(stored.intent.metadata.expires == now.adding(seconds: 600))
        let again = refresh(stored.intent.metadata, [.eTag: "\"a\""], .shared)
        #expect(again.intent.metadata.expires == now.adding(seconds: 700))
    }

    /// The operator's own credentials are no user's (RFC 9111 §3.5).
    @Test func aSharedCacheKeepsWhatItsOwnCredentialsFetched() {
        #expect(record(200, [.cacheControl: "max-age=60"], .shared).isStorable)
        #expect(!record(200, [.cacheControl: "private, max-age=60"], .shared).isStorable)
    }
}
