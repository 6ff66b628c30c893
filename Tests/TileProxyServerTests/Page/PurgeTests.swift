import CacheEngine
import Foundation
import HTTPTypes
import Logging
import NIOCore
import ObjectStorage
import SharedTier
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// What a request to purge may say.
@Suite(.timeLimit(.minutes(60)))
struct PurgeRequestTests {
    private static func read(_ text: String) throws(PurgeRequest.Mistake) -> PurgeRequest {
        let result = Array(text.utf8).withUnsafeBytes { bytes in
            Result { () throws(PurgeRequest.Mistake) in try PurgeRequest(json: bytes) }
        }
        return try result.get()
    }

    @Test func aRequestSaysWhatIsMeant() throws {
        let all = try Self.read(#" {"source": "osm"} "#)
        #expect(
            all.source.description == "osm" && all.zooms == nil && all.box == nil && all.tiles == nil && !all.removes)
        let some = try Self.read(
            #"{"source":"osm","zooms":"0-14","bbox":[5,44,17.5,48],"tiles":["3/1/2","osm/4/1/2@2x.png","3/1/2"],"remove":true}"#
        )
        #expect(some.zooms == 0...14 && some.box?.north == 48 && some.tiles?.count == 2 && some.removes)
        #expect(try Self.read(#"{"source":"a","zooms":7}"#).zooms == 7...7)
        #expect(try Self.read(#"{"source":"a","tiles":[]}"#).tiles?.count == 0)
        #expect(try Self.read(#"{"source":"a","remove":false}"#).removes == false)
    }

    static let wrong: [(text: String, says: String)] = [
        ("", "no JSON object"), ("null", "no JSON object"), ("[]", "no JSON object"), ("\"osm\"", "no JSON object"),
        ("{\"source\":\"osm\"", "no JSON object"), ("{\"source\":\"osm\"} x", "no JSON object"),
        ("{'source':'osm'}", "no JSON object"), ("[[[[[[[[]]]]]]]]", "no JSON object"),
        ("{}", "source: expected"), (#"{"source":null}"#, "source: expected"),
        (#"{"source":["osm"]}"#, "source: expected"),
        (#"{"source":"a b"}"#, "source: "), (#"{"source":".."}"#, "source: "), (#"{"source":""}"#, "source: "),
        (#"{"source":"osm","zoom":"7"}"#, "There is no field \"zoom\"; did you mean \"zooms\"?"),
        (#"{"source":"osm","Remove":true}"#, "There is no field \"Remove\""),
        (#"{"source":"osm","x":1}"#, "There is no field \"x\""),
        (#"{"source":"osm","zooms":"7","zooms":"0-14"}"#, "The field \"zooms\" is there twice"),
        (#"{"source":"osm","source":"osm"}"#, "The field \"source\" is there twice"),
        (#"{"source":"osm","remov\u0065":false,"remove":true}"#, "The field \"remove\" is there twice"),
        (#"{"source":"osm","zooms":"7-3"}"#, "zooms: "), (#"{"source":"osm","zooms":"29"}"#, "zooms: "),
        (#"{"source":"osm","zooms":-1}"#, "zooms: "), (#"{"source":"osm","zooms":[0,7]}"#, "zooms: "),
        (#"{"source":"osm","zooms":null}"#, "zooms: "), (#"{"source":"osm","zooms":7.5}"#, "zooms: "),
        (#"{"source":"osm","bbox":"5,44,17,48"}"#, "bbox: "), (#"{"source":"osm","bbox":[5,44,17]}"#, "bbox: "),
        (#"{"source":"osm","bbox":[5,44,17,"48"]}"#, "bbox: "), (#"{"source":"osm","bbox":[5,48,17,44]}"#, "bbox: "),
        (#"{"source":"osm","bbox":[5,44,17,1e999]}"#, "no JSON object"),
        (#"{"source":"osm","tiles":"3/1/2"}"#, "tiles: "), (#"{"source":"osm","tiles":{"3/1/2":1}}"#, "tiles: "),
        (#"{"source":"osm","tiles":["3/1/2","3/8/2"]}"#, "tiles[1]: \"3/8/2\" is no tile"),
        (#"{"source":"osm","tiles":[3]}"#, "tiles[0]: "), (#"{"source":"osm","tiles":[""]}"#, "tiles[0]: "),
        ("{\"source\":\"osm\",\"tiles\":[\"# 3/1/2\"]}", "tiles[0]: "),
        (#"{"source":"osm","tiles":["3/1/2\n3/1/3"]}"#, "tiles[0]: "),
        (#"{"source":"osm","tiles":["topo/3/1/2"]}"#, "tiles[0]: "),
        (#"{"source":"osm","remove":"false"}"#, "remove: "), (#"{"source":"osm","remove":0}"#, "remove: "),
        (#"{"source":"osm","remove":null}"#, "remove: "),
    ]

    @Test(arguments: wrong)
    func aMistakeIsNamed(_ row: (text: String, says: String)) {
        let mistake = #expect(throws: PurgeRequest.Mistake.self) { try Self.read(row.text) }
        #expect(mistake?.message.contains(row.says) == true, "\(row.text): \(mistake?.message ?? "")")
    }

    @Test func aTokenIsKnownByItsDigest() throws {
        let token = try #require(PurgeToken("s3cret-._~+/="))
        for field in ["Bearer s3cret-._~+/=", "bearer s3cret-._~+/=", "BEARER   s3cret-._~+/="] {
            #expect(token.admits(field), "\(field)")
        }
        for field in [
            "", "Bearer", "Bearer ", "s3cret-._~+/=", "Basic s3cret-._~+/=", "Bearer s3cret-._~+/",
            "Bearer S3cret-._~+/=",
            "Bearer s3cret-._~+/= ", "Bearer s3cret-._~+/=,", "Bearers3cret-._~+/=",
            "Bearer " + String(repeating: "a", count: 5000),
        ] { #expect(!token.admits(field), "\(field.prefix(40))") }
        for text in ["", "a b", "a\n", "ä", "a,b", "\"a\"", String(repeating: "a", count: 1025)] {
            #expect(PurgeToken(text) == nil, "\(text.prefix(10))")
        }
        #expect(!"\(token)".contains("s3cret"))
    }

    /// At every moment no more than were granted by a list of all moments.
    @Test(arguments: Seeds.list(50))
    func anAllowanceIsABurstAndThenARate(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        let (burst, interval) = (1 + random.below(10), UInt64(1 + random.below(1000)))
        var allowance = RequestAllowance(burst: burst, interval: interval)
        var now: UInt64 = 1_000_000
        var granted: [UInt64] = []
        for _ in 0..<300 {
            now += UInt64(random.below(Int(interval) * 2))
            let wait = allowance.take(at: now)
            // In any stretch of time there are as many as may come at once, and one for each interval of it.
            let isAllowed = granted.indices.allSatisfy { first in
                let beyond = granted.count - first + 1 - burst
                return beyond * Int(interval) <= Int(now - granted[first])
            }
            #expect((wait == nil) == isAllowed, "seed \(seed)")
            if wait == nil { granted.append(now) }
            if let wait {
                var later = allowance
                #expect(wait > 0 && later.take(at: now + wait - 1) != nil && later.take(at: now + wait) == nil)
            }
        }
    }
}

/// Purging over HTTP.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct PurgeTests {
    private static let token = "a-token-that-nobody-guesses"

    /// Runs a test with a proxy of the sources `osm` and `topo` and an upstream `docs`.
    private func withLab(
        token: String? = Self.token, logger: Logger = Logger(label: "test"),
        bucket: MemoryBucket? = nil, _ body: (TileLab) async throws -> Void
    ) async throws {
        let sources = try ["osm", "topo"].map {
            try SourceConfiguration(argument: "\($0)=https://tiles.example/\($0)/{z}/{x}/{y}.png")
        }
        // On a disk in memory, so that the store has the clock of the test.
        let lab = try await TileLab(
            sources, files: SimulatedFileSystem(SimulatedDisk(clock: ManualClock())), logger: logger, bucket: bucket,
            purgeToken: token, upstreams: ["docs:/=http://127.0.0.1:9"]
        ) { request in
            let fields: HTTPFields = [.cacheControl: "max-age=600", .eTag: "\"v1\"", .contentType: "image/png"]
            if request.headerFields[.ifNoneMatch] != nil { return TileLab.Answer(status: 304, fields: fields) }
            return TileLab.Answer(fields: fields, body: TileLab.png("tile \(request.path ?? "")"))
        }
        do { try await body(lab) } catch {
            try await lab.end()
            throw error
        }
        try await lab.end()
    }

    private struct Answer {
        var status: Int
        var head: String
        var body: String
    }

    /// Sends bytes as they stand, and takes the answer up to the connection's end.
    private func send(_ lab: TileLab, _ text: String) throws -> Answer {
        let wire = try Wire(port: lab.server.port)
        wire.send(text)
        let head = try #require(wire.take(through: "\r\n\r\n"))
        let body = String(decoding: wire.takeAll(), as: UTF8.self)
        return Answer(status: Int(head.split(separator: " ")[1]) ?? 0, head: head, body: body)
    }

    private func post(
        _ lab: TileLab, _ body: String, fields: String = "Content-Type: application/json\r\n",
        token: String? = Self.token,
        method: String = "POST", path: String = "/_tileproxy/purge"
    ) throws -> Answer {
        let authorization = token.map { "Authorization: Bearer \($0)\r\n" } ?? ""
        return try send(
            lab,
            "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\(authorization)\(fields)"
                + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
    }

    private func fill(_ lab: TileLab) async throws {
        for source in ["osm", "topo"] {
            for x in 0..<4 { for y in 0..<4 { _ = try await lab.get("/tiles/\(source)/2/\(x)/\(y).png") } }
        }
    }

    static let purges: [(body: String, answer: String)] = [
        (#"{"source":"osm"}"#, #"{"expired":16}"#),
        (#"{"source":"osm","zooms":"0-1"}"#, #"{"expired":0}"#),
        (#"{"source":"osm","zooms":"2"}"#, #"{"expired":16}"#),
        (#"{"source":"osm","bbox":[-180,0.1,-90.1,85]}"#, #"{"expired":2}"#),
        (#"{"source":"osm","tiles":["2/0/0","2/1/1.png","2/1/1","7/0/0"]}"#, #"{"expired":2}"#),
        (#"{"source":"osm","tiles":["2/0/0","2/3/3"],"bbox":[-180,0.1,-90.1,85]}"#, #"{"expired":1}"#),
        (#"{"source":"osm","tiles":[]}"#, #"{"expired":0}"#),
        (#"{"source":"osm","remove":true}"#, #"{"removed":16}"#),
        (#"{"source":"topo","tiles":["2/0/0"],"remove":true}"#, #"{"removed":1}"#),
        (#"{"source":"docs"}"#, #"{"expired":0}"#),
    ]

    @Test(arguments: purges)
    func whatIsMeantIsExpiredOrRemoved(_ row: (body: String, answer: String)) async throws {
        try await withLab { lab in
            try await fill(lab)
            let answer = try post(lab, row.body)
            #expect(answer.status == 200 && answer.body == row.answer + "\n", "\(answer)")
            let head = answer.head.lowercased()
            #expect(head.contains("content-type: application/json") && head.contains("cache-control: no-store"))
            #expect(!head.contains("access-control"))
            let stale = try lab.store.statistics().stale
            #expect(stale == (row.answer.contains("expired") ? Int(row.answer.filter(\.isNumber)) : 0))
        }
    }

    static let refused: [(what: String, text: String, status: Int)] = {
        let host = "Host: localhost\r\nConnection: close\r\n"
        let token = "Authorization: Bearer \(Self.token)\r\n"
        let type = "Content-Type: application/json\r\n"
        let body = "Content-Length: 16\r\n\r\n{\"source\":\"osm\"}"
        let post = "POST /_tileproxy/purge HTTP/1.1\r\n"
        return [
            ("GET", "GET /_tileproxy/purge HTTP/1.1\r\n\(host)\(token)\r\n", 405),
            ("PUT", "PUT /_tileproxy/purge HTTP/1.1\r\n\(host)\(token)\(type)\(body)", 405),
            ("a preflight", "OPTIONS /_tileproxy/purge HTTP/1.1\r\n\(host)Origin: http://evil.example\r\n\r\n", 405),
            ("no token", "\(post)\(host)\(type)\(body)", 401),
            ("another token", "\(post)\(host)Authorization: Bearer x\r\n\(type)\(body)", 401),
            ("another scheme", "\(post)\(host)Authorization: Basic \(Self.token)\r\n\(type)\(body)", 401),
            ("two tokens", "\(post)\(host)\(token)\(token)\(type)\(body)", 401),
            (
                "the token in the query",
                "POST /_tileproxy/purge?token=\(Self.token) HTTP/1.1\r\n\(host)\(type)\(body)", 401
            ),
            ("a page of another site", "\(post)\(host)\(token)\(type)Origin: https://evil.example\r\n\(body)", 403),
            ("a page of this site", "\(post)\(host)\(token)\(type)Origin: http://localhost\r\n\(body)", 403),
            ("a sandboxed page", "\(post)\(host)\(token)\(type)Origin: null\r\n\(body)", 403),
            ("another host", "\(post)Host: evil.example\r\nConnection: close\r\n\(token)\(type)\(body)", 421),
            ("a form", "\(post)\(host)\(token)Content-Type: application/x-www-form-urlencoded\r\n\(body)", 415),
            ("a text", "\(post)\(host)\(token)Content-Type: text/plain\r\n\(body)", 415),
            ("no type", "\(post)\(host)\(token)\(body)", 415),
            ("two types", "\(post)\(host)\(token)\(type)\(type)\(body)", 415),
            ("a coding", "\(post)\(host)\(token)\(type)Content-Encoding: gzip\r\n\(body)", 415),
            ("too long", "\(post)\(host)\(token)\(type)Content-Length: 4194305\r\n\r\n", 413),
            ("no body", "\(post)\(host)\(token)\(type)Content-Length: 0\r\n\r\n", 400),
            ("another source", "\(post)\(host)\(token)\(type)Content-Length: 16\r\n\r\n{\"source\":\"ozm\"}", 400),
            (
                "an unknown field",
                "\(post)\(host)\(token)\(type)Content-Length: 22\r\n\r\n{\"source\":\"osm\",\"x\":1}", 400
            ),
        ]
    }()

    @Test func everythingElseIsRefusedAndChangesNothing() async throws {
        try await withLab { lab in
            try await fill(lab)
            for row in Self.refused {
                let answer = try send(lab, row.text)
                #expect(answer.status == row.status, "\(row.what): \(answer)")
                #expect(!answer.head.lowercased().contains("access-control"), "\(row.what)")
                if row.status == 401 { #expect(answer.head.lowercased().contains("www-authenticate: bearer")) }
                if row.status == 405 { #expect(answer.head.lowercased().contains("allow: post")) }
                #expect(!answer.body.contains(Self.token))
            }
            #expect(try lab.store.statistics().stale == 0 && lab.store.statistics().entries == 32)
            // In pieces, with parameters of the type, and in the limits.
            let chunked = try send(
                lab,
                "POST /_tileproxy/purge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    + "Authorization: bearer \(Self.token)\r\nContent-Type: Application/JSON; charset=utf-8\r\n"
                    + "Transfer-Encoding: chunked\r\n\r\n9\r\n{\"source\"\r\n7\r\n:\"osm\"}\r\n0\r\n\r\n")
            #expect(chunked.body == "{\"expired\":16}\n")
        }
    }

    /// A body in chunks that says nothing of its length.
    @Test func aBodyThatBecomesTooLongIsRefused() async throws {
        try await withLab { lab in
            let wire = try Wire(port: lab.server.port)
            wire.send(
                "POST /_tileproxy/purge HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(Self.token)\r\n"
                    + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            let chunk = "10000\r\n" + String(repeating: " ", count: 65536) + "\r\n"
            wire.sendInBackground(String(repeating: chunk, count: 65))
            #expect(wire.take(through: "\r\n\r\n")?.hasPrefix("HTTP/1.1 413 ") == true)
        }
    }

    @Test func withoutATokenThereIsNothing() async throws {
        try await withLab(token: nil) { lab in
            for method in ["POST", "GET", "OPTIONS"] {
                let answer = try post(lab, #"{"source":"osm"}"#, method: method)
                #expect(answer.status == 404, "\(method)")
            }
        }
    }

    @Test func thereAreNotTooManyAtATime() async throws {
        try await withLab { lab in
            for _ in 0..<10 { #expect(try post(lab, #"{"source":"osm"}"#).status == 200) }
            let answer = try post(lab, #"{"source":"osm"}"#)
            #expect(answer.status == 429 && answer.head.lowercased().contains("retry-after: 1"), "\(answer)")
            // Who does not have the token uses none of it up.
            lab.clock.advance(seconds: 1)
            for _ in 0..<20 { #expect(try post(lab, #"{"source":"osm"}"#, token: "x").status == 401) }
            #expect(try post(lab, #"{"source":"osm"}"#).status == 200)
            #expect(try post(lab, #"{"source":"osm"}"#).status == 429)
        }
    }

    /// Its body was not read, so that the connection ended with the answer, which did not say so.
    @Test func aRefusalThatEndsTheConnectionSaysSo() async throws {
        try await withLab { lab in
            for row in Self.refused where [401, 403, 415].contains(row.status) {
                let answer = try send(lab, row.text.replacingOccurrences(of: "Connection: close\r\n", with: ""))
                #expect(answer.status == row.status, "\(row.what)")
                #expect(answer.head.lowercased().contains("\r\nconnection: close\r\n"), "\(row.what)")
            }
            for _ in 0..<10 { #expect(try post(lab, #"{"source":"osm"}"#).status == 200) }
            let text =
                "POST /_tileproxy/purge HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(Self.token)\r\n"
                + "Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"source\":\"osm\"}"
            let answer = try send(lab, text)
            #expect(answer.status == 429 && answer.head.lowercased().contains("\r\nconnection: close\r\n"), "\(answer)")
        }
    }

    /// Answers that are ready are compared with the store each time, on every loop.
    @Test func readyAnswersFallAtOnce() async throws {
        try await withLab { lab in
            // Connections go to loops in turn: enough of them to have some on each.
            let wires = try (0..<8).map { _ in try Wire(port: lab.server.port) }
            func status(_ wire: Wire) throws -> String {
                wire.send("GET /tiles/osm/3/1/2.png HTTP/1.1\r\nHost: localhost\r\n\r\n")
                let head = try #require(wire.take(through: "\r\n\r\n"))
                let lines = head.lowercased().split(separator: "\r\n")
                let length = lines.first { $0.hasPrefix("content-length: ") }.flatMap { Int($0.dropFirst(16)) }
                _ = wire.take(try #require(length))
                return try #require(lines.first { $0.hasPrefix("cache-status: ") }).description
            }
            for _ in 0..<3 { for wire in wires { _ = try status(wire) } }
            for wire in wires { #expect(try status(wire).contains("hit")) }
            #expect(lab.origin.count == 1)
            lab.clock.advance(seconds: 5)
            #expect(try post(lab, #"{"source":"osm","tiles":["3/1/2"]}"#).body == "{\"expired\":1}\n")
            #expect(try status(wires[3]).contains("fwd-status=304"), "asked for at once")
            #expect(lab.origin.count == 2)
            for wire in wires { #expect(try status(wire).contains("hit")) }
            #expect(try post(lab, #"{"source":"osm","remove":true}"#).body == "{\"removed\":1}\n")
            #expect(try status(wires[5]).contains("fwd=uri-miss"))
            #expect(lab.origin.count == 3)
        }
    }

    /// What the disk did not take is in memory, and falls with the rest.
    @Test func whatCouldNotBeStoredFallsToo() async throws {
        try await withLab { lab in
            let key = try TileKey("osm/3/1/2")
            let other = try TileKey("topo/3/1/2")
            for key in [key, other] {
                lab.service.held.hold(
                    TileLab.png("held"), key,
                    TileMetadata(storedAt: lab.clock.now, expires: lab.clock.now.adding(seconds: 60)))
            }
            #expect(try post(lab, #"{"source":"osm","zooms":"3"}"#).status == 200)
            #expect(lab.service.held.tile(key) == nil && lab.service.held.tile(other) != nil)
        }
    }

    @Test func purgesAreLoggedWithoutTheToken() async throws {
        let messages = Messages()
        try await withLab(logger: messages.logger) { lab in
            try await fill(lab)
            _ = try post(lab, #"{"source":"osm","zooms":"2","tiles":["2/0/0"]}"#)
            let text = messages.notices.joined(separator: "\n")
            #expect(
                text.contains("purged") && text.contains("osm") && text.contains("2-2") && text.contains("127.0.0.1"))
            #expect(!text.contains(Self.token))
        }
    }

    // MARK: With a bucket

    @Test func theFleetIsTold() async throws {
        let clock = Locked(ManualClock())
        let bucket = MemoryBucket(now: { clock.withLock { $0.now } })
        try await withLab(bucket: bucket) { lab in
            clock.withLock { $0 = lab.clock }
            await lab.readSharedIndex()
            try await fill(lab)
            while lab.shared?.figures.waiting != 0 { await Task.yield() }
            #expect(try post(lab, #"{"source":"osm","tiles":["2/0/0","2/0/1"]}"#).body == "{\"expired\":2}\n")
            let index = try #require(bucket["marks.json"])
            let marks = try #require(index.bytes.withUnsafeReadableBytes { Marks(json: $0) })
            let now = lab.clock.now.adding(seconds: -60)
            #expect(marks.isExpired(try TileKey("osm/2/0/0"), askedAt: now))
            #expect(marks.isExpired(try TileKey("osm/2/0/1"), askedAt: now))
            #expect(!marks.isExpired(try TileKey("osm/2/0/2"), askedAt: now))
            #expect(!marks.isExpired(try TileKey("topo/2/0/0"), askedAt: now))
            // The whole source: another epoch.
            #expect(try post(lab, #"{"source":"topo","remove":true}"#).body == "{\"removed\":16}\n")
            await lab.readSharedIndex()
            let asked = lab.origin.count
            _ = try await lab.get("/tiles/topo/2/0/0.png")
            #expect(lab.origin.count == asked + 1, "it does not come back from the bucket")
        }
    }

    @Test func aBucketThatFailsIsToldOf() async throws {
        let bucket = MemoryBucket(now: { Timestamp(seconds: 1_800_000_000) })
        try await withLab(bucket: bucket) { lab in
            try await fill(lab)
            bucket.mode = .fails
            let answer = try post(lab, #"{"source":"osm","remove":true}"#)
            #expect(answer.status == 502 && answer.body.contains("16 entries"), "\(answer)")
            #expect(try lab.store.statistics().entries == 32, "removed when the bucket has been told")
            #expect(try lab.store.statistics().stale == 16)
        }
    }
}
