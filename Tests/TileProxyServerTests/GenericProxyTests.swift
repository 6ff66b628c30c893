import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// The generic route where more than one request, or more than one step of one, matters.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct GenericProxyTests {
    private static let get = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"

    // MARK: Many clients

    @Test(arguments: [1, 2])
    func aThousandClientsAskingOneColdThingCostOneRequest(threads: Int) async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { _, wire in
            gate.wait()
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], "hello"))
            return true
        }
        try await withProxy(origin, threads: threads) { proxy async throws in
            let wires = try (0..<300).map { _ in try proxy.connect() }
            for wire in wires { wire.send(Self.get) }
            gate.open()
            // On a busy machine the answer may be seconds old when it comes.
            let ways = ["fwd=uri-miss; ttl=; stored", "fwd=uri-miss; ttl=; collapsed", "hit; ttl="]
            for wire in wires {
                let answer = try #require(wire.answer())
                #expect(answer.text == "hello")
                let way = answer["Cache-Status"]?.filter { !$0.isNumber }
                #expect(ways.map { "tileproxy; " + $0 }.contains(way))
            }
            #expect(origin.count == 1)
        }
    }

    @Test
    func whatCannotBeStoredDelaysNobody() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            // The first answer's head says that it is for one client alone; its body takes its time.
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: 2\r\n\r\n")
            if request.number == 1 { gate.wait() }
            wire.send("ok")
            return true
        }
        try await withProxy(origin) { proxy async throws in
            let first = try proxy.connect()
            first.send(Self.get)
            #expect(first.take(through: "\r\n\r\n") != nil)
            let others = try (0..<5).map { _ in try proxy.connect() }
            for wire in others { wire.send(Self.get) }
            for wire in others { #expect(wire.answer()?.text == "ok") }
            gate.open()
            #expect(first.take(2) == Array("ok".utf8))
            #expect(origin.count == 6)
        }
    }

    /// Not even for its head, once it is known what sort of answer it will be.
    @Test
    func whatCouldNotBeStoredTheLastTimeIsNotWaitedFor() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            if request.number == 2 { gate.wait() }
            let life = request.number < 4 ? "private" : "max-age=60"
            wire.send(reply("200 OK", ["Cache-Control: " + life], "\(request.number)"))
            return true
        }
        try await withProxy(origin, configure: { $0.collapseWait = .hours(1) }) { proxy async throws in
            #expect(try proxy.ask().text == "1")
            let slow = try proxy.connect()
            slow.send(Self.get)
            while origin.count < 2 { await Task.yield() }
            #expect(try proxy.ask().text == "3")
            #expect(try proxy.ask().text == "4")
            #expect(try proxy.ask().text == "4")
            gate.open()
            #expect(slow.answer()?.text == "2")
        }
    }

    @Test
    func whenTheOneWhoAsksIsGoneTheOthersGetTheAnswer() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            gate.wait()
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], "\(request.number)"))
            return true
        }
        try await withProxy(origin, configure: { $0.collapseWait = .hours(1) }) { proxy async throws in
            var first: Wire? = try proxy.connect()
            first?.resetsAtItsEnd()
            first?.send(Self.get)
            while origin.count < 1 { await Task.yield() }
            let others = try (0..<20).map { _ in try proxy.connect() }
            for wire in others { wire.send(Self.get) }
            // What comes on the same loop after them is answered only once they wait.
            #expect(try proxy.ask("OPTIONS", "*").status == 204)
            first = nil
            // The reset is there before what is sent after it.
            #expect(try proxy.ask("OPTIONS", "*").status == 204)
            gate.open()
            for wire in others { #expect(wire.answer()?.text == "1") }
            #expect(origin.count == 1)
        }
    }

    @Test
    func waitingEndsWhenPatienceDoes() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            if request.number == 1 { gate.wait() }
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], "\(request.number)"))
            return true
        }
        try await withProxy(origin, configure: { $0.collapseWait = .milliseconds(50) }) { proxy async throws in
            let first = try proxy.connect()
            first.send(Self.get)
            while origin.count == 0 { await Task.yield() }
            #expect(try proxy.ask().text == "2")
            gate.open()
            #expect(first.answer()?.text == "1")
        }
    }

    // MARK: Streams

    @Test
    func interimResponsesAndTrailersGoThroughAndAreNotStored() async throws {
        let origin = try ScriptedOrigin { _, wire in
            wire.send(
                "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\nConnection: close\r\n"
                    + "Content-Length: 9\r\n\r\n")
            wire.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\nCache-Control: max-age=60\r\n\r\n")
            wire.send("5\r\nhello\r\n0\r\nX-T: yes\r\n\r\n")
            return true
        }
        try await withProxy(origin) { proxy async throws in
            let first = try proxy.ask("GET", "/a", ["TE: trailers"])
            #expect(first.interim.map(\.status) == [102, 103])
            #expect(first.interim.last?["Link"] == "</x>" && first.interim.last?["Connection"] == nil)
            #expect(first.interim.last?["Content-Length"] == nil)
            #expect(first.text == "hello" && first.trailers.first?.value == "yes")
            let second = try proxy.ask()
            #expect(second.interim.isEmpty && second.trailers.isEmpty && second["Content-Length"] == "5")
            #expect(second["Link"] == nil && origin.count == 1)
        }
    }

    @Test
    func aLargeBodyIsPassedOnBeforeItIsComplete() async throws {
        let gate = Gate()
        let half = String(repeating: "x", count: 3_000_000)
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 6000000\r\n\r\n" + half)
            gate.wait()
            wire.send(half)
            return true
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            wire.send(Self.get)
            _ = wire.take(through: "\r\n\r\n")
            #expect(wire.take(3_000_000).count == 3_000_000)
            gate.open()
            #expect(wire.take(3_000_000).count == 3_000_000)
            #expect(try proxy.ask().body.count == 6_000_000)
            #expect(origin.count == 1)
        }
    }

    @Test
    func whatIsTooLargeToStoreIsPassedOnWhole() async throws {
        let body = String(repeating: "x", count: 200_000)
        let origin = try ScriptedOrigin(
            always:
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n\(body)\r\n0\r\n\r\n"
        )
        try await withProxy(origin, configure: { $0.storedBodyBytes = 100_000 }) { proxy async throws in
            #expect(try proxy.ask().body.count == 200_000)
            #expect(try proxy.ask().body.count == 200_000)
            #expect(origin.count == 2)
        }
    }

    /// The origin's last words, and whether the client may take the response for complete.
    @Test(arguments: [
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ])
    func anOriginThatDiesInTheMiddleLeavesABrokenResponseAndNothingStored(words: String) async throws {
        let origin = try ScriptedOrigin { request, wire in
            wire.send(request.number == 1 ? words : reply("200 OK", ["Cache-Control: max-age=60"], "whole"))
            return request.number > 1
        }
        try await withProxy(origin) { proxy async throws in
            let broken = try proxy.ask()
            #expect(!broken.isComplete)
            #expect(try proxy.ask().text == "whole")
        }
    }

    // MARK: Failures

    @Test
    func anOriginThatIsAwayIsA502AndStaleIsBetter() async throws {
        let origin = try ScriptedOrigin { request, wire in
            let strict = request.target == "/strict" ? ", must-revalidate" : ""
            wire.send(reply("200 OK", ["Cache-Control: max-age=1" + strict, "Connection: close"], "hello"))
            return false
        }
        try await withProxy(origin) { proxy async throws in
            _ = try proxy.ask("GET", "/a")
            _ = try proxy.ask("GET", "/strict")
            origin.stop()
            proxy.clock.advance(seconds: 10)
            let stale = try proxy.ask("GET", "/a")
            #expect(stale.text == "hello" && stale["Age"] == "10")
            #expect(stale["Cache-Status"] == "tileproxy; fwd=stale; ttl=-9; detail=origin-unreachable")
            #expect(try proxy.ask("GET", "/strict").status == 504)
            #expect(try proxy.ask("GET", "/other").status == 502)
            #expect(try proxy.ask("POST", "/a", body: "x").status == 502)
        }
    }

    @Test
    func anOriginThatSaysNothingIsA504() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { _, _ in
            gate.wait()
            return false
        }
        try await withProxy(origin, configure: { $0.upstream.head = .milliseconds(60) }) { proxy async throws in
            #expect(try proxy.ask().status == 504)
            gate.open()
        }
    }

    @Test
    func aKeptConnectionThatDiedIsReplaced() async throws {
        let origin = try ScriptedOrigin { request, wire in
            // Says that it stays, and goes as soon as the next request comes.
            guard request.number != 2 else { return false }
            wire.send(reply("200 OK", [], "\(request.number)"))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask().text == "1")
            #expect(try proxy.ask().text == "3")
        }
    }

    // MARK: Freshness behind the scenes

    @Test
    func staleWhileRevalidateRefreshesBehindTheClient() async throws {
        let origin = try ScriptedOrigin { request, wire in
            let fields = ["Cache-Control: max-age=10, stale-while-revalidate=60", "ETag: \"\(request.number)\""]
            wire.send(reply("200 OK", fields, "\(request.number)"))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask().text == "1")
            proxy.clock.advance(seconds: 20)
            #expect(try proxy.ask().text == "1")
            var text = ""
            while text != "2" { text = try proxy.ask().text }
            #expect(origin.count == 2)
            #expect(origin.requests.last?.fields["if-none-match"] == "\"1\"")
        }
    }

    @Test
    func everyHitOfAHotThingIsTheSame() async throws {
        let origin = try ScriptedOrigin(
            always: reply("200 OK", ["Cache-Control: max-age=60", "ETag: \"x\"", "X-A: b"], "hello"))
        try await withProxy(origin) { proxy async throws in
            _ = try proxy.ask()
            let wire = try proxy.connect()
            var heads: Set<String> = []
            for _ in 0..<5 {
                wire.send(Self.get)
                let answer = try #require(wire.answer())
                #expect(answer.text == "hello")
                heads.insert(answer.fields.map { "\($0.name): \($0.value)" }.sorted().joined(separator: "|"))
            }
            #expect(heads.count == 1)
            wire.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(wire.answer(to: "HEAD")?["Content-Length"] == "5")
            proxy.clock.advance(seconds: 61)
            wire.send(Self.get)
            #expect(wire.answer()?["Cache-Status"]?.contains("fwd=stale") == true)
        }
    }

    /// Answers made ready must be the ones that the long way gives (RFC 9111 §4.1), over and over again.
    @Test
    func everyHitOfAVariantIsItsOwn() async throws {
        let changes = Locked(0)
        let origin = try ScriptedOrigin { request, wire in
            if request.method == "POST" { changes.withLock { $0 += 1 } }
            let text = (request.fields["foo"] ?? "-") + " after \(changes.withLock { $0 })"
            wire.send(reply("200 OK", ["Cache-Control: max-age=60", "Vary: Foo"], text))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            let wire = try proxy.connect()
            func ask(_ method: String, _ fields: String, _ expected: String) throws {
                wire.send("\(method) /a HTTP/1.1\r\nHost: a\r\n\(fields)\r\n")
                #expect(try #require(wire.answer()).text == expected)
            }
            for change in 0...1 {
                for _ in 0..<4 {
                    try ask("GET", "Foo: 1\r\n", "1 after \(change)")
                    try ask("GET", "fOO:  1 \r\nOther: 2\r\n", "1 after \(change)")
                    try ask("GET", "Foo: 2\r\n", "2 after \(change)")
                    try ask("GET", "", "- after \(change)")
                    try ask("GET", "Foo: 3\r\n", "3 after \(change)")
                    try ask("GET", "Foo: 1\r\nConnection: Foo\r\n", "- after \(change)")
                    try ask("GET", "Foo: 1\r\nConnection: keep-alive\r\n", "1 after \(change)")
                }
                #expect(origin.count == 5 * change + 4)
                try ask("POST", "Content-Length: 0\r\n", "- after \(change + 1)")
            }
        }
    }

    // MARK: Keys

    @Test
    func queriesAreToldApartAndNeverWritten() async throws {
        let origin = try ScriptedOrigin { request, wire in
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], request.target))
            return true
        }
        try await withProxy(origin, routes: ["/fonts=ORIGIN/base"]) { proxy async throws in
            for target in ["/fonts/a", "/fonts/a?", "/fonts/a?key=secret", "/fonts/a?key=other", "/fonts"] {
                for _ in 0..<2 {
                    #expect(try proxy.ask("GET", target).text == "/base" + target.dropFirst("/fonts".count))
                }
            }
            #expect(origin.count == 5)
            #expect(try proxy.ask("GET", "/elsewhere").status == 404)
            var keys: [String] = []
            try proxy.store.forEachEntry { keys.append($0.key.description) }
            #expect(keys.count == 5 && keys.allSatisfy { $0.hasPrefix("fonts:") && !$0.contains("secret") })
        }
    }

    @Test
    func whatCouldNeverBeOfUseIsNotWritten() async throws {
        let origin = try ScriptedOrigin(always: reply("200 OK", [], "hello"))
        try await withProxy(origin) { proxy async throws in
            for _ in 0..<2 { #expect(try proxy.ask().text == "hello") }
            #expect(try proxy.store.statistics().entries == 0)
        }
    }

    @Test
    func aPathThatNoKeyCanHaveIsPassedThrough() async throws {
        let origin = try ScriptedOrigin(always: reply("200 OK", ["Cache-Control: max-age=60"], "hello"))
        try await withProxy(origin) { proxy async throws in
            for path in ["/a\"b", "/" + String(repeating: "a", count: 2000)] {
                for _ in 0..<2 { #expect(try proxy.ask("GET", path).text == "hello") }
            }
            #expect(origin.count == 4)
        }
    }

    @Test
    func aTickOfTheClockMakesNoAnswerASecondOlder() async throws {
        let clock = Locked<ManualClock?>(nil)
        let origin = try ScriptedOrigin { request, wire in
            clock.withLock { $0?.strike() }
            wire.send(reply("200 OK", ["Cache-Control: max-age=1"], "\(request.number)"))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            clock.withLock { $0 = proxy.clock }
            #expect(try proxy.ask().text == "1")
            let second = try proxy.ask()
            #expect(second.text == "1" && second["Age"] == "0")
        }
    }

    /// What counts is the time from the request on its way to the answer (RFC 9111 §4.2.3).
    @Test
    func aWaitForAConnectionMakesNoAnswerOlder() async throws {
        let (gate, clock) = (Gate(), Locked<ManualClock?>(nil))
        let origin = try ScriptedOrigin { request, wire in
            if request.target == "/first" { gate.wait() }
            // The answer itself takes two seconds.
            if request.target == "/second" { clock.withLock { $0?.advance(seconds: 2) } }
            wire.send(reply("200 OK", ["Cache-Control: max-age=60"], "hello"))
            return true
        }
        try await withProxy(origin, configure: { $0.upstream.connections = 1 }) { proxy async throws in
            clock.withLock { $0 = proxy.clock }
            let (first, second) = (try proxy.connect(), try proxy.connect())
            first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
            while origin.count == 0 { await Task.yield() }
            second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n")
            // An exchange and a fill of each.
            while proxy.cache.underWay.withLock({ $0 }) < 4 { await Task.yield() }
            // Now it stands in line.
            try await proxy.loop.submit {}.get()
            proxy.clock.advance(seconds: 50)
            gate.open()
            #expect(first.answer()?.status == 200)
            #expect(second.answer()?.status == 200)
            let hit = try proxy.ask("GET", "/second")
            #expect(hit.text == "hello")
            #expect(hit["Age"] == "2")
            #expect(origin.count == 2)
        }
    }

    /// The stop took as long again as clients are given, for a body that nobody waited for any more.
    @Test
    func aStopDoesNotWaitForAnOriginThatHangs() async throws {
        let origin = try ScriptedOrigin { _, wire in
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5000\r\n\r\nabc")
            _ = wire.takeAll()
            return false
        }
        try await withProxy(origin, configure: { $0.unwantedBody = .hours(1) }) { proxy async throws in
            let wire = try proxy.connect()
            wire.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(wire.take(through: "\r\n\r\n") != nil)
            proxy.giveUpFills()
            try await proxy.cache.quiesce(grace: .hours(1))
            #expect(proxy.isBudgetUnused)
            #expect(try proxy.store.statistics().entries == 0)
        }
    }

    @Test
    func aLoopIsCutShort() async throws {
        try await withProxy(nil, configure: { $0.viaName = "me" }) { proxy async throws in
            #expect(try proxy.ask("GET", "/a", ["Via: 1.1 other, 1.1 me"]).status == 508)
        }
    }

    @Test
    func aStoreThatIsClosedCostsNobodyAnAnswer() async throws {
        let origin = try ScriptedOrigin(always: reply("200 OK", ["Cache-Control: max-age=60"], "hello"))
        try await withProxy(origin) { proxy async throws in
            #expect(try proxy.ask().text == "hello")
            proxy.store.simulateKill()
            #expect(try proxy.ask().text == "hello")
            #expect(origin.count == 2)
        }
    }
}
