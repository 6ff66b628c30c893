import HTTPCaching
import HTTPTypes
import Testing
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)))
struct StorabilityTests {
    struct Row: CustomTestStringConvertible {
        var kind = CacheKind.shared
        var method = HTTPRequest.Method.get
        var asked: [String] = []
        var status = 200
        var lines: [String] = []
        let expected: Storability
        let rule: String
        var testDescription: String { "\(rule): \(kind) \(method) \(asked) -> \(status) \(lines)" }
    }

    static let rows = [
        Row(lines: ["Cache-Control: max-age=60"], expected: .store(.explicitLifetime), rule: "9111 §3 max-age"),
        Row(lines: ["Cache-Control: s-maxage=60"], expected: .store(.explicitLifetime), rule: "9111 §3 s-maxage"),
        Row(
            kind: .private, status: 302, lines: ["Cache-Control: s-maxage=60"], expected: .doNotStore(.noPermission),
            rule: "9111 §3 s-maxage is for shared caches"),
        Row(
            status: 302, lines: ["Expires: Sun, 06 Nov 1994 08:49:37 GMT"], expected: .store(.explicitLifetime),
            rule: "9111 §3 Expires"),
        Row(
            status: 302, lines: ["Cache-Control: public"], expected: .store(.explicitPermission), rule: "9111 §3 public"
        ),
        Row(
            kind: .private, status: 302, lines: ["Cache-Control: private"], expected: .store(.explicitPermission),
            rule: "9111 §3 private"),
        Row(expected: .store(.status), rule: "9110 §15.1 200"),
        Row(status: 404, expected: .store(.status), rule: "9110 §15.1 404"),
        Row(status: 410, expected: .store(.status), rule: "9110 §15.1 410"),
        Row(status: 204, expected: .store(.status), rule: "9110 §15.1 204"),
        Row(status: 302, expected: .doNotStore(.noPermission), rule: "9110 §15.1 not 302"),
        Row(status: 500, expected: .doNotStore(.noPermission), rule: "9110 §15.1 not 500"),
        Row(
            status: 599, lines: ["Cache-Control: max-age=60"], expected: .store(.explicitLifetime), rule: "9111 §3 any"),
        Row(method: .head, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.method), rule: "9111 §3 HEAD"),
        Row(method: .post, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.method), rule: "9111 §3 POST"),
        Row(method: .put, expected: .doNotStore(.method), rule: "9111 §3 PUT"),
        Row(status: 103, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.notFinal), rule: "9111 §3 final"),
        Row(status: 999, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.notFinal), rule: "9110 §15"),
        Row(
            status: 206, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.partialContent), rule: "9111 §3.3"
        ),
        Row(
            status: 304, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.notModified), rule: "9111 §4.3.4"),
        Row(
            status: 412, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.oneRequest),
            rule: "9110 §13.1 of the request's conditions"),
        Row(
            status: 416, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.oneRequest),
            rule: "9110 §14.2 of the request's range"),
        Row(status: 428, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.oneRequest), rule: "6585 §3"),
        Row(status: 429, lines: ["Cache-Control: public"], expected: .doNotStore(.oneRequest), rule: "6585 §4"),
        Row(status: 431, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.oneRequest), rule: "6585 §5"),
        Row(status: 511, lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.oneRequest), rule: "6585 §6"),
        Row(lines: ["Cache-Control: no-store, max-age=60"], expected: .doNotStore(.noStore), rule: "9111 §5.2.2.5"),
        Row(
            kind: .private, lines: ["Cache-Control: max-age=60", "Cache-Control: No-Store"],
            expected: .doNotStore(.noStore), rule: "9111 §5.2.2.5"),
        Row(
            asked: ["Cache-Control: no-store"], lines: ["Cache-Control: max-age=60"],
            expected: .doNotStore(.requestNoStore), rule: "9111 §5.2.1.5"),
        Row(
            lines: ["Cache-Control: no-store, must-understand, max-age=60"], expected: .store(.explicitLifetime),
            rule: "9111 §5.2.2.3 understood"),
        Row(
            status: 599, lines: ["Cache-Control: no-store, must-understand, max-age=60"],
            expected: .doNotStore(.notUnderstood), rule: "9111 §5.2.2.3 not understood"),
        Row(
            status: 599, lines: ["Cache-Control: must-understand, max-age=60"], expected: .doNotStore(.notUnderstood),
            rule: "9111 §5.2.2.3 not understood, without no-store"),
        Row(lines: ["Cache-Control: private, max-age=60"], expected: .doNotStore(.private), rule: "9111 §5.2.2.7"),
        Row(
            kind: .private, lines: ["Cache-Control: private, max-age=60"], expected: .store(.explicitLifetime),
            rule: "9111 §5.2.2.7"),
        Row(
            lines: [#"Cache-Control: private="set-cookie", max-age=60"#], expected: .store(.explicitLifetime),
            rule: "9111 §5.2.2.7 for fields"),
        Row(
            lines: [#"Cache-Control: private="content-type", max-age=60"#], expected: .doNotStore(.private),
            rule: "9111 §5.2.2.7 for a field that the rest needs"),
        Row(
            asked: ["Authorization: x"], lines: ["Cache-Control: max-age=60"], expected: .doNotStore(.authorization),
            rule: "9111 §3.5"),
        Row(
            asked: ["Authorization: x"], lines: ["Cache-Control: max-age=60, public"],
            expected: .store(.explicitLifetime), rule: "9111 §3.5 public"),
        Row(
            asked: ["Authorization: x"], lines: ["Cache-Control: max-age=60, must-revalidate"],
            expected: .store(.explicitLifetime), rule: "9111 §3.5 must-revalidate"),
        Row(
            asked: ["Authorization: x"], lines: ["Cache-Control: s-maxage=60"], expected: .store(.explicitLifetime),
            rule: "9111 §3.5 s-maxage"),
        Row(
            asked: ["Authorization: x"], lines: ["Cache-Control: s-maxage=x"], expected: .doNotStore(.authorization),
            rule: "9111 §3.5 not an s-maxage that says nothing"),
        Row(
            asked: ["Authorization: x"], lines: ["Cache-Control: proxy-revalidate, max-age=9"],
            expected: .doNotStore(.authorization), rule: "9111 §3.5 not proxy-revalidate"),
        Row(
            kind: .private, asked: ["Authorization: x"], lines: ["Cache-Control: max-age=60"],
            expected: .store(.explicitLifetime), rule: "9111 §3.5 is for shared caches"),
        Row(lines: ["Vary: *", "Cache-Control: max-age=60"], expected: .doNotStore(.varyAny), rule: "9111 §4.1"),
        Row(lines: ["Vary: a, *"], expected: .doNotStore(.varyAny), rule: "9111 §4.1"),
        Row(lines: ["Vary: a b"], expected: .doNotStore(.varyAny), rule: "9111 §4.1 unreadable"),
        Row(lines: ["Vary: a"], expected: .store(.status), rule: "9111 §4.1"),
        Row(lines: ["Cache-Control: no-cache"], expected: .store(.status), rule: "9111 §5.2.2.4 stored, not reused"),
        Row(
            lines: ["CDN-Cache-Control: max-age=60", "Cache-Control: no-store"], expected: .store(.explicitLifetime),
            rule: "9213 §2.2 wins"),
        Row(
            lines: ["CDN-Cache-Control: no-store", "Cache-Control: max-age=60"], expected: .doNotStore(.noStore),
            rule: "9213 §2.2 wins"),
        Row(
            lines: ["CDN-Cache-Control: max-age=60, &", "Cache-Control: no-store"], expected: .doNotStore(.noStore),
            rule: "9213 §2.1 malformed"),
        Row(
            kind: .private, lines: ["CDN-Cache-Control: no-store", "Cache-Control: max-age=60"],
            expected: .store(.explicitLifetime), rule: "9213 §2.2 not on its list"),
        Row(
            status: 302, lines: ["CDN-Cache-Control: ext", "Expires: Sun, 06 Nov 1994 08:49:37 GMT"],
            expected: .doNotStore(.noPermission), rule: "9213 §2.2 hides Expires"),
    ]

    @Test(arguments: rows)
    func aResponseMayBeStoredOrNot(row: Row) {
        let request = HTTPRequest(
            method: row.method, scheme: "https", authority: "tiles.example", path: "/", headerFields: fields(row.asked))
        let response = HTTPResponse(status: .init(code: row.status), headerFields: fields(row.lines))
        let found = CachePolicy(kind: row.kind).storability(of: response, to: request)
        #expect(found == row.expected)
        if case .store = row.expected { #expect(found.isStorable) } else { #expect(!found.isStorable) }
    }

    @Test func fieldsWithoutEndAreNotStored() {
        let many = HTTPResponse(status: .ok, headerFields: fields((0..<5000).map { _ in "X: a" }))
        #expect(CachePolicy.shared.storability(of: many, to: request()) == .doNotStore(.fields))
    }

    @Test func anOwnerMayOverrideTheOriginFor200Only() {
        let policy = CachePolicy(kind: .shared, minimumLifetime: 60, overridesOrigin: true)
        let forbidden = response(200, "Cache-Control: no-store, private")
        #expect(policy.storability(of: forbidden, to: request()).isStorable)
        #expect(!policy.storability(of: response(404, "Cache-Control: no-store"), to: request()).isStorable)
        #expect(!policy.storability(of: forbidden, to: request(.get, "Cache-Control: no-store")).isStorable)
        #expect(!policy.storability(of: forbidden, to: request(.get, "Authorization: x")).isStorable)
        let timid = CachePolicy(kind: .shared, minimumLifetime: 60)
        #expect(!timid.storability(of: forbidden, to: request()).isStorable)
    }

    @Test(
        arguments: [
            // 9110 §7.6.1, 9111 §3.1
            (["Connection: close, X-Hop", "X-Hop: 1", "X-End: 2"], ["X-End: 2"]),
            (["Connection: a", "Connection: b", "A: 1", "b: 2", "c: 3"], ["c: 3"]),
            (
                ["Keep-Alive: 5", "TE: x", "Trailer: y", "Transfer-Encoding: chunked", "Upgrade: z", "Etag: e"],
                ["ETag: e"]
            ),
            (
                [
                    "Proxy-Authenticate: a", "Proxy-Authentication-Info: b", "Proxy-Authorization: c",
                    "Proxy-Connection: d",
                ],
                []
            ),
            (["Age: 5", "Date: x"], ["Date: x"]),
            (["Set-Cookie: a", "Set-Cookie: b"], ["Set-Cookie: a", "Set-Cookie: b"]),
            // 9110 §7.6.1: a Connection that names these is in error
            (
                ["Connection: content-encoding, cache-control", "Content-Encoding: gzip"],
                ["Content-Encoding: gzip"]
            ),
        ] as [([String], [String])])
    func fieldsOfOneConnectionAreNotStored(lines: [String], kept: [String]) {
        #expect(CachePolicy.shared.fieldsToStore(fields(lines)) == fields(kept))
        #expect(CachePolicy.private.fieldsToStore(fields(lines)) == fields(kept))
    }

    @Test func fieldsThatNoCacheNamesAreNotStored() {
        let control = #"Cache-Control: no-cache="a, b""#
        #expect(CachePolicy.shared.fieldsToStore(fields(control, "A: 1", "C: 2")) == fields(control, "C: 2"))
        #expect(CachePolicy.private.fieldsToStore(fields(control, "A: 1", "C: 2")) == fields(control, "C: 2"))
        // 9111 §5.2.2.4: where a named field is needed to make sense of the rest, all of it is revalidated.
        let needed = #"Cache-Control: no-cache="content-type", max-age=9"#
        #expect(CachePolicy.shared.fieldsToStore(fields(needed, "Content-Type: a")).count == 2)
        #expect(CachePolicy.shared.atNoon(needed).stored.noCache)
        #expect(!CachePolicy.shared.atNoon(control).stored.noCache)
    }

    @Test func fieldsThatPrivateNamesAreNotStoredByASharedCache() {
        let control = #"Cache-Control: private="set-cookie", max-age=9"#
        #expect(CachePolicy.shared.fieldsToStore(fields(control, "Set-Cookie: a")) == fields(control))
        #expect(CachePolicy.private.fieldsToStore(fields(control, "Set-Cookie: a")).count == 2)
    }

    @Test func forwardingLeavesOutTheConnectionsFieldsOnly() {
        let given = fields("Connection: x", "X: 1", "Age: 5", "Authorization: a", "Proxy-Authorization: b")
        #expect(given.withoutConnectionFields == fields("Age: 5", "Authorization: a"))
    }

    @Test func whatIsForwardedKeepsItsOrderAndItsRepetitionsWhereverSomethingIsLeftOut() {
        let names = [
            "TE", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Proxy-Authenticate",
            "Proxy-Authorization", "Proxy-Authentication-Info", "X-Named", "Via", "ETag", "Vary", "Age", "Location",
            "Content-Language", "Accept-Ranges", "X-Of-17-Letters-X", "Last-Modified",
        ]
        let left = Set(names.prefix(10).map { $0.lowercased() } + ["connection"])
        var random = SplitMix64(seed: 3)
        for _ in 0..<500 {
            let lines =
                ["Connection: x-named"] + (0..<random.below(9)).map { "\(names[random.below(names.count)]): \($0)" }
            let given = fields(lines.shuffled(using: &random))
            let expected = given.filter { !left.contains($0.name.canonicalName) }
            #expect(Array(given.withoutConnectionFields) == Array(expected))
        }
    }
}
