import Foundation
import HTTPCaching
import HTTPTypes
import NIOCore
import NIOPosix
import ObjectStorage
import SharedTier
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// Two proxies with one bucket.
@Suite(.timeLimit(.minutes(60)))
struct SharedTierTests {
    private static let plain = "osm=https://tiles.example/{z}/{x}/{y}.png"

    private static let sea: @Sendable (HTTPRequest) async throws -> TileLab.Answer = { request in
        let fields: HTTPFields = [.cacheControl: "max-age=60", .eTag: "\"v1\"", .contentType: "image/png"]
        if request.headerFields[.ifNoneMatch] == "\"v1\"" { return TileLab.Answer(status: 304, fields: fields) }
        if request.path == "/3/7/7.png" { return TileLab.Answer(status: 404) }
        return TileLab.Answer(fields: fields, body: TileLab.png("tile \(request.path ?? "")"))
    }

    /// Runs a test with two proxies that have read the index.
    private func withTwo(
        _ source: String = Self.plain, _ change: (inout SourceConfiguration) -> Void = { _ in },
        timeout: Duration = .seconds(3600),
        origin: @escaping @Sendable (HTTPRequest) async throws -> TileLab.Answer = Self.sea,
        _ body: (MemoryBucket, TileLab, TileLab) async throws -> Void
    ) async throws {
        var configuration = try SourceConfiguration(argument: source)
        change(&configuration)
        let clock = Locked(ManualClock())
        let bucket = MemoryBucket(now: { clock.withLock { $0.now } })
        let a = try await TileLab([configuration], bucket: bucket, timeout: timeout, origin: origin)
        let b = try await TileLab([configuration], bucket: bucket, timeout: timeout, origin: origin)
        // The bucket has the right time.
        clock.withLock { $0 = a.clock }
        for lab in [a, b] { await lab.readSharedIndex() }
        let result: Result<Void, any Error>
        do { result = .success(try await body(bucket, a, b)) } catch { result = .failure(error) }
        try await a.end()
        try await b.end()
        try result.get()
    }

    /// What was handed to the bucket is there.
    private func isWritten(_ lab: TileLab) async {
        while lab.shared?.figures.waiting != 0 { await Task.yield() }
    }

    @Test func whatOneHasSeenTheOtherServesWithoutTheOrigin() async throws {
        try await withTwo { bucket, a, b in
            var paths: [String] = []
            for x in 0..<8 { for y in 0..<8 { paths.append("/tiles/osm/3/\(x)/\(y)") } }
            var bodies: [String: Data] = [:]
            for path in paths { bodies[path] = try await a.get(path).body }
            await isWritten(a)
            #expect(a.origin.count == 64 && bucket.written.count == 64)
            b.origin.become { _ in throw TransportFailure() }
            for path in paths {
                let answer = try await b.get(path)
                let isAbsent = path == "/tiles/osm/3/7/7"
                #expect(answer.status == (isAbsent ? 404 : 200) && answer.body == bodies[path])
                let status = answer[.cacheStatus] ?? ""
                #expect(status.hasPrefix("tileproxy-shared; hit, tileproxy; fwd=uri-miss;"), "\(status)")
            }
            #expect(b.origin.count == 0 && bucket.written.count == 64)
            // From then on it is its own.
            let again = try await b.get("/tiles/osm/3/1/1")
            #expect(again[.cacheStatus]?.hasPrefix("tileproxy; hit") ?? false)
            #expect(again[.eTag] == "\"v1\"" && again[.contentType] == "image/png")
            let figures = try #require(b.shared?.figures)
            #expect(figures.hits == 64 && figures.misses == 0 && figures.errors == 0)
        }
    }

    @Test func whatIsConfirmedIsSharedAnew() async throws {
        try await withTwo { bucket, a, b in
            _ = try await a.get("/tiles/osm/3/1/1")
            await isWritten(a)
            for lab in [a, b] { lab.clock.advance(seconds: 100) }
            await a.readSharedIndex()
            await b.readSharedIndex()
            #expect(try await a.get("/tiles/osm/3/1/1")[.cacheStatus]?.contains("fwd-status=304") ?? false)
            await isWritten(a)
            #expect(bucket.written.count == 2 && Set(bucket.written).count == 1)
            let answer = try await b.get("/tiles/osm/3/1/1")
            #expect(answer.status == 200 && b.origin.count == 0)
        }
    }

    /// The bucket would give back what an operator has just expired; or what another proxy had asked for before that.
    @Test func whatIsExpiredHereIsAskedForAtTheOrigin() async throws {
        try await withTwo { _, a, b in
            let key = try TileKey("osm/3/1/1")
            func expire(_ lab: TileLab) throws {
                // The store's own clock is another one.
                let entry = try #require(try lab.store.entry(for: key))
                var stale = entry.metadata
                stale.expires = lab.clock.now
                #expect(try lab.store.refresh(entry.key, from: EntryVersion(entry), metadata: stale))
            }
            func pass(_ seconds: Int64) async {
                for lab in [a, b] {
                    lab.clock.advance(seconds: seconds)
                    await lab.readSharedIndex()
                }
            }
            _ = try await a.get("/tiles/osm/3/1/1")
            await isWritten(a)
            _ = try await b.get("/tiles/osm/3/1/1")
            for lab in [b, a] {
                await pass(3)
                try expire(lab)
                let answer = try await lab.get("/tiles/osm/3/1/1")
                #expect(answer[.cacheStatus]?.contains("fwd-status=304") ?? false, "\(answer[.cacheStatus] ?? "")")
                await isWritten(lab)
            }
            #expect(a.origin.count == 2 && b.origin.count == 1)
            // What another one has asked for since is as good as the origin's.
            await pass(3)
            try expire(a)
            await pass(3)
            try expire(b)
            _ = try await b.get("/tiles/osm/3/1/1")
            await isWritten(b)
            let answer = try await a.get("/tiles/osm/3/1/1")
            #expect(answer[.cacheStatus]?.contains("tileproxy-shared; hit") ?? false)
            // And what another one has confirmed is taken when the time of one's own is over.
            #expect(a.origin.count == 2 && b.origin.count == 2)
            await pass(30)
            try expire(b)
            _ = try await b.get("/tiles/osm/3/1/1")
            await isWritten(b)
            await pass(35)
            #expect(try await a.get("/tiles/osm/3/1/1")[.cacheStatus]?.contains("tileproxy-shared; hit") ?? false)
            #expect(a.origin.count == 2 && b.origin.count == 3)
        }
    }

    @Test func aMarkReachesBoth() async throws {
        try await withTwo { bucket, a, b in
            _ = try await a.get("/tiles/osm/3/1/1")
            await isWritten(a)
            _ = try await b.get("/tiles/osm/3/1/1")
            // The ready way has it now.
            #expect(try await b.get("/tiles/osm/3/1/1")[.cacheStatus]?.hasPrefix("tileproxy; hit") ?? false)
            for lab in [a, b] { lab.clock.advance(seconds: 10) }
            var marks = Marks()
            marks.raise(try SourceName("osm"), to: Epoch.first.next(at: a.clock.now, random: 1))
            bucket.set(marks)
            for lab in [a, b] { await lab.readSharedIndex() }
            _ = try await a.get("/tiles/osm/3/1/1")
            #expect(a.origin.count == 2)
            _ = try await b.get("/tiles/osm/3/2/2")
            #expect(b.origin.count == 1)
        }
    }

    /// What an origin is asked for before the fleet expires it, and answers after that, was fresh for its whole lifetime.
    ///
    /// - Parameter isHeard: Whether this proxy has heard of the mark by the time of the answer, or hears of it later.
    @Test(arguments: [(304, true), (304, false), (200, true), (200, false)])
    func anAnswerThatWasAskedForBeforeAnExpiryIsStaleAfterIt(_ status: Int, isHeard: Bool) async throws {
        let lab = Locked<(TileLab, MemoryBucket)?>(nil)
        try await withTwo(origin: { request in
            // Only the request that is about to be overtaken.
            if let (lab, bucket) = lab.withLock({ $0 }), lab.origin.count == (status == 304 ? 2 : 1) {
                lab.clock.advance(seconds: 5)
                var marks = Marks()
                marks.raise(try SourceName("osm"), to: Epoch.first.next(at: lab.clock.now, random: 1))
                bucket.set(marks)
                lab.clock.advance(seconds: 6)
                if isHeard { await lab.readSharedIndex() }
            }
            return try await Self.sea(request)
        }) { bucket, a, _ in
            lab.withLock { $0 = (a, bucket) }
            var asked = 1
            if status == 304 {
                _ = try await a.get("/tiles/osm/3/1/1")
                await isWritten(a)
                bucket.names.forEach { bucket[$0] = nil }
                a.clock.advance(seconds: 100)
                await a.readSharedIndex()
                asked = 2
            }
            let overtaken = try await a.get("/tiles/osm/3/1/1")
            #expect(overtaken.status == 200 && a.origin.count == asked)
            await a.readSharedIndex()
            let next = try await a.get("/tiles/osm/3/1/1")
            #expect(a.origin.count == asked + 1, "\(next[.cacheStatus] ?? "")")
            // What was asked for after it is a hit.
            a.clock.advance(seconds: 3)
            _ = try await a.get("/tiles/osm/3/1/1")
            #expect(try await a.get("/tiles/osm/3/1/1")[.cacheStatus]?.hasPrefix("tileproxy; hit") ?? false)
        }
    }

    /// The redirect said which file, before the expiry; only the request for the file came after it.
    @Test func aRedirectThatWasAskedForBeforeAnExpiryIsStaleAfterIt() async throws {
        let lab = Locked<(TileLab, MemoryBucket)?>(nil)
        try await withTwo(origin: { request in
            guard request.path != "/old.png" else { return try await Self.sea(request) }
            if let (lab, bucket) = lab.withLock({ $0 }), lab.origin.count == 1 {
                lab.clock.advance(seconds: 5)
                var marks = Marks()
                marks.raise(try SourceName("osm"), to: Epoch.first.next(at: lab.clock.now, random: 1))
                bucket.set(marks)
                lab.clock.advance(seconds: 6)
                await lab.readSharedIndex()
            }
            return TileLab.Answer(status: 302, fields: [.location: "/old.png"])
        }) { bucket, a, b in
            lab.withLock { $0 = (a, bucket) }
            #expect(try await a.get("/tiles/osm/3/1/1").status == 200)
            #expect(a.origin.count == 2)
            await isWritten(a)
            await b.readSharedIndex()
            let other = try await b.get("/tiles/osm/3/1/1")
            #expect(b.origin.count == 2, "\(other[.cacheStatus] ?? "")")
            _ = try await a.get("/tiles/osm/3/1/1")
            #expect(a.origin.count > 2)
        }
    }

    /// Its bytes have the name that its object says, and are a page of HTML; an origin's would not have been taken.
    @Test(arguments: ["text/html", "image/png"])
    func whatIsNoTileIsNotTakenFromTheBucketEither(_ type: String) async throws {
        try await withTwo { bucket, a, b in
            _ = try await a.get("/tiles/osm/3/1/1")
            await isWritten(a)
            let name = try #require(bucket.names.first { $0 != "marks.json" })
            let page = Data("<html><script>alert(1)</script></html>".utf8)
            var object = try #require(bucket[name])
            var values = object.metadata.values
            values["type"] = Array(type.utf8)
            values["sha256"] = Array(page.withUnsafeBytes { BlobDigest(hashing: $0) }.description.utf8)
            object.metadata = try S3Metadata(values)
            object.bytes = ByteBuffer(bytes: page)
            bucket[name] = object
            let answer = try await b.get("/tiles/osm/3/1/1")
            #expect(b.origin.count == 1 && answer.body == TileLab.png("tile /3/1/1.png"))
            #expect(b.shared?.figures.errors == 1 && b.shared?.figures.hits == 0)
        }
    }

    @Test(arguments: ["authorization", "cookie"])
    func whatIsHadByCredentialsIsNotSharedUnlessTheOperatorSaysSo(_ name: String) async throws {
        for says in [nil, true, false] as [Bool?] {
            try await withTwo(Self.plain, change(name, says)) { bucket, a, _ in
                _ = try await a.get("/tiles/osm/3/1/1")
                await isWritten(a)
                #expect(bucket.written.count == (says == true ? 1 : 0))
                #expect(!bucket.names.contains { $0.contains("secret") })
            }
        }
        try await withTwo(Self.plain, { $0.isShared = false }) { bucket, a, _ in
            _ = try await a.get("/tiles/osm/3/1/1")
            await isWritten(a)
            #expect(bucket.written.isEmpty)
        }
    }

    private func change(_ name: String, _ says: Bool?) -> (inout SourceConfiguration) -> Void {
        { source in
            source.headers = [HTTPField.Name(name)!: "secret"]
            source.isShared = says
        }
    }

    @Test(arguments: ["no-store", "private", "no-cache"])
    func whatASharedCacheMayNotStoreIsNotShared(_ directive: String) async throws {
        try await withTwo(
            Self.plain,
            origin: { _ in
                TileLab.Answer(fields: [.cacheControl: directive, .contentType: "image/png"], body: TileLab.png("x"))
            }
        ) { bucket, a, b in
            _ = try await a.get("/tiles/osm/3/1/1")
            await isWritten(a)
            _ = try await b.get("/tiles/osm/3/1/1")
            #expect(b.origin.count == 1)
            #expect(directive == "no-cache" || bucket.written.isEmpty)
        }
    }

    /// Whatever the bucket does, a client has its tile.
    @Test(arguments: [MemoryBucket.Mode.fails, .isReadOnly])
    func aBucketThatFailsIsNotInTheWay(_ mode: MemoryBucket.Mode) async throws {
        try await withTwo { bucket, a, b in
            bucket.mode = mode
            for x in 0..<8 {
                let (one, other) = (try await a.get("/tiles/osm/3/\(x)/1"), try await b.get("/tiles/osm/3/\(x)/1"))
                #expect(one.status == 200 && other.status == 200)
            }
            #expect(a.origin.count == 8 && b.origin.count == 8)
        }
    }

    @Test func aBucketThatHangsCostsItsTimeoutAFewTimes() async throws {
        try await withTwo(timeout: .milliseconds(1)) { bucket, a, _ in
            bucket.mode = .hangs
            for x in 0..<8 {
                let answer = try await a.get("/tiles/osm/3/\(x)/1")
                #expect(answer.status == 200)
            }
            #expect(a.shared?.figures.errors == Breaker.mostFailures && a.shared?.figures.skipped == 3)
            bucket.mode = .works
        }
    }

    @Test func sourcesOfOneNameThatDifferShareNothing() throws {
        func source(
            _ template: String, _ change: (inout SourceConfiguration) -> Void = { _ in }
        ) throws -> SharedSource? {
            var source = try SourceConfiguration(argument: "osm=" + template)
            change(&source)
            return source.sharedSource
        }
        let other = try source("https://a.example/{z}/{x}/{y}.png?style=dark&key=1") { $0.kind = .vector }
        let one = try #require(try source("https://a.example/{z}/{x}/{y}.png?style=dark&key=1"))
        #expect(try source("https://a.example/{z}/{x}/{y}.png?style=dark&key=2") == one)
        #expect(try source("https://a.example/{z}/{x}/{y}.png?style=light&key=1") != one)
        #expect(try source("https://b.example/{z}/{x}/{y}.png?style=dark&key=1") != one)
        #expect(other != nil && other != one)
        #expect(try source("/tiles/{z}/{x}/{y}.png") == nil)
        let plain = SourceConfiguration.withoutSecrets("https://h/{z}?a=1&api_key=2&token=3")
        #expect(plain == "https://h/{z}?a=1&api_key=&token=")
    }

    /// By parts of their names they were taken for keys: tiles of one design were served for another.
    ///
    /// And those of one user for another, as a user's name was taken for a key.
    @Test(arguments: [
        "design", "keyword", "userstyle", "signal", "passage", "user", "username", "user_id", "clientId", "session",
    ])
    func whatOnlySoundsLikeAKeyTellsSourcesApart(_ name: String) throws {
        func source(_ value: String) throws -> [SharedSource?] {
            var inPath = try SourceConfiguration(argument: Self.plain)
            (inPath.template, inPath.values) = ("https://a.example/{\(name)}/{z}/{x}/{y}.png", [name: value])
            let inQuery = try SourceConfiguration(argument: "osm=https://a.example/{z}/{x}/{y}.png?\(name)=\(value)")
            return [inPath.sharedSource, inQuery.sharedSource]
        }
        let (dark, light) = (try source("dark"), try source("light"))
        #expect(zip(dark, light).allSatisfy { $0 != nil && $0 != $1 })
    }

    @Test(arguments: ["key", "api_key", "apikey", "access-token", "mapKey", "X-Signature", "app_id"])
    func keysTellNothing(_ name: String) throws {
        let template = SourceConfiguration.withoutSecrets("https://h/{z}?\(name)=hidden")
        #expect(template == "https://h/{z}?\(name)=")
    }

    /// A field with another name than Authorization was no secret, hosts and styles in fields told nothing.
    @Test func fieldsThatMayBeCredentialsAndThoseThatTellSourcesApart() throws {
        func source(
            _ fields: HTTPFields, isShared: Bool? = nil, _ change: (inout SourceConfiguration) -> Void = { _ in }
        ) throws -> SharedSource? {
            var source = try SourceConfiguration(argument: Self.plain)
            (source.headers, source.isShared) = (fields, isShared)
            change(&source)
            return source.sharedSource
        }
        let key = try #require(HTTPField.Name("X-Api-Key"))
        let style = try #require(HTTPField.Name("X-Style"))
        let host = try #require(HTTPField.Name("Host"))
        let plain = try #require(try source([:]))
        #expect(try source([key: "1"]) == nil && source([style: "dark"]) == nil)
        #expect(try source([key: "1"], isShared: true) == plain)
        #expect(try source([style: "dark"], isShared: true) != source([style: "light"], isShared: true))
        #expect(try source([.userAgent: "me"]) == plain)
        let other = try source([host: "dark.example"])
        #expect(other != nil && other != plain)
        // One that holds tiles for longer than their server says would have the others do so too.
        #expect(try source([:]) { $0.lifetimes.minimum = .seconds(86_400) } == nil)
        let one = try source([:]) { $0.subdomains = ["a"] }
        let two = try source([:]) { $0.subdomains = ["b"] }
        #expect(one != nil && one != two)
    }

    /// Expired here, and forbidden to be stored since, it came back from the bucket.
    @Test func whatMustNotBeStoredAnyMoreIsWithdrawn() async throws {
        try await withTwo { bucket, a, b in
            _ = try await a.get("/tiles/osm/3/1/1")
            await isWritten(a)
            for lab in [a, b] { lab.clock.advance(seconds: 1) }
            let entry = try #require(try a.store.entry(for: TileKey("osm/3/1/1")))
            var stale = entry.metadata
            stale.expires = a.clock.now
            #expect(try a.store.refresh(entry.key, from: EntryVersion(entry), metadata: stale))
            for lab in [a, b] {
                lab.origin.become { _ in
                    TileLab.Answer(
                        fields: [.cacheControl: "no-store", .contentType: "image/png"], body: TileLab.png("newer"))
                }
            }
            let newer = TileLab.png("newer")
            #expect(try await a.get("/tiles/osm/3/1/1").body == newer)
            await isWritten(a)
            for lab in [a, b, a] {
                let answer = try await lab.get("/tiles/osm/3/1/1")
                #expect(answer.body == newer && answer[.cacheStatus]?.contains("tileproxy-shared; hit") != true)
            }
            #expect(a.shared?.figures.errors == 0 && b.shared?.figures.errors == 0)
        }
    }

    // MARK: Configuration

    @Test func aBucketIsConfigured() throws {
        let places = SecretPlaces(
            environment: { ["AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "hidden", "S": "other"][$0] },
            file: { _ in "" })
        func parse(_ text: String) throws(ConfigError) -> SharedConfiguration? {
            var configuration = ProxyConfiguration()
            try configuration.read(yaml: text, file: "c", secrets: places)
            return configuration.shared
        }
        let url = "https://s3.example:9000/tiles/a/b"
        let plain = try #require(try parse("shared: {s3: '\(url)', timeout: 200ms, write: false}"))
        #expect(plain.accessKey == "AK" && plain.secretKey == "hidden" && !plain.writes)
        #expect(plain.timeout == .milliseconds(200))
        #expect(try parse("shared: {s3: 'http://h/tiles', secretKey: ENV:S, region: eu-1}")?.secretKey == "other")
        for (text, words) in [
            ("{s3: 'ftp://h/b'}", "expected http(s)"), ("{s3: 'http://h'}", "expected http(s)"),
            ("{s3: 'http://h/'}", "expected http(s)"), ("{s3: 'http://u:p@h/tiles'}", "keys do not belong"),
            ("{s3: 'http://h/tiles', secretKey: plain}", "ENV:"), ("{s3: 'http://h/tiles', timeout: 5s}", "at most 1s"),
            ("{s3: 'http://h/UPPER'}", "no bucket's name"), ("{s3: 'http://h/tiles', bucket: x}", "no such key"),
            ("{region: x}", "expected http(s)"),
        ] {
            let error = #expect(throws: ConfigError.self) { try parse("shared: \(text)") }
            #expect(error?.description.contains(words) ?? false, "\(error?.description ?? "")")
            #expect(!(error?.description.contains("hidden") ?? true))
        }
    }
}

private struct TransportFailure: Error {}
