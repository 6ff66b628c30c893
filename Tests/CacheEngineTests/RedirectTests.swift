import HTTPTypes
import Testing

@testable import CacheEngine

@Suite(.timeLimit(.minutes(60)))
struct RedirectTests {
    private func decide(
        _ location: String?,
        from: (scheme: String, authority: String, path: String) = ("https", "a.example", "/1/2/3.png?k=v"),
        status: Int = 302
    ) -> Redirect {
        var fields = HTTPFields()
        fields[.location] = location
        let request = HTTPRequest(
            method: .get, scheme: from.scheme, authority: from.authority, path: from.path,
            headerFields: [.authorization: "Bearer secret", .userAgent: "test", .cookie: "id=1"])
        return Redirect.next(
            HTTPResponse(status: HTTPResponse.Status(code: status), headerFields: fields), to: request,
            harmless: [.userAgent])
    }

    private func target(_ redirect: Redirect) -> String? {
        guard case .follow(let next) = redirect else { return nil }
        return "\(next.scheme ?? "")://\(next.authority ?? "")\(next.path ?? "")"
    }

    @Test(arguments: [
        ("https://b.example/x.png", "https://b.example/x.png"), ("/y.png?z=1", "https://a.example/y.png?z=1"),
        ("4.png", "https://a.example/1/2/4.png"), ("../4.png", "https://a.example/1/4.png"),
        ("//c.example/p", "https://c.example/p"), ("?q", "https://a.example/1/2/3.png?q"),
        ("https://b.example", "https://b.example/"), ("HTTPS://A.EXAMPLE/x#part", "https://a.example/x"),
    ])
    func locationsAreResolvedAgainstTheRequest(location: String, expected: String) throws {
        let found = try #require(target(decide(location)))
        #expect(found.lowercased() == expected)
    }

    @Test(arguments: [
        nil, "", "http://a.example/x", "ftp://a.example/x", "data:image/png;base64,AA", "file:///etc/passwd",
        "https:///x", "https://user:pw@b.example/x", "javascript:alert(1)",
        "https://b.example/" + String(repeating: "a", count: 9000),
    ])
    func badLocationsAreRefused(location: String?) {
        // An empty reference is the request's own URL: a circle, which the count ends.
        if location == "" { return }
        #expect(target(decide(location)) == nil, "\(location ?? "none")")
    }

    @Test func anEmptyPathSegmentIsNoHost() {
        #expect(
            target(decide("4.png", from: ("https", "a.example", "//b.example/3.png")))
                == "https://a.example//b.example/4.png")
    }

    @Test func secretsStayWithTheirOrigin() throws {
        func fields(_ location: String) throws -> HTTPFields {
            guard case .follow(let next) = decide(location) else { throw CancellationError() }
            return next.headerFields
        }
        #expect(try fields("/other")[.authorization] != nil)
        #expect(try fields("https://A.example:443/other")[.authorization] != nil)
        for elsewhere in ["https://b.example/", "https://a.example:8443/", "https://a.example.evil/"] {
            let found = try fields(elsewhere)
            #expect(found[.authorization] == nil && found[.cookie] == nil, "\(elsewhere)")
            #expect(found[.userAgent] == "test")
        }
    }

    @Test func plainHTTPMayBecomeHTTPS() {
        #expect(target(decide("https://a.example/x", from: ("http", "a.example", "/"))) == "https://a.example/x")
    }

    @Test func onlyStatusesThatMoveTheRequestAreFollowed() {
        for status in 300...399 { #expect(Redirect.isOne(status) == [301, 302, 303, 307, 308].contains(status)) }
    }
}
