import OriginClient
import Testing
import TileStore

@testable import TileProxyServer

@Suite(.timeLimit(.minutes(60)))
struct ProxyRouteTests {
    @Test(arguments: [
        ("/=http://127.0.0.1:8000", "root", "/a?b", "/a?b"), ("/fonts=https://h.test/x/", "fonts", "/fonts/a", "/x/a"),
        ("glyphs:/fonts/=http://h.test", "glyphs", "/fonts/a/b", "/a/b"), ("/a/b=http://h.test", "a-b", "/a/b", "/"),
        ("/a/b=http://[::1]:81/c", "a-b", "/a/b/", "/c/"),
    ])
    func aRouteMapsPaths(text: String, name: String, path: String, target: String) throws {
        let route = try ProxyRoute(text)
        #expect(route.name.description == name)
        let parts = path.split(separator: "?", maxSplits: 1).map(String.init)
        let rest = try #require(route.rest(of: parts[0]))
        #expect(route.target(rest: rest, query: parts.count > 1 ? parts[1] : nil) == target)
    }

    @Test
    func aPrefixEndsAtASegment() throws {
        let route = try ProxyRoute("/fonts=http://h.test")
        #expect(route.rest(of: "/fontsets/a") == nil)
        #expect(route.rest(of: "/fon") == nil)
        #expect(route.rest(of: "/fonts") == "")
    }

    @Test(arguments: [
        "fonts=http://h", "/fonts", "/a=ftp://h", "/a=http://u@h", "/a=http://h?q", "/a=http://h/#f", "/a=h",
        "/../a=http://h",
        "/a=http://h/../b", "/a=http://h:0", "/a=http://h:99999", "na me:/a=http://h", ":/a=http://h", "/a?b=http://h",
    ])
    func aTextThatIsNoRouteIsRefused(text: String) {
        #expect(throws: ProxyRoute.ParseError.self) { try ProxyRoute(text) }
    }

    @Test
    func anOriginKnowsItsAuthority() throws {
        #expect(try #require(Origin("http://H.test:80/")).authority == "h.test")
        #expect(try #require(Origin("https://h.test:80/")).authority == "h.test:80")
        #expect(try #require(Origin("http://[::1]:8000")).authority == "[::1]:8000")
    }
}
