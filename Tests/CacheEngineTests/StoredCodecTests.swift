import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine

/// How responses become entries of the store, and entries responses.
@Suite(.timeLimit(.minutes(60)))
struct StoredCodecTests {
    private static let now = Timestamp(seconds: 1_700_000_000)  // Tue, 14 Nov 2023 22:13:20 GMT
    private static let date = "Tue, 14 Nov 2023 22:13:20 GMT"
    private static let earlier = "Tue, 14 Nov 2023 22:13:00 GMT"
    private static let generic = CacheUse(
        policy: CachePolicy(kind: .shared, usesHeuristic: true), storedBodyBytes: 1000, name: "test")

    private func record(_ fields: HTTPFields, at time: Timestamp = now) -> AnswerRecord {
        Self.generic.record(
            HTTPResponse(status: .init(code: 200, reasonPhrase: "Fine"), headerFields: fields),
            to: HTTPRequest(method: .get, scheme: nil, authority: nil, path: "/"), requestedAt: HTTPDate(time),
            receivedAt: HTTPDate(time))
    }

    private func fields(_ list: [(String, String)]) -> HTTPFields {
        var fields = HTTPFields()
        for (name, value) in list {
            guard let name = HTTPField.Name(name) else { continue }
            fields.append(HTTPField(name: name, value: value))
        }
        return fields
    }

    // MARK: Golden entries

    /// An entry as the generic routes have always written it, and the fields that it stands for.
    private static let whole = TileMetadata(
        response: ResponseFields(
            status: 200, mediaType: "text/css", contentEncoding: "gzip", staleIfError: 600,
            headers: [
                .init(name: "Cache-Control", value: "max-age=60, stale-if-error=600"),
                .init(name: ":date", value: "-20"),
                .init(name: ":expires", value: "40"), .init(name: "X-Name", value: "\u{FC}"),
                .init(name: "X-Twice", value: "1"), .init(name: "X-Twice", value: "2"),
                .init(name: ":reason", value: "Fine"),
            ]), etag: "\"a\"", lastModified: Timestamp(seconds: 1_699_869_600), storedAt: now, date: now,
        initialAge: 20, expires: now.adding(seconds: 40))

    /// An entry as the library has always written it.
    private static let short = TileMetadata(
        response: ResponseFields(
            status: 200, mediaType: "image/png", staleWhileRevalidate: 30,
            headers: [.init(name: "Cache-Control", value: "max-age=60, stale-while-revalidate=30")]),
        etag: "W/\"\u{FC}\"", lastModified: Timestamp(seconds: 1_699_869_600), storedAt: now,
        date: now.adding(seconds: -20), initialAge: 20, expires: now.adding(seconds: 40))

    @Test
    func entriesOfBothFormerCodecsReadAsTheSameResponses() {
        var expected = fields([
            ("Cache-Control", "max-age=60, stale-if-error=600"), ("Date", Self.earlier),
            ("Expires", "Tue, 14 Nov 2023 22:14:00 GMT"),
        ])
        if let name = HTTPField.Name("X-Name") { expected.append(HTTPField(name: name, value: [0xFC])) }
        for (name, value) in fields([
            ("X-Twice", "1"), ("X-Twice", "2"), ("Content-Type", "text/css"), ("Content-Encoding", "gzip"),
            ("ETag", "\"a\""), ("Last-Modified", "Mon, 13 Nov 2023 10:00:00 GMT"),
        ]).map({ ($0.name, $0.value) }) { expected.append(HTTPField(name: name, value: value)) }
        let whole = storedResponse(of: Self.whole)
        #expect(whole.fields == expected)
        #expect(whole.status.code == 200 && whole.status.reasonPhrase == "Fine")
        let short = storedResponse(of: Self.short)
        #expect(
            short.fields
                == fields([
                    ("Cache-Control", "max-age=60, stale-while-revalidate=30"), ("Content-Type", "image/png"),
                    ("ETag", "W/\"\u{FC}\""), ("Last-Modified", "Mon, 13 Nov 2023 10:00:00 GMT"),
                    ("Date", Self.earlier),
                ]))
        for (metadata, response) in [(Self.whole, whole), (Self.short, short)] {
            #expect(response.freshness == StoredFreshness(of: metadata))
            #expect(response.freshness.initialAge == 20)
            #expect(response.freshness.expires == HTTPDate(Self.now.adding(seconds: 40)))
        }
    }

    @Test
    func anEntryIsWrittenAsItAlwaysWasButForTheOriginsDate() {
        let written = record(storedResponse(of: Self.whole).fields).intent.metadata
        #expect(written.response == Self.whole.response)
        var dated = Self.whole
        dated.date = Self.now.adding(seconds: -20)
        #expect(written == dated)
    }

    // MARK: Dates

    @Test
    func aDateOfOurOwnMakingOrdersNothing() {
        let undated = record([.cacheControl: "max-age=60"]).intent.metadata
        #expect(undated.date == nil)
        #expect(storedResponse(of: undated).fields[.date] == Self.date, "but clients are told one")
        #expect(
            record([.cacheControl: "max-age=60", .date: Self.earlier]).intent.metadata.date?.seconds == 1_699_999_980)
        // One that is ahead counts as the time of receipt.
        #expect(
            record([.cacheControl: "max-age=60", .date: "Tue, 14 Nov 2023 23:13:20 GMT"]).intent.metadata.date
                == Self.now)
        let again = Self.generic.refreshed(
            storedResponse(of: undated), by: HTTPResponse(status: 304),
            to: HTTPRequest(method: .get, scheme: nil, authority: nil, path: "/"), requestedAt: HTTPDate(Self.now),
            receivedAt: HTTPDate(Self.now))
        #expect(again.record.intent.metadata.date == nil)
    }

    /// A store in memory, and the keys of a route.
    private func makeStore() throws -> (TileStore, ResourceKeys) {
        let clock = ManualClock()
        let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
        let store = try TileStore(environment: clock.environment(files), configuration: StoreConfiguration())
        return (store, ResourceKeys(store: store, name: try SourceName("site")))
    }

    private func job(_ fields: HTTPFields, _ body: String, at time: Timestamp = now) throws -> StoreJob {
        .put(
            primary: try TileKey("site:/a"), record(fields, at: time).intent, body: .memory(Data(body.utf8)),
            request: [:])
    }

    /// RFC 9111 §4: of several responses the one with the most recent `Date` is used.
    @Test
    func aSlowAnswerDoesNotReplaceTheOneThatTheOriginMadeAfterIt() throws {
        let (store, keys) = try makeStore()
        let key = try TileKey("site:/a")
        _ = try job([.cacheControl: "max-age=60", .date: Self.date], "new").perform(store, keys)
        let outcome = try job(
            [.cacheControl: "max-age=60", .date: Self.earlier], "old", at: Self.now.adding(seconds: 5)
        ).perform(store, keys)
        #expect(outcome.isStored, "those who wait look again")
        #expect(try store.read(key)?.data == Data("new".utf8))
        // Without a Date of the origin's the later receipt counts.
        _ = try job([.cacheControl: "max-age=60"], "undated", at: Self.now.adding(seconds: 6)).perform(store, keys)
        #expect(try store.read(key)?.data == Data("undated".utf8))
        _ = try job([.cacheControl: "max-age=60", .date: Self.earlier], "dated").perform(store, keys)
        #expect(try store.read(key)?.data == Data("dated".utf8))
    }

    /// The nodes of an origin differ in their clocks: what is stale and made "later" must not send all who wait to it.
    @Test
    func anAnswerOlderThanAStaleOneIsNotKeptButAnswersThoseWhoWait() throws {
        let (store, keys) = try makeStore()
        _ = try job([.cacheControl: "max-age=1", .date: Self.date], "stale").perform(store, keys)
        let older: HTTPFields = [.cacheControl: "max-age=60", .date: Self.earlier]
        let fresh = try job(older, "older", at: Self.now).perform(store, keys)
        #expect(fresh.isStored, "they look again, and find a fresh one")
        let stale = try job(older, "older", at: Self.now.adding(seconds: 5)).perform(store, keys)
        #expect(!stale.isStored, "they get the answer from memory")
        #expect(try store.read(TileKey("site:/a"))?.data == Data("stale".utf8))
    }

    /// Entries from before said their receipt as `Date`: an origin whose clock is slow would be behind all of them.
    @Test
    func anEntryFromBeforeDatesWereKeptIsReplacedByTheAnswerOfASlowClock() throws {
        let (store, keys) = try makeStore()
        let key = try TileKey("site:/a")
        var former = record([.cacheControl: "max-age=1", .date: Self.earlier, .eTag: "\"a\""])
        former.intent.metadata.date = Self.now
        try store.put(Data("old".utf8), for: key, metadata: former.intent.metadata)
        let later = Self.now.adding(seconds: 10)
        // The origin's clock is 20 s behind.
        let slow: HTTPFields = [
            .cacheControl: "max-age=60", .date: "Tue, 14 Nov 2023 22:13:10 GMT", .eTag: "\"a\"",
        ]
        let entry = try #require(try store.entry(for: key))
        let candidate = Candidate(key: key, OpenedTile(entry: entry, body: .none), nil)
        let refresh = StoreJob.refresh(candidate, record(slow, at: later).intent.metadata)
        #expect(try refresh.perform(store, keys).isStored)
        #expect(try store.entry(for: key)?.metadata.storedAt == later)

        try store.put(Data("old".utf8), for: key, metadata: TileMetadata(storedAt: later, expires: later))
        former.intent.metadata.storedAt = later
        former.intent.metadata.date = later
        try store.put(Data("old".utf8), for: key, metadata: former.intent.metadata)
        _ = try job(slow, "new", at: later.adding(seconds: 5)).perform(store, keys)
        #expect(try store.read(key)?.data == Data("new".utf8))
    }

    /// The confirmation holds all the same: those who wait are answered and do not ask one after the other.
    @Test
    func aConfirmationOlderThanWhatItConfirmsIsNotKeptButHolds() throws {
        let (store, keys) = try makeStore()
        let key = try TileKey("site:/a")
        _ = try job([.cacheControl: "max-age=1", .date: Self.date, .eTag: "\"a\""], "whole").perform(store, keys)
        let entry = try #require(try store.entry(for: key))
        let candidate = Candidate(key: key, OpenedTile(entry: entry, body: .none), nil)
        let older = record(
            [.cacheControl: "max-age=60", .date: Self.earlier, .eTag: "\"a\""], at: Self.now.adding(seconds: 9))
        let outcome = try StoreJob.refresh(candidate, older.intent.metadata).perform(store, keys)
        #expect(!outcome.isStored && outcome.isCurrent)
        #expect(try store.entry(for: key) == entry)
        _ = try store.remove([key], includingPinned: true)
        let gone = try StoreJob.refresh(candidate, older.intent.metadata).perform(store, keys)
        #expect(!gone.isStored && !gone.isCurrent)
    }

    /// RFC 9111 §4.1.
    @Test
    func ofTwoVariantsThatMatchTheOneThatTheOriginMadeLastAnswers() throws {
        let (store, keys) = try makeStore()
        let key = try TileKey("site:/a")
        func put(_ vary: String, _ date: String?, _ body: String, after seconds: Int64) throws {
            var fields: HTTPFields = [.cacheControl: "max-age=600", .vary: vary]
            fields[.date] = date
            _ = try job(fields, body, at: Self.now.adding(seconds: seconds)).perform(store, keys)
        }
        func answer() throws -> String? {
            let request = CacheRequest(method: .get, fields: [:], target: "/a", key: key, hasBody: false)
            let found = try Lookup.find(request, keys) { key in
                try store.open(key, wholeUpTo: 1000).map { .tile($0) } ?? .miss
            }
            guard case .found(let candidate) = found, case .memory(let data) = candidate.body else { return nil }
            return String(decoding: data, as: UTF8.self)
        }
        try put("Accept", Self.date, "made last", after: 1)
        try put("Accept-Language", Self.earlier, "received last", after: 2)
        #expect(try answer() == "made last")
        try put("Accept-Encoding", nil, "undated", after: 3)
        #expect(try answer() == "undated", "its receipt counts as its Date")
    }

    /// A confirmation that names other fields in `Vary` moves a response, whose bytes may be too many for the memory.
    @Test(arguments: [10, 400_000])
    func aResponseThatMovesToAnotherVariantKeepsItsBytes(size: Int) throws {
        let (store, keys) = try makeStore()
        let key = try TileKey("site:/a")
        let body = String((0..<size).map { Character(Unicode.Scalar(97 + UInt8($0 % 23))) })
        _ = try job([.cacheControl: "max-age=600", .date: Self.date], body).perform(store, keys)
        let request = CacheRequest(
            method: .get, fields: [.acceptLanguage: "de"], target: "/a", key: key, hasBody: false)
        func look() throws -> Lookup {
            try Lookup.find(request, keys) { key in
                try store.open(key, wholeUpTo: 1000).map { .tile($0) } ?? .miss
            }
        }
        guard case .found(let candidate) = try look() else {
            Issue.record("not stored")
            return
        }
        let intent = record([.cacheControl: "max-age=600", .date: Self.date, .vary: "Accept-Language"]).intent
        let move = StoreJob.update(candidate, intent, for: request)
        guard case .move = move else {
            Issue.record("no move")
            return
        }
        #expect(try move.perform(store, keys).isStored)
        guard case .found(let moved) = try look() else {
            Issue.record("not moved")
            return
        }
        #expect(moved.key != key)
        #expect(try store.read(moved.key)?.data == Data(body.utf8))
    }
}
