import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct InvalidationTests {
    // RFC 3986 §5.4.1 and §5.4.2, against http://a/b/c/d;p?q; without fragments, which a cache has no use for.
    @Test(arguments: [
        ("g:h", "g:h"), ("g", "http://a/b/c/g"), ("./g", "http://a/b/c/g"), ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"), ("//g", "http://g"), ("?y", "http://a/b/c/d;p?y"), ("g?y", "http://a/b/c/g?y"),
        ("#s", "http://a/b/c/d;p?q"), ("g#s", "http://a/b/c/g"), ("g?y#s", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"), ("g;x", "http://a/b/c/g;x"), ("g;x?y#s", "http://a/b/c/g;x?y"),
        ("", "http://a/b/c/d;p?q"), (".", "http://a/b/c/"), ("./", "http://a/b/c/"), ("..", "http://a/b/"),
        ("../", "http://a/b/"), ("../g", "http://a/b/g"), ("../..", "http://a/"), ("../../", "http://a/"),
        ("../../g", "http://a/g"), ("../../../g", "http://a/g"), ("../../../../g", "http://a/g"),
        ("/./g", "http://a/g"), ("/../g", "http://a/g"), ("g.", "http://a/b/c/g."), (".g", "http://a/b/c/.g"),
        ("g..", "http://a/b/c/g.."), ("..g", "http://a/b/c/..g"), ("./../g", "http://a/b/g"),
        ("./g/.", "http://a/b/c/g/"), ("g/./h", "http://a/b/c/g/h"), ("g/../h", "http://a/b/c/h"),
        ("g;x=1/./y", "http://a/b/c/g;x=1/y"), ("g;x=1/../y", "http://a/b/c/y"), ("g?y/./x", "http://a/b/c/g?y/./x"),
        ("http://b/c", "http://b/c"), ("HTTP://b/x/../c", "http://b/c"), ("g:", "g:"),
    ])
    func aReferenceIsResolved(text: String, expected: String) throws {
        let base = try #require(URIReference("http://a/b/c/d;p?q"))
        #expect(base.resolving(try #require(URIReference(text))).description == expected)
    }

    @Test func aBaseWithoutAPathHasARoot() throws {
        let base = try #require(URIReference("http://a"))
        #expect(base.resolving(try #require(URIReference("g"))).description == "http://a/g")
        #expect(base.requestTarget == "/")
        #expect(URIReference("http://a?x")?.requestTarget == "/?x")
    }

    @Test(arguments: ["a b", "a\u{7F}", "a\nb", "\u{e9}", "a\\b", "1a:b", ":b", String(repeating: "a", count: 20000)])
    func whatIsNoReferenceIsNone(text: String) { #expect(URIReference(text) == nil) }

    @Test(arguments: [
        ("http://a/", "http://a/x?y", true), ("http://a/", "HTTP://A:80/", true), ("https://a/", "https://a:443", true),
        ("http://a/", "http://a:/", true), ("http://a/", "http://a:080/", true), ("http://a/", "http://u@a/", true),
        ("http://a/", "https://a/", false), ("http://a/", "http://a:81/", false), ("http://a/", "http://b/", false),
        ("http://a/", "http://a.b/", false), ("http://a:x/", "http://a:x/", false), ("http:///", "http:///", false),
        ("http://[::1]:80/", "http://[::1]/", true), ("http://[::1]/", "http://[::2]/", false), ("x", "x", false),
    ])
    func originsAreCompared(a: String, b: String, same: Bool) throws {
        let (a, b) = (try #require(URIReference(a)), try #require(URIReference(b)))
        #expect(a.hasSameOrigin(as: b) == same, "9110 §4.3.2")
        #expect(b.hasSameOrigin(as: a) == same)
    }

    @Test(
        arguments: [
            // RFC 9111 §4.4
            ("POST", 200, [], ["/a"]), ("PUT", 204, [], ["/a"]), ("DELETE", 200, [], ["/a"]),
            ("PATCH", 200, [], ["/a"]),
            ("M-SEARCH", 200, [], ["/a"]), ("FOO", 302, [], ["/a"]), ("GET", 200, [], []), ("HEAD", 200, [], []),
            ("OPTIONS", 200, [], []), ("TRACE", 200, [], []), ("PROPFIND", 207, [], []), ("POST", 400, [], []),
            ("POST", 500, [], []), ("POST", 103, [], []), ("get", 200, [], ["/a"]),
            ("POST", 201, ["Location: /new"], ["/a", "/new"]), ("POST", 201, ["Content-Location: c"], ["/a", "/c"]),
            ("POST", 201, ["Location: b", "Content-Location: c?d"], ["/a", "/b", "/c?d"]),
            ("POST", 201, ["Location: https://TILES.example:443/x/../b"], ["/a", "/b"]),
            ("POST", 201, ["Location: https://other.example/b"], ["/a"]),
            ("POST", 201, ["Location: http://tiles.example/b"], ["/a"]), ("POST", 201, ["Location: //other/b"], ["/a"]),
            ("POST", 201, ["Location: a", "Content-Location: a"], ["/a"]), ("POST", 201, ["Location: b c"], ["/a"]),
            ("GET", 200, ["Location: /b"], []), ("POST", 404, ["Location: /b"], []),
            // RFC 3986 §6.2.2: another spelling is the same resource
            ("POST", 201, ["Location: /%74/%7e?%41%2f"], ["/a", "/%74/%7e?%41%2f", "/t/~?A%2F"]),
            ("PUT", 204, ["Content-Location: /x/%2e%2E/%c3%A9"], ["/a", "/x/%2e%2E/%c3%A9", "/%C3%A9"]),
            ("PUT", 204, ["Location: /%61", "Content-Location: /100%"], ["/a", "/%61", "/100%"]),
        ] as [(String, Int, [String], [String])])
    func anUnsafeRequestInvalidates(method: String, status: Int, lines: [String], targets: [String]) throws {
        let found = Invalidation.targets(
            method: try #require(HTTPRequest.Method(method)),
            target: try #require(URIReference("https://tiles.example/a")),
            response: HTTPResponse(status: .init(code: status), headerFields: fields(lines)))
        #expect(found.map(\.requestTarget) == targets)
    }
}
