import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine
@testable import TileProxyServer

/// What an unsafe method does to what is stored, and to what is on its way there (RFC 9111 §4.4).
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct ChangeTests {
    @Test
    func aChangeVoidsPermitsAndWaitsForWhatIsBeingWritten() throws {
        let changes = Changes()
        let store = try SourceName("a")
        let (mine, other) = (
            TileKey(source: store, resource: try ResourceAddress(path: "/a")),
            TileKey(source: store, resource: try ResourceAddress(path: "/b"))
        )
        let isSettled = Locked(false)
        let isWritten = Locked(false)
        #expect(!changes.waitForWriting(mine) { isWritten.withLock { $0 = true } })
        let (writing, late, elsewhere) = (
            changes.takePermit(for: mine), changes.takePermit(for: mine), changes.takePermit(for: other)
        )
        #expect(changes.beginWriting(writing))
        #expect(!changes.change(mine) { isSettled.withLock { $0 = true } })
        #expect(!changes.beginWriting(late) && changes.beginWriting(elsewhere))
        #expect(changes.waitForWriting(mine) { isWritten.withLock { $0 = true } })
        #expect(!isSettled.withLock { $0 } && !isWritten.withLock { $0 })
        changes.endWriting(writing)
        #expect(isSettled.withLock { $0 } && isWritten.withLock { $0 })
        #expect(changes.change(mine) {})
        let later = changes.takePermit(for: mine)
        #expect(changes.beginWriting(later))
        changes.endWriting(later)
        changes.endWriting(elsewhere)
        for permit in [writing, late, elsewhere, later] { changes.giveBack(permit) }
        #expect(changes.count == 0)
        #expect(changes.change(mine) {})
    }

    private static let get = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"

    @Test
    func aChangeTakesWhatLocationNamesWithIt() async throws {
        let origin = try ScriptedOrigin { request, wire in
            let isGet = request.method == "GET"
            let fields =
                isGet ? ["Cache-Control: max-age=60"] : ["Location: /b?x", "Content-Location: http://elsewhere.test/c"]
            wire.send(reply("200 OK", fields, "\(request.number)"))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            for target in ["/a", "/b?x", "/b", "/c"] { _ = try proxy.ask("GET", target) }
            _ = try proxy.ask("POST", "/a")
            #expect(try proxy.ask("GET", "/a").text == "6")
            #expect(try proxy.ask("GET", "/b?x").text == "7")
            #expect(try proxy.ask("GET", "/b").text == "3")
            #expect(try proxy.ask("GET", "/c").text == "4")
        }
    }

    /// To a client the proxy is the origin, and an origin may know how clients reach it (RFC 9111 §4.4, RFC 3986 §6.2.2).
    @Test(arguments: [
        "Location: /base/%74", "Content-Location: t", "Location: http://proxy.test/fonts/t",
        "Location: https://PROXY.test:443/fonts/%74", "Content-Location: /fonts/t",
        "Location: https://maps.example/cache/fonts/t",
    ])
    func aChangeTakesWhatLocationNamesHoweverItIsSpelt(field: String) async throws {
        let origin = try ScriptedOrigin { request, wire in
            let isGet = request.method == "GET"
            wire.send(reply("200 OK", isGet ? ["Cache-Control: max-age=60"] : [field], "\(request.number)"))
            return true
        }
        try await withProxy(
            origin, routes: ["/fonts=ORIGIN/base"], configure: { $0.publicURL = { "https://maps.example/cache" } }
        ) { proxy async throws in
            for target in ["/fonts/t", "/fonts/other"] { _ = try proxy.ask("GET", target) }
            _ = try proxy.ask("POST", "/fonts/a")
            #expect(try proxy.ask("GET", "/fonts/t").text == "4")
            #expect(try proxy.ask("GET", "/fonts/other").text == "2")
        }
    }

    @Test
    func aChangeLeavesAloneWhatAnotherHostHas() async throws {
        let origin = try ScriptedOrigin { request, wire in
            let fields = request.method == "GET" ? "Cache-Control: max-age=60" : "Location: https://maps.example/t"
            wire.send(reply("200 OK", [fields], "\(request.number)"))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            _ = try proxy.ask("GET", "/t")
            _ = try proxy.ask("POST", "/a")
            #expect(try proxy.ask("GET", "/t").text == "1")
        }
    }

    @Test
    func whatIsOnItsWayWhenAChangeComesIsNotStored() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            guard request.method == "GET" else {
                wire.send(reply())
                return true
            }
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nol")
            if request.number == 1 { gate.wait() }
            wire.send("d\(request.number)")
            return true
        }
        try await withProxy(origin) { proxy async throws in
            let slow = try proxy.connect()
            slow.send(Self.get)
            #expect(slow.take(through: "\r\n\r\n") != nil)
            #expect(try proxy.ask("DELETE", "/a").status == 200)
            gate.open()
            #expect(slow.take(4) == Array("old1".utf8))
            #expect(try proxy.ask().text == "old3")
        }
    }

    /// Requests that nobody waits for, or that lie under a key of their own: what they bring must not outlive a change
    /// either (RFC 9111 §4.4).
    @Test(arguments: [["Cache-Control: no-cache"], ["Foo: 1"], ["Range: bytes=0-"]])
    func noAnswerFromBeforeAChangeIsStoredAfterIt(fields: [String]) async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            guard request.method == "GET" else {
                wire.send(reply())
                return true
            }
            let life = request.number == 1 ? 1 : 60
            wire.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=\(life)\r\nVary: Foo\r\nContent-Length: 4\r\n\r\nol")
            if request.number == 2 { gate.wait() }
            wire.send("d\(request.number)")
            return true
        }
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask("GET", "/a", fields).text == "old1")
            proxy.clock.advance(seconds: 5)
            let slow = try proxy.connect()
            slow.send("GET /a HTTP/1.1\r\nHost: a\r\n\(fields.joined(separator: "\r\n"))\r\n\r\n")
            #expect(slow.take(through: "\r\n\r\n") != nil)
            #expect(try proxy.ask("DELETE", "/a").status == 200)
            gate.open()
            #expect(slow.take(4) == Array("old2".utf8))
            #expect(try proxy.ask("GET", "/a", fields).text == "old4")
            // Every permit comes back.
            while proxy.cache.changes.count > 0 { await Task.yield() }
        }
    }
}
