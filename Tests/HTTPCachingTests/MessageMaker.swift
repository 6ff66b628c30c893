import HTTPCaching
import HTTPTypes
import TileStoreTesting

/// Draws messages that are mostly sensible and partly not.
struct MessageMaker {
    var random: SplitMix64

    init(seed: UInt64) { random = SplitMix64(seed: seed) }

    static let directives = [
        "max-age", "s-maxage", "no-cache", "no-store", "private", "public", "must-revalidate", "proxy-revalidate",
        "must-understand", "immutable", "stale-while-revalidate", "stale-if-error", "max-stale", "min-fresh",
        "only-if-cached", "no-transform", "ext",
    ]
    static let values = [
        "0", "1", "60", "3600", "31536000", "2147483647", "2147483648", "99999999999999999999", "-1", "1.5", "\"60\"",
        "\"a, b\"", "\"set-cookie\"", "\"content-type\"", "x", "", "\"", "\"a\\", "'5'", "9223372036854775807",
    ]
    static let dates = [
        "Sat, 21 Nov 2026 12:00:00 GMT", "Sat, 21 Nov 2026 11:00:00 GMT", "Sat, 21 Nov 2026 13:00:00 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Saturday, 21-Nov-76 12:00:00 GMT", "0", "-1",
        "Sat Nov 21 12:00:00 2026", "", "Mon, 01 Jan 0001 00:00:00 GMT",
    ]
    static let tags = ["\"a\"", "W/\"a\"", "\"b\"", "a", "*", "", "\"a\", \"b\"", "\"", "W/", "\"\""]
    static let names = [
        "Cache-Control", "CDN-Cache-Control", "Expires", "Date", "Age", "Last-Modified", "ETag", "Vary", "Pragma",
        "Authorization", "Connection", "Content-Length", "Content-Type", "Content-Encoding", "Set-Cookie", "Location",
        "Content-Location", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range",
        "Range", "Accept", "Accept-Encoding", "Accept-Language", "Cookie", "Via", "Foo",
    ]

    mutating func control() -> String {
        (0..<random.below(4)).map { _ in
            let name = random.pick(Self.directives)
            return random.oneIn(2) ? name : name + "=" + random.pick(Self.values)
        }.joined(separator: random.oneIn(8) ? ";" : ", ")
    }

    mutating func value(of name: String) -> String {
        if random.oneIn(12) { return junk() }
        switch name {
        case "Cache-Control", "CDN-Cache-Control": return control()
        case "Expires", "Date", "Last-Modified", "If-Modified-Since", "If-Unmodified-Since":
            return random.pick(Self.dates)
        case "If-Range": return random.oneIn(2) ? random.pick(Self.dates) : random.pick(Self.tags)
        case "ETag", "If-Match", "If-None-Match": return random.pick(Self.tags)
        case "Age", "Content-Length": return random.pick(Self.values)
        case "Vary": return random.pick(["Foo", "Accept, Foo", "*", "", "a b", "Accept-Encoding, Cookie"])
        case "Connection": return random.pick(["close", "Foo", "ETag, Date", "Cache-Control"])
        case "Range":
            return random.pick(["bytes=0-1", "bytes=-5", "bytes=5-", "bytes=0-0,500-600,-1", "bytes=9-1", "x=1"])
        case "Location", "Content-Location":
            return random.pick(["/b", "../c", "//x/y", "https://tiles.example/d", ":"])
        case "Accept", "Accept-Encoding", "Accept-Language":
            return random.pick(["a;q=0.50, B", "gzip", "", "a/b;c=\"d"])
        default: return random.pick(["1", "2", "a,b", "no-cache"])
        }
    }

    mutating func junk() -> String {
        let bytes = (0..<random.below(40)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
        if random.oneIn(2) { return String(decoding: bytes, as: UTF8.self) }
        let alphabet = Array("\",;=\\ \t*/-:?()@%W.09azAZ#&\u{e9}")
        return String((0..<random.below(40)).map { _ in random.pick(alphabet) })
    }

    mutating func fields() -> HTTPFields {
        var fields = HTTPFields()
        for _ in 0..<random.below(9) {
            let name = random.pick(Self.names)
            guard let known = HTTPField.Name(name) else { continue }
            if random.oneIn(20) {
                let bytes = (0..<random.below(30)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
                fields.append(HTTPField(name: known, lenientValue: bytes))
            } else {
                fields.append(HTTPField(name: known, value: value(of: name)))
            }
        }
        return fields
    }

    mutating func time() -> HTTPDate {
        switch random.below(12) {
        case 0: HTTPDate(seconds: .max)
        case 1: HTTPDate(seconds: .min)
        case 2: HTTPDate(seconds: Int64(bitPattern: random.next()))
        case 3: HTTPDate(seconds: 0)
        default: noon.plus(random.below(20_000) - 10_000)
        }
    }

    mutating func number() -> Int {
        switch random.below(8) {
        case 0: .max
        case 1: .min
        case 2: Int(truncatingIfNeeded: random.next())
        default: random.below(10_000) - 100
        }
    }

    mutating func request() -> HTTPRequest {
        let methods: [HTTPRequest.Method] = [.get, .get, .get, .head, .post, .put, .options]
        return HTTPRequest(
            method: random.pick(methods), scheme: "https", authority: "tiles.example", path: "/a",
            headerFields: fields())
    }

    mutating func response() -> HTTPResponse {
        let status = random.oneIn(3) ? random.below(1000) : random.pick([200, 200, 304, 206, 404, 302, 500])
        return HTTPResponse(status: .init(code: status), headerFields: fields())
    }

    mutating func policy() -> CachePolicy {
        CachePolicy(
            kind: random.oneIn(2) ? .shared : .private, usesHeuristic: random.oneIn(2),
            heuristicLimit: random.oneIn(4) ? number() : 86400, defaultLifetime: random.oneIn(4) ? number() : nil,
            minimumLifetime: random.oneIn(4) ? number() : nil, overridesOrigin: random.oneIn(6))
    }
}
