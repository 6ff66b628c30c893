import Testing
import TileStoreTesting

@testable import TileProxyServer

/// What a 304, or the answer to a HEAD, changes about a stored response, besides its times.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct ConfirmationTests {
    typealias Step = CacheRow.Step
    private static let short = ["Cache-Control: max-age=1", "ETag: \"a\""]
    private static let varying = ["Cache-Control: max-age=60", "ETag: \"a\"", "Vary: Foo"]

    /// RFC 9110 §8.8.3: a tag may have any byte from 0x80 on.
    @Test
    func aTagThatIsNotUTF8IsConfirmedAndAskedAbout() async throws {
        @Sendable func tag(_ byte: UInt8) -> [UInt8] { [0x22, 0x61, byte, 0x22] }
        let origin = try ScriptedOrigin { request, wire in
            let isAsked = request.fields["if-none-match"] != nil
            let status = isAsked ? "304 Not Modified\r\n" : "200 OK\r\nContent-Length: 5\r\n"
            let head = "HTTP/1.1 " + status + "Cache-Control: max-age=60\r\nETag: "
            wire.send(Array(head.utf8) + tag(0xFC) + Array(("\r\n\r\n" + (isAsked ? "" : "hello")).utf8))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask().text == "hello")
            for (byte, status) in [(UInt8(0xFC), 304), (0xFD, 200)] {
                let wire = try proxy.connect()
                wire.send(
                    Array("GET /a HTTP/1.1\r\nHost: a\r\nIf-None-Match: ".utf8) + tag(byte) + Array("\r\n\r\n".utf8))
                #expect(wire.answer()?.status == status)
            }
            proxy.clock.advance(seconds: 100)
            #expect(try proxy.ask().text == "hello")
            #expect(origin.count == 2)
        }
    }

    /// RFC 9111 §4.1, §4.3.4.
    @Test
    func aVaryThatComesWithA304SelectsFromThenOn() async throws {
        let row = CacheRow(
            "a Vary in a 304", Step(asks: ["Foo: 1"], says: Self.short),
            Step(after: 3, asks: ["Foo: 1"], confirms: Self.varying, from: 1, reaches: true),
            Step(asks: ["Foo: 1"], from: 1, reaches: false),
            Step(asks: ["Foo: 2"], says: Self.varying, from: 4, reaches: true),
            Step(asks: ["Foo: 1"], from: 1, reaches: false), Step(asks: ["Foo: 2"], from: 4, reaches: false))
        #expect(try await row.run() == [])
    }

    @Test
    func aVaryOfMoreFieldsThatComesWithA304ReplacesTheOldOne() async throws {
        let row = CacheRow(
            "Vary: Foo becomes Vary: Foo, Bar", Step(asks: ["Foo: 1", "Bar: 1"], says: Self.short + ["Vary: Foo"]),
            Step(
                after: 3, asks: ["Foo: 1", "Bar: 1"], confirms: ["Cache-Control: max-age=60", "Vary: Foo, Bar"],
                from: 1, reaches: true),
            Step(asks: ["Foo: 1", "Bar: 1"], from: 1, reaches: false),
            Step(asks: ["Foo: 1", "Bar: 2"], says: ["Vary: Foo, Bar"], from: 4, reaches: true))
        #expect(try await row.run() == [])
    }

    @Test
    func aVaryThatComesWithTheAnswerToAHeadSelectsFromThenOn() async throws {
        let row = CacheRow(
            "a Vary in the answer to a HEAD", Step(asks: ["Foo: 1"], says: Self.short),
            Step(after: 3, method: "HEAD", asks: ["Foo: 1"], says: Self.varying, reaches: true),
            Step(asks: ["Foo: 1"], from: 1, reaches: false),
            Step(asks: ["Foo: 2"], says: Self.varying, from: 4, reaches: true))
        #expect(try await row.run() == [])
    }

    @Test
    func aVaryOfEverythingThatComesWithA304EndsTheReuse() async throws {
        let row = CacheRow(
            "Vary: * in a 304", Step(says: Self.short),
            Step(after: 3, confirms: ["Cache-Control: max-age=60", "Vary: *"], from: 1, reaches: true),
            Step(from: 3, reaches: true))
        #expect(try await row.run() == [])
    }

    // MARK: Cookies (RFC 9111 §7.3)

    private static let guessed = ["Last-Modified: {-100000}", "ETag: \"a\"", "Set-Cookie: sid=1"]

    @Test(arguments: [
        guessed, guessed + ["Cache-Control: public"], ["ETag: \"a\"", "Set-Cookie: sid=1"],
        ["ETag: \"a\"", "Set-Cookie: sid=1", "Cache-Control: max-age=0"],
        ["ETag: \"a\"", "Set-Cookie: sid=1", "Date: {0}", "Expires: 0"],
        ["ETag: \"a\"", "Set-Cookie: sid=1", "Cache-Control: no-cache, max-age=60"],
    ])
    func aCookieIsNotStoredWithoutALifetimeOfTheOriginsOwn(says: [String]) async throws {
        let row = CacheRow(
            "Set-Cookie", Step(says: says, sees: ["Set-Cookie: sid=1"]),
            Step(after: 3, says: ["ETag: \"a\""], confirms: [], from: 2, reaches: true, sees: ["-Set-Cookie"]))
        #expect(try await row.run() == [])
    }

    @Test(arguments: [
        ["Cache-Control: max-age=60"], ["Cache-Control: s-maxage=60"], ["Date: {0}", "Expires: {+60}"],
        ["CDN-Cache-Control: max-age=60"],
    ])
    func aCookieIsStoredWithALifetimeOfTheOriginsOwn(says: [String]) async throws {
        let row = CacheRow(
            "Set-Cookie", Step(says: says + ["Set-Cookie: a=b"]),
            Step(after: 3, from: 1, reaches: false, sees: ["Set-Cookie: a=b"]))
        #expect(try await row.run() == [])
    }

    @Test
    func aCookieThatTheCacheIsToldToLeaveOutIsNoObstacle() async throws {
        let row = CacheRow(
            "no-cache=Set-Cookie",
            Step(says: ["Last-Modified: {-100000}", "Set-Cookie: a=b", "Cache-Control: no-cache=\"Set-Cookie\""]),
            Step(after: 3, from: 1, reaches: false, sees: ["-Set-Cookie"]))
        #expect(try await row.run() == [])
    }

    @Test
    func aCookieInA304IsForItsClientAlone() async throws {
        let row = CacheRow(
            "Set-Cookie in a 304", Step(says: ["Last-Modified: {-20}", "ETag: \"a\""]),
            Step(after: 5, confirms: ["Set-Cookie: sid=2"], from: 1, reaches: true, sees: ["Set-Cookie: sid=2"]),
            Step(after: 5, confirms: [], from: 1, reaches: true, sees: ["-Set-Cookie"]))
        #expect(try await row.run() == [])
    }
}
