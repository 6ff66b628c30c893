import Testing
import TileStoreTesting

@testable import TileProxyServer

/// How a shared cache behaves, as its client and its origin see it: one row for each rule, in the order of the public
/// HTTP cache test suite's chapters.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct CacheTableTests {
    typealias Step = CacheRow.Step

    /// A first request whose answer says something, and a second one that is served from it, or not.
    private static func reused(
        _ what: String, _ says: [String], status: String = "200 OK", asks: [String] = [], after: Int = 3
    ) -> CacheRow {
        let code = Int(status.prefix(3)) ?? 0
        return CacheRow(
            what, Step(status: status, says: says, reaches: true, gets: code),
            Step(after: after, asks: asks, from: code == 204 ? 0 : 1, reaches: false, gets: code))
    }

    private static func fetchedAgain(
        _ what: String, _ says: [String], status: String = "200 OK", first: [String] = [], asks: [String] = [],
        after: Int = 3
    ) -> CacheRow {
        let code = Int(status.prefix(3)) ?? 0
        return CacheRow(
            what, Step(asks: first, status: status, says: says, reaches: true, gets: code),
            Step(after: after, asks: asks, says: says, from: 2, reaches: true))
    }

    /// RFC 9111 §4.2, §5.2.2, §5.3.
    static let freshness: [CacheRow] = [
        reused("max-age", ["Cache-Control: max-age=60"]), fetchedAgain("nothing at all", []),
        fetchedAgain("max-age=0", ["Cache-Control: max-age=0"]),
        fetchedAgain("max-age passed", ["Cache-Control: max-age=2"]),
        reused("s-maxage before max-age", ["Cache-Control: max-age=1, s-maxage=60"]),
        fetchedAgain("s-maxage before max-age, shorter", ["Cache-Control: max-age=60, s-maxage=1"]),
        reused("max-age before Expires", ["Cache-Control: max-age=60", "Date: {0}", "Expires: {-60}"]),
        reused("Expires", ["Date: {0}", "Expires: {+60}"]),
        fetchedAgain("Expires passed", ["Date: {0}", "Expires: {-1}"]),
        fetchedAgain("Expires: 0", ["Date: {0}", "Expires: 0"]),
        fetchedAgain("Expires less Date, used up", ["Date: {-1000}", "Expires: {-900}"]),
        fetchedAgain("Age uses the lifetime up", ["Cache-Control: max-age=60", "Age: 60"]),
        reused("Age leaves some of it", ["Cache-Control: max-age=60", "Age: 10"]),
        reused("an invalid Age is nothing", ["Cache-Control: max-age=60", "Age: abc"]),
        reused("quoted, upper case", ["Cache-Control: MAX-AGE=\"60\""]),
        reused("several lines", ["Cache-Control: public", "Cache-Control: max-age=60"]),
        fetchedAgain("negative", ["Cache-Control: max-age=-60"]),
        fetchedAgain("no number", ["Cache-Control: max-age=a60"]),
        reused("CDN-Cache-Control instead", ["Cache-Control: no-store", "CDN-Cache-Control: max-age=60"]),
        fetchedAgain(
            "CDN-Cache-Control instead, shorter", ["Cache-Control: max-age=60", "CDN-Cache-Control: max-age=1"]),
        reused("a tenth of what has passed since Last-Modified", ["Last-Modified: {-100000}"]),
        fetchedAgain("and no more", ["Last-Modified: {-20}"]),
        fetchedAgain("and not without Last-Modified", ["ETag: \"a\""]),
        fetchedAgain("nor against Expires", ["Date: {0}", "Expires: 0", "Last-Modified: {-100000}"]),
        fetchedAgain("nor for any status", ["Last-Modified: {-100000}"], status: "201 Created"),
        reused(
            "but for any that is public", ["Cache-Control: public", "Last-Modified: {-100000}"], status: "201 Created"),
        reused("a 404 too", ["Last-Modified: {-100000}"], status: "404 Not Found"),
        reused("Expires in the form of RFC 850", ["Date: {0}", "Expires: Friday, 01-Jan-55 00:00:00 GMT"]),
        reused("Expires in the form of asctime", ["Date: {0}", "Expires: Fri Jan  1 00:00:00 2055"]),
        reused("Expires in capitals", ["Date: {0}", "Expires: FRI, 01 JAN 2055 00:00:00 gmt"]),
    ]

    /// What no `Expires` may look like is in the past (RFC 9111 §5.3).
    static let invalidExpires: [CacheRow] = [
        "Fri, 01 Jan 2055 00:00:00 UTC", "Fri, 01 Jan 2055 00:00:00 CET", "Fri, 01 Jan 55 00:00:00 GMT",
        "Fri 01 Jan 2055 00:00:00 GMT", "Fri, 01  Jan 2055 00:00:00 GMT", "Fri, 01-Jan-2055 00:00:00 GMT",
        "Fri, 1 Jan 2055 00:00:00 GMT", "Fri, 01 Jan 2055 0:00:00 GMT", "2055-01-01T00:00:00Z",
    ].map { fetchedAgain("Expires: " + $0, ["Date: {0}", "Expires: " + $0]) }

    private static let minute = ["Cache-Control: max-age=60"]

    /// RFC 9111 §3, §5.2.2; RFC 9110 §13.1, §14.2; RFC 6585 §4.
    static let storing: [CacheRow] = [
        fetchedAgain("no-store", ["Cache-Control: max-age=60, no-store"]),
        fetchedAgain("private", ["Cache-Control: max-age=60, private"]),
        fetchedAgain("no-cache", ["Cache-Control: max-age=60, no-cache"]),
        fetchedAgain("Vary: *", ["Cache-Control: max-age=60", "Vary: *"]),
        fetchedAgain(
            "206 is not stored", ["Cache-Control: max-age=60", "Content-Range: bytes 0-5/6"],
            status: "206 Partial Content"),
        fetchedAgain(
            "must-understand, not understood", ["Cache-Control: max-age=60, must-understand"], status: "599 X"),
        reused("must-understand, understood", ["Cache-Control: max-age=60, no-store, must-understand"]),
        fetchedAgain("the client's no-store", ["Cache-Control: max-age=60"], first: ["Cache-Control: no-store"]),
        reused("404", ["Cache-Control: max-age=60"], status: "404 Not Found"),
        reused("301", ["Cache-Control: max-age=60", "Location: /b"], status: "301 Moved"),
        reused("204", ["Cache-Control: max-age=60"], status: "204 No Content"),
        reused("599", ["Cache-Control: max-age=60"], status: "599 Odd"),
        reused("Set-Cookie is no obstacle", ["Cache-Control: max-age=60", "Set-Cookie: a=b"]),
        reused("the client's Cookie neither", ["Cache-Control: max-age=60"], asks: ["Cookie: a=b"]),
        fetchedAgain(
            "Authorization", ["Cache-Control: max-age=60"], first: ["Authorization: x"], asks: ["Authorization: x"]),
        CacheRow(
            "Authorization, public", Step(asks: ["Authorization: x"], says: ["Cache-Control: max-age=60, public"]),
            Step(from: 1, reaches: false)),
        CacheRow(
            "Authorization, s-maxage", Step(asks: ["Authorization: x"], says: ["Cache-Control: s-maxage=60"]),
            Step(from: 1, reaches: false)),
        CacheRow(
            "Authorization, must-revalidate",
            Step(asks: ["Authorization: x"], says: ["Cache-Control: max-age=60, must-revalidate"]),
            Step(from: 1, reaches: false)),
        CacheRow(
            "416 judges one range", Step(asks: ["Range: bytes=99-"], status: "416 No", says: minute, gets: 416),
            Step(from: 2, reaches: true)),
        CacheRow(
            "412 judges one condition", Step(asks: ["If-Match: \"x\""], status: "412 No", says: minute, gets: 412),
            Step(from: 2, reaches: true)),
        CacheRow(
            "429 judges one client", Step(status: "429 No", says: minute, gets: 429), Step(from: 2, reaches: true)),
        CacheRow(
            "a 200 to a range is for everybody", Step(asks: ["Range: bytes=0-0"], says: minute, from: 1),
            Step(from: 1, reaches: false)),
        CacheRow(
            "POST is not stored", Step(method: "POST", says: ["Cache-Control: max-age=60"]),
            Step(from: 2, reaches: true)),
    ]

    /// RFC 9110 §7.6, RFC 9111 §3.1, §5.1; RFC 9211.
    static let fields: [CacheRow] = [
        CacheRow(
            "fields are given back as they were",
            Step(says: [
                "Cache-Control: max-age=60", "X-Odd-CASE: a,  b", "Set-Cookie: a=1", "Set-Cookie: b=2", "ETag: W/\"x\"",
                "Last-Modified: {-10}", "Content-Type: text/x; q=\"1\"", "Expires: {+99}", "X-Latin: caf\u{e9}",
            ]),
            Step(
                after: 2, from: 1, reaches: false,
                sees: [
                    "X-Odd-CASE: a,  b", "Set-Cookie: a=1", "Set-Cookie: b=2", "ETag: W/\"x\"",
                    "Content-Type: text/x; q=\"1\"", "Age: 2", "Expires", "Last-Modified", "Date", "Via",
                    "Content-Length: 6", "X-Latin: caf\u{e9}", "Cache-Status: tileproxy; hit; ttl=58",
                ])),
        CacheRow(
            "dates that no clock writes stay as they are",
            Step(says: [
                "Cache-Control: max-age=60", "Last-Modified: yesterday", "Expires: Thu, 1 Jan 1970 00:00:00 GMT",
            ]),
            Step(reaches: false, sees: ["Last-Modified: yesterday", "Expires: Thu, 1 Jan 1970 00:00:00 GMT"])),
        CacheRow(
            "a connection's fields go no further",
            Step(
                asks: [
                    "Connection: X-Mine", "X-Mine: a", "TE: trailers", "Keep-Alive: 1", "Proxy-Authorization: a",
                    "X-Other: b", "X-Forwarded-Host: evil", "X-HTTP-Method-Override: DELETE",
                ],
                says: [
                    "Cache-Control: max-age=60", "Connection: X-Hop", "X-Hop: a", "Keep-Alive: 2",
                    "Proxy-Authenticate: a", "X-Kept: b",
                ], sees: ["-X-Hop", "-Keep-Alive", "-Proxy-Authenticate", "X-Kept: b"],
                originSees: [
                    "-X-Mine", "-Keep-Alive", "-Proxy-Authorization", "X-Other: b", "Via", "-X-Forwarded-Host",
                    "-X-HTTP-Method-Override",
                ]),
            Step(reaches: false, sees: ["-X-Hop", "-Keep-Alive", "-Proxy-Authenticate", "X-Kept: b"])),
        CacheRow(
            "no-cache=\"field\" is not stored",
            Step(says: ["Cache-Control: max-age=60, no-cache=\"X-A\"", "X-A: 1", "X-B: 2"], sees: ["X-A: 1"]),
            Step(reaches: false, sees: ["-X-A", "X-B: 2"])),
        CacheRow(
            "an upstream Age is passed on", Step(says: ["Cache-Control: max-age=60", "Age: 5"], sees: ["Age: 5"]),
            Step(after: 2, reaches: false, sees: ["Age: 7"])),
        CacheRow(
            "a missing Date is added", Step(says: ["Cache-Control: max-age=60"], sees: ["Date"]),
            Step(reaches: false, sees: ["Date"])),
        CacheRow("the origin's own Host", Step(says: [], originSees: ["-x-nothing"])),
        CacheRow(
            "OPTIONS goes one step less far",
            Step(method: "OPTIONS", asks: ["Max-Forwards: 3"], reaches: true, originSees: ["Max-Forwards: 2"]),
            Step(method: "OPTIONS", asks: ["Max-Forwards: 0"], reaches: false, gets: 204)),
        CacheRow(
            "HEAD from a stored GET", Step(says: ["Cache-Control: max-age=60"]),
            Step(method: "HEAD", reaches: false, sees: ["Content-Length: 6"])),
    ]

    /// RFC 9111 §5.2.1, §5.4.
    static let wishes: [CacheRow] = [
        fetchedAgain("no-cache", ["Cache-Control: max-age=60"], asks: ["Cache-Control: no-cache"]),
        fetchedAgain("Pragma", ["Cache-Control: max-age=60"], asks: ["Pragma: no-cache"]),
        fetchedAgain("max-age=0", ["Cache-Control: max-age=60"], asks: ["Cache-Control: max-age=0"]),
        fetchedAgain("max-age=1", ["Cache-Control: max-age=60"], asks: ["Cache-Control: max-age=1"]),
        reused("max-age=10", ["Cache-Control: max-age=60"], asks: ["Cache-Control: max-age=10"]),
        fetchedAgain("min-fresh", ["Cache-Control: max-age=60"], asks: ["Cache-Control: min-fresh=58"]),
        reused("min-fresh met", ["Cache-Control: max-age=60"], asks: ["Cache-Control: min-fresh=30"]),
        reused("max-stale", ["Cache-Control: max-age=1"], asks: ["Cache-Control: max-stale=10"]),
        fetchedAgain("max-stale passed", ["Cache-Control: max-age=1"], asks: ["Cache-Control: max-stale=1"]),
        reused(
            "max-stale, of what other caches have used up", ["Cache-Control: max-age=10", "Age: 20"],
            asks: ["Cache-Control: max-stale=60"]),
        fetchedAgain(
            "max-stale, of what must be revalidated", ["Cache-Control: max-age=10, must-revalidate", "Age: 20"],
            asks: ["Cache-Control: max-stale=60"]),
        reused("only-if-cached", ["Cache-Control: max-age=60"], asks: ["Cache-Control: only-if-cached"]),
        CacheRow(
            "only-if-cached, nothing there",
            Step(
                asks: ["Cache-Control: only-if-cached"], reaches: false, gets: 504,
                sees: ["Cache-Status: tileproxy; detail=only-if-cached"])),
    ]

    /// RFC 9111 §4.1.
    static let varying: [CacheRow] = [
        CacheRow(
            "two variants", Step(asks: ["Foo: 1"], says: ["Cache-Control: max-age=60", "Vary: Foo"], from: 1),
            Step(asks: ["Foo: 2"], says: ["Cache-Control: max-age=60", "Vary: Foo"], from: 2, reaches: true),
            Step(asks: ["Foo: 1"], from: 1, reaches: false), Step(asks: ["Foo: 2"], from: 2, reaches: false),
            Step(says: ["Cache-Control: max-age=60", "Vary: Foo"], from: 5, reaches: true),
            Step(from: 5, reaches: false)),
        CacheRow(
            "case and order of names",
            Step(asks: ["Foo: 1", "Bar: 2"], says: ["Cache-Control: max-age=60", "Vary: foo, BAR"]),
            Step(asks: ["Bar: 2", "Foo: 1", "Baz: 3"], from: 1, reaches: false),
            Step(asks: ["Foo: 1", "Bar: 3"], from: 3, reaches: true)),
        CacheRow(
            "other Vary later", Step(asks: ["A: 1", "B: 1"], says: ["Cache-Control: max-age=60", "Vary: A"]),
            Step(asks: ["A: 2", "B: 1"], says: ["Cache-Control: max-age=60", "Vary: A, B"], from: 2, reaches: true),
            Step(asks: ["A: 1", "B: 9"], from: 1, reaches: false),
            Step(asks: ["A: 2", "B: 1"], from: 2, reaches: false)),
        CacheRow(
            "Accept-Encoding is compared by meaning",
            Step(asks: ["Accept-Encoding: gzip, br"], says: ["Cache-Control: max-age=60", "Vary: Accept-Encoding"]),
            Step(asks: ["Accept-Encoding: br,gzip"], from: 1, reaches: false)),
        CacheRow(
            "a variant is revalidated",
            Step(asks: ["Foo: 1"], says: ["Cache-Control: max-age=1", "Vary: Foo", "ETag: \"a\""]),
            Step(
                after: 3, asks: ["Foo: 1"], confirms: ["Cache-Control: max-age=60", "ETag: \"a\""], from: 1,
                reaches: true), Step(after: 3, asks: ["Foo: 1"], from: 1, reaches: false)),
        CacheRow(
            "POST removes all variants", Step(asks: ["Foo: 1"], says: ["Cache-Control: max-age=60", "Vary: Foo"]),
            Step(method: "POST", from: 2),
            Step(asks: ["Foo: 2"], says: ["Cache-Control: max-age=60", "Vary: Foo"], from: 3, reaches: true),
            Step(asks: ["Foo: 1"], from: 4, reaches: true)),
    ]

    /// RFC 9111 §4.3, RFC 9110 §13, §14.
    static let conditions: [CacheRow] = [
        CacheRow(
            "ETag is asked about", Step(says: ["Cache-Control: max-age=1", "ETag: \"a\""]),
            Step(
                after: 3, confirms: ["Cache-Control: max-age=60", "X-New: 1"], from: 1, reaches: true,
                sees: ["X-New: 1", "ETag: \"a\""], originSees: ["If-None-Match: \"a\""]),
            Step(after: 3, from: 1, reaches: false, sees: ["X-New: 1"])),
        CacheRow(
            "no-cache is asked about each time", Step(says: ["Cache-Control: no-cache", "ETag: \"a\""]),
            Step(confirms: [], from: 1, reaches: true), Step(confirms: [], from: 1, reaches: true)),
        CacheRow(
            "Last-Modified is asked about", Step(says: ["Cache-Control: max-age=1", "Last-Modified: {-60}"]),
            Step(after: 3, confirms: [], from: 1, reaches: true, originSees: ["If-Modified-Since"])),
        CacheRow(
            "the body's fields survive a 304",
            Step(says: ["Cache-Control: max-age=1", "ETag: \"a\"", "Content-Type: text/plain"]),
            Step(
                after: 3, confirms: ["Cache-Control: max-age=60", "Content-Type: text/html"], from: 1,
                sees: ["Content-Type: text/plain", "Content-Length: 6"])),
        CacheRow(
            "changed, it is replaced", Step(says: ["Cache-Control: max-age=1", "ETag: \"a\""]),
            Step(after: 3, says: ["Cache-Control: max-age=60", "ETag: \"b\""], from: 2, reaches: true),
            Step(from: 2, reaches: false, sees: ["ETag: \"b\""])),
        CacheRow(
            "If-None-Match met", Step(says: ["Cache-Control: max-age=60", "ETag: \"a\""]),
            Step(
                asks: ["If-None-Match: W/\"x\", W/\"a\""], reaches: false, gets: 304,
                sees: ["ETag: \"a\"", "-Content-Length"]), Step(asks: ["If-None-Match: \"b\""], from: 1, reaches: false)
        ),
        CacheRow(
            "If-Modified-Since met", Step(says: ["Cache-Control: max-age=60", "Last-Modified: {-60}"]),
            Step(asks: ["If-Modified-Since: {0}"], reaches: false, gets: 304),
            Step(asks: ["If-Modified-Since: {-90}"], from: 1, reaches: false)),
        CacheRow(
            "conditions go on when nothing is stored",
            Step(
                asks: ["If-None-Match: \"a\""], confirms: ["ETag: \"a\""], reaches: true, gets: 304,
                originSees: ["If-None-Match: \"a\""])),
        CacheRow(
            "If-Match is for the origin", Step(says: ["Cache-Control: max-age=60", "ETag: \"a\""]),
            Step(asks: ["If-Match: \"b\""], status: "412 No", reaches: true, gets: 412)),
        CacheRow(
            "stale, with the client's own tag", Step(says: ["Cache-Control: max-age=1", "ETag: \"a\""]),
            Step(
                after: 3, asks: ["If-None-Match: \"a\""], confirms: ["Cache-Control: max-age=60"], reaches: true,
                gets: 304, originSees: ["If-None-Match: \"a\""])),
        CacheRow(
            "a range", Step(says: ["Cache-Control: max-age=60", "ETag: \"a\""]),
            Step(
                asks: ["Range: bytes=1-2"], reaches: false, gets: 206,
                sees: ["Content-Range: bytes 1-2/6", "Content-Length: 2"]),
            Step(asks: ["Range: bytes=9-"], reaches: false, gets: 416, sees: ["Content-Range: bytes */6"]),
            Step(asks: ["Range: bytes=0-0,-1"], reaches: false, gets: 206),
            Step(asks: ["Range: bytes=1-2", "If-Range: \"a\""], reaches: false, gets: 206),
            Step(asks: ["Range: bytes=1-2", "If-Range: \"b\""], from: 1, reaches: false),
            Step(asks: ["Range: pages=1"], from: 1, reaches: false)),
        CacheRow(
            "a range of what is not stored",
            Step(
                asks: ["Range: bytes=0-1"], status: "206 Partial Content",
                says: ["Cache-Control: max-age=60", "Content-Range: bytes 0-1/6"], reaches: true, gets: 206,
                originSees: ["Range: bytes=0-1"]), Step(from: 2, reaches: true)),
        CacheRow(
            "no-store of one client takes nothing from others",
            Step(says: ["Cache-Control: max-age=60", "ETag: \"a\""]),
            Step(asks: ["Cache-Control: no-cache, no-store"], confirms: [], from: 1, reaches: true),
            Step(from: 1, reaches: false)),
        CacheRow(
            "nor does one client's Authorization", Step(says: ["Cache-Control: max-age=1", "ETag: \"a\""]),
            Step(
                after: 3, asks: ["Authorization: x"], confirms: ["Cache-Control: max-age=60", "X: 1"], from: 1,
                reaches: true, sees: ["X: 1", "Cache-Status: tileproxy; fwd=stale; fwd-status=304; ttl=60"]),
            Step(confirms: [], from: 1, reaches: true, sees: ["-X"], originSees: ["If-None-Match: \"a\""])),
        CacheRow(
            "a 304 that forbids storing ends it", Step(says: ["Cache-Control: max-age=1", "ETag: \"a\""]),
            Step(after: 3, confirms: ["Cache-Control: private"], from: 1, reaches: true),
            Step(from: 3, reaches: true, originSees: ["-If-None-Match"])),
        CacheRow(
            "an unrelated 304 is asked again",
            Step(says: ["Cache-Control: max-age=1", "ETag: \"a\"", "Last-Modified: {-60}"]),
            Step(after: 3, says: [], confirms: ["Last-Modified: {-10}"], from: 2, reaches: true)),
    ]

    /// RFC 9111 §4.3.5, §4.4.
    static let updates: [CacheRow] =
        [
            CacheRow(
                "HEAD updates", Step(says: ["Cache-Control: max-age=1", "ETag: \"a\"", "X: 1"]),
                Step(
                    after: 3, method: "HEAD", says: ["Cache-Control: max-age=60", "ETag: \"a\"", "X: 2"], reaches: true),
                Step(from: 1, reaches: false, sees: ["X: 2"])),
            CacheRow(
                "HEAD of another version", Step(says: ["Cache-Control: max-age=60", "ETag: \"a\""]),
                Step(
                    method: "HEAD", asks: ["Cache-Control: no-cache"],
                    says: ["Cache-Control: max-age=60", "ETag: \"b\""], reaches: true), Step(from: 3, reaches: true)),
            CacheRow(
                "HEAD 410 keeps", Step(says: ["Cache-Control: max-age=60"]),
                Step(method: "HEAD", asks: ["Cache-Control: no-cache"], status: "410 Gone", says: [], gets: 410),
                Step(from: 1, reaches: false)),
        ]
        + ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"].map { method in
            CacheRow(
                "\(method) invalidates", Step(says: ["Cache-Control: max-age=60"]), Step(method: method, from: 2),
                Step(from: 3, reaches: true))
        } + [
            CacheRow(
                "a failed POST does not", Step(says: ["Cache-Control: max-age=60"]),
                Step(method: "POST", status: "500 No", gets: 500), Step(from: 1, reaches: false)),
            CacheRow(
                "OPTIONS does not", Step(says: ["Cache-Control: max-age=60"]), Step(method: "OPTIONS", from: 2),
                Step(from: 1, reaches: false)),
        ]

    /// RFC 5861, RFC 9111 §4.2.4, §5.2.2.2.
    static let stale: [CacheRow] = [
        CacheRow(
            "stale-if-error", Step(says: ["Cache-Control: max-age=1, stale-if-error=60"]),
            Step(after: 3, status: "503 No", from: 1, reaches: true)),
        CacheRow(
            "stale at once, without a validator, and still good in need",
            Step(says: ["Cache-Control: max-age=0, stale-if-error=60"]),
            Step(after: 3, status: "503 No", from: 1, reaches: true)),
        CacheRow(
            "what a newer answer has replaced does not come back",
            Step(says: ["Cache-Control: max-age=1, stale-if-error=60"]),
            Step(after: 3, status: "410 Gone", from: 2, reaches: true, gets: 410),
            Step(status: "503 No", from: 3, reaches: true, gets: 503)),
        CacheRow(
            "nor what has become private",
            Step(asks: ["Foo: 1"], says: ["Cache-Control: max-age=1, stale-if-error=60", "Vary: Foo"]),
            Step(after: 3, asks: ["Foo: 1"], says: ["Cache-Control: private"], from: 2, reaches: true),
            Step(asks: ["Foo: 1"], status: "503 No", from: 3, reaches: true, gets: 503)),
        CacheRow(
            "an answer about the client leaves it alone", Step(says: ["Cache-Control: max-age=1, stale-if-error=60"]),
            Step(after: 3, status: "403 No", from: 2, reaches: true, gets: 403),
            Step(status: "503 No", from: 1, reaches: true)),
        CacheRow(
            "a forced reload that is not stored leaves it alone", Step(says: ["Cache-Control: max-age=60"]),
            Step(asks: ["Cache-Control: no-cache"], says: ["Cache-Control: private"], from: 2, reaches: true),
            Step(from: 1, reaches: false)),
        CacheRow(
            "stale-if-error passed", Step(says: ["Cache-Control: max-age=1, stale-if-error=1"]),
            Step(after: 9, status: "503 No", from: 2, reaches: true, gets: 503)),
        CacheRow(
            "without it an error is an error", Step(says: ["Cache-Control: max-age=1"]),
            Step(after: 3, status: "500 No", from: 2, gets: 500)),
        CacheRow(
            "must-revalidate forbids it", Step(says: ["Cache-Control: max-age=1, stale-if-error=60, must-revalidate"]),
            Step(after: 3, status: "500 No", from: 2, gets: 500)),
        CacheRow(
            "404 is no error", Step(says: ["Cache-Control: max-age=1, stale-if-error=60"]),
            Step(after: 3, status: "404 No", from: 2, gets: 404)),
        CacheRow(
            "stale-while-revalidate passed", Step(says: ["Cache-Control: max-age=1, stale-while-revalidate=1"]),
            Step(after: 9, from: 2, reaches: true)),
        CacheRow(
            "stale-while-revalidate", Step(says: ["Cache-Control: max-age=1, stale-while-revalidate=60"]),
            Step(after: 3, from: 1, sees: ["Age: 3"])),
    ]

    @Test(arguments: freshness + invalidExpires + storing) func storingAndFreshness(row: CacheRow) async throws {
        let wrong = try await row.run()
        #expect(wrong == [])
    }
    @Test(arguments: fields + wishes) func fieldsAndWishes(row: CacheRow) async throws {
        let wrong = try await row.run()
        #expect(wrong == [])
    }
    @Test(arguments: varying) func variants(row: CacheRow) async throws { #expect(try await row.run() == []) }
    @Test(arguments: conditions) func conditionsAndRanges(row: CacheRow) async throws {
        let wrong = try await row.run()
        #expect(wrong == [])
    }
    @Test(arguments: updates + stale) func updatesAndStaleUse(row: CacheRow) async throws {
        let wrong = try await row.run()
        #expect(wrong == [])
    }
}
