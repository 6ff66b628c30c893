import ContentCoding
import Foundation
import HTTPTypes
import Testing
import TileCache
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// Seeded scripts of requests and changes of the store: what is answered at once is what the long way says, byte for byte.
///
/// `TILE_SEED=…` replays one seed, `TILE_SEEDS=n` runs n.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct ReadyPropertyTests {
    enum Step: Hashable, CustomStringConvertible {
        /// A request for a place, of the kinds of ``requests``.
        case ask(place: Int, request: Int)
        /// The long way's last tag for the place is sent back.
        case revalidate(place: Int, isHead: Bool)
        /// What the origin has there changes.
        case change(place: Int)
        /// A tile's entry is replaced by one of a few kinds.
        case put(place: Int, kind: Int)
        case remove(place: Int)
        case post(place: Int)
        case expire
        case advance(Int)
        case reload
        case replaceTables

        var description: String {
            switch self {
            case .ask(let place, let request): ".ask(place: \(place), request: \(request))"
            case .revalidate(let place, let isHead): ".revalidate(place: \(place), isHead: \(isHead))"
            case .change(let place): ".change(place: \(place))"
            case .put(let place, let kind): ".put(place: \(place), kind: \(kind))"
            case .remove(let place): ".remove(place: \(place))"
            case .post(let place): ".post(place: \(place))"
            case .expire: ".expire"
            case .advance(let seconds): ".advance(\(seconds))"
            case .reload: ".reload"
            case .replaceTables: ".replaceTables"
            }
        }
    }

    static let tilePlaces = 6
    static let places = tilePlaces + 8
    static let puts = 5
    /// Method, version, fields.
    static let requests: [(String, String, [String])] = [
        ("GET", "1.1", []), ("GET", "1.1", ["Accept-Encoding: gzip"]), ("HEAD", "1.1", []), ("GET", "1.0", []),
        ("GET", "1.0", ["Connection: keep-alive"]),
        ("GET", "1.1", ["Connection: close", "Accept-Encoding: br, gzip;q=0.5"]),
        ("HEAD", "1.1", ["Accept-Encoding: gzip"]), ("GET", "1.1", ["Foo: 1"]),
        ("GET", "1.1", ["fOO: 2", "Accept-Encoding: gzip"]), ("GET", "1.1", ["Foo: 1", "Connection: Foo"]),
        ("GET", "1.1", ["Range: bytes=0-3"]), ("GET", "1.1", ["If-None-Match: *"]),
        ("GET", "1.1", ["If-None-Match: \"none\""]), ("HEAD", "1.1", ["If-None-Match: W/\"t-0\""]),
        ("GET", "1.1", ["If-None-Match: \"none\"", "If-None-Match: \"t-0\""]),
        ("GET", "1.1", ["If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT"]), ("GET", "1.1", ["If-Match: \"none\""]),
        ("GET", "1.1", ["Cache-Control: only-if-cached"]), ("GET", "1.1", ["Cache-Control: no-cache"]),
        ("GET", "1.1", ["Pragma: no-cache"]), ("GET", "1.1", ["Via: 1.1 other"]), ("GET", "1.1", ["Via: 1.1 lab"]),
        ("GET", "1.1", ["Expect: something"]), ("GET", "1.1", ["Expect: 100-continue"]),
        ("GET", "1.1", ["Accept-Encoding: gzip;q=0"]),
    ]

    private static func script(using random: inout SplitMix64) -> [Step] {
        (0..<70).map { _ in
            let place = random.below(places)
            let tile = random.below(tilePlaces)
            switch random.below(30) {
            case 0...13: return .ask(place: place, request: random.below(requests.count))
            case 14...19: return .ask(place: place, request: random.below(3))
            case 20, 21: return .revalidate(place: place, isHead: random.oneIn(3))
            case 22: return .change(place: place)
            case 23, 24: return .put(place: tile, kind: random.below(puts))
            case 25: return .remove(place: tile)
            case 26: return .post(place: place)
            case 27: return random.oneIn(2) ? .advance(random.below(40)) : .advance(-random.below(100))
            case 28: return random.oneIn(2) ? .expire : .reload
            default: return .replaceTables
            }
        }
    }

    /// What an origin has in a place.
    private static func content(_ place: Int, _ version: Int) -> (fields: [(String, String)], body: Data, status: Int) {
        let modified = ("Last-Modified", "Tue, 14 Nov 2023 22:13:\(20 + version % 30) GMT")
        switch place {
        case 0:
            return (
                [
                    ("Cache-Control", "max-age=60"), ("ETag", "\"t-\(version)\""), ("Content-Type", "image/png"),
                    modified,
                ],
                TileLab.png("zero \(version)"), 200
            )
        case 1: return ([("Cache-Control", "max-age=20, s-maxage=90, immutable")], TileLab.png("one \(version)"), 200)
        case 2:
            return (
                [
                    ("Cache-Control", "max-age=60, must-revalidate"), ("ETag", "W/\"0123456789abcdef\(version % 10)\""),
                    ("Content-Type", "image/png"),
                ], TileLab.png("two \(version)"), 200
            )
        // Vector tiles: with gzip, and without.
        case 3, 4:
            let plain = Data("\u{1A}\(version) vector".utf8)
            let common = [("Cache-Control", "max-age=60"), ("Content-Type", "application/x-protobuf"), modified]
            guard place == 3 else { return (common, plain, 200) }
            return (common + [("Content-Encoding", "gzip")], (try? Gzip.encode(plain)) ?? plain, 200)
        case 5: return ([("Cache-Control", "max-age=30")], Data(), version % 2 == 0 ? 404 : 204)
        // Of the generic routes.
        case 6:
            return ([("Cache-Control", "max-age=60"), ("ETag", "\"g-\(version)\"")], Data("six \(version)".utf8), 200)
        case 7:
            return (
                [
                    ("Cache-Control", "max-age=60"), ("ETag", "abc, def"), modified, ("X-Id", "\(version)"),
                    ("Via", "1.1 front"), ("Cache-Status", "front; hit"), ("Content-Type", "text/css"),
                ], Data("seven \(version)".utf8), 200
            )
        case 8, 9:
            return (
                [
                    ("Cache-Control", "max-age=60"), ("Vary", place == 8 ? "Foo" : "Accept-Encoding"),
                    ("ETag", "\"t-0\""),
                ],
                Data("vary \(version)".utf8), 200
            )
        case 10: return ([("Cache-Control", "max-age=60"), ("ETag", "\"gone\"")], Data("gone".utf8), 404)
        case 11: return ([("Cache-Control", "max-age=60"), ("Location", "/v\(version)")], Data(), 301)
        case 12:
            return ([("Cache-Control", "max-age=60, no-cache"), ("ETag", "\"q\"")], Data("ask \(version)".utf8), 200)
        default: return ([("Cache-Control", "max-age=30"), ("ETag", "\"ä\"")], Data("thirteen \(version)".utf8), 200)
        }
    }

    /// The places of one replay: no other replay asks for them.
    private static func target(_ place: Int, _ replay: Int) -> String {
        switch place {
        case 3, 4: "/tiles/vec/12/\(replay % 4096)/\(place).pbf"
        case ..<tilePlaces: "/tiles/osm/12/\(replay % 4096)/\(place).png"
        case 6: "/g\(replay)/\(place)?query=\(replay)"
        default: "/g\(replay)/\(place)"
        }
    }

    /// What one script does in the lab; says what went wrong.
    private static func replay(
        _ script: [Step], _ replay: Int, _ lab: ReadyLab, _ client: ReadyLab.Client, _ versions: Locked<[Int: Int]>
    ) throws -> String? {
        var tags: [Int: String] = [:]
        func compare(_ step: Step, _ place: Int, _ request: (String, String, [String])) throws -> String? {
            let target = target(place, replay)
            func ask(_ way: ReadyLab.Way) throws -> ReadyLab.Client.Raw {
                try client.ask(way, target, request.2, method: request.0, version: request.1)
            }
            // The first may be answered by the origin, and changes the store then.
            _ = try ask(.long)
            let long = try ask(.long)
            tags[place] = long["ETag"] ?? tags[place]
            // An answer that came from the origin may not be stored yet, and the next one is another. What is ready may be
            // so from the second time on.
            for _ in 0..<2 where long.isHit || [417, 508].contains(long.status) {
                let ready = try ask(.ready)
                if ready != long { return "\(step) \(target)\n\(request)\nlong: \(long)\nready: \(ready)" }
            }
            // And the same again: nothing that was asked changed what is said.
            if long.isHit, try ask(.long) != long { return "\(step): the long way differs from itself" }
            return nil
        }
        for step in script {
            switch step {
            case .ask(let place, let request):
                if let failure = try compare(step, place, requests[request]) { return failure }
            case .revalidate(let place, let isHead):
                let tag = tags[place] ?? "\"none\""
                let request = (isHead ? "HEAD" : "GET", "1.1", ["If-None-Match: \(tag)", "Accept-Encoding: gzip"])
                if let failure = try compare(step, place, request) { return failure }
            case .change(let place): versions.withLock { $0[place, default: 0] += 1 }
            case .put(let place, let kind): try put(kind, at: lab.key(of: target(place, replay)), lab)
            case .remove(let place): _ = try lab.store.remove([lab.key(of: target(place, replay))])
            case .post(let place):
                let length = ["Content-Length: 0"]
                _ = try client.ask(.ready, target(place, replay), length, method: "POST")
            case .expire: _ = try lab.store.expire(EntrySelection())
            case .advance(let seconds): lab.clock.advance(seconds: Int64(seconds))
            case .reload: try lab.reload()
            case .replaceTables: try lab.replaceTables()
            }
        }
        return lab.answeredAtOnce.withLock { $0 } < 0 ? "something was written and not answered" : nil
    }

    private static func put(_ kind: Int, at key: TileKey, _ lab: ReadyLab) throws {
        switch kind {
        case 0: try lab.store.put(TileLab.png("put"), for: key, metadata: lab.metadata())
        case 1:
            let metadata = lab.metadata {
                $0.etag = "\"put\""
                $0.initialAge = 5
                $0.lastModified = lab.clock.now.adding(seconds: -100_000)
            }
            try lab.store.put(TileLab.png("put"), for: key, metadata: metadata)
        case 2:
            let metadata = lab.metadata {
                $0.response = ResponseFields(status: 200, mediaType: "text/html", noCache: true)
            }
            try lab.store.put(TileLab.png("put"), for: key, metadata: metadata)
        case 3: try lab.store.put(nil, for: key, metadata: lab.metadata { $0.response = ResponseFields(status: 410) })
        default:
            let metadata = lab.metadata {
                $0.response = ResponseFields(status: 200, mediaType: "image/svg+xml", contentEncoding: "br")
                $0.expires = .distantFuture
                $0.etag = "a \u{E4}"
            }
            try lab.store.put(Data("<svg/>".utf8), for: key, metadata: metadata)
        }
    }

    static let parts = 4

    @Test("An answer that is ready is the one that the long way gives", arguments: 0..<parts)
    func readyAnswersAreThoseOfTheLongWay(part: Int) async throws {
        let versions = Locked<[Int: Int]>([:])
        let generic = try ScriptedOrigin { request, wire in
            let place = Int(request.target.split(separator: "/").last?.prefix { $0 != "?" } ?? "") ?? 0
            let (fields, body, status) = Self.content(place, versions.withLock { $0[place] ?? 0 })
            let lines = fields.map { "\($0): \($1)" } + ["Content-Length: \(body.count)"]
            wire.send("HTTP/1.1 \(status) Fine\r\n" + lines.joined(separator: "\r\n") + "\r\n\r\n")
            if request.method != "HEAD" { wire.send(Array(body)) }
            return true
        }
        // A small table has to drop what others use.
        try await ReadyLab.with(
            ["osm=https://tiles.example/{z}/{x}/{y}.png", "vec=https://tiles.example/{z}/{x}/{y}.pbf"],
            memory: part % 2 == 0 ? 64 << 20 : 0, bytes: part < 2 ? ReadyAnswers.budget : 12_000, generic: generic,
            tiles: { request in
                let name = request.path?.split(separator: "/").last ?? ""
                let place = Int(name.prefix { $0 != "." }) ?? 0
                let (fields, body, status) = Self.content(place, versions.withLock { $0[place] ?? 0 })
                var head = HTTPFields()
                for (name, value) in fields {
                    if let name = HTTPField.Name(name) { head.append(HTTPField(name: name, value: value)) }
                }
                return TileLab.Answer(status: status, fields: head, body: body)
            }
        ) { lab, client in
            var replays = part * 1000
            func failure(_ script: [Step]) throws -> String? {
                replays += 1
                return try Self.replay(script, replays, lab, client, versions)
            }
            for seed in Seeds.share(part, of: Self.parts, count: 24) {
                var random = SplitMix64(seed: seed)
                let script = Self.script(using: &random)
                guard let first = try failure(script) else { continue }
                let smallest = try shrink(script) { try failure($0) != nil }
                Issue.record("seed \(seed): \(try failure(smallest) ?? "flaky, first: \(first)")\n\(smallest)")
                return
            }
            if part < 2 {
                let atOnce = lab.answeredAtOnce.withLock { $0 }
                #expect(atOnce > 100, "only \(atOnce) answers were ready: this test shows nothing")
            }
        }
    }
}
