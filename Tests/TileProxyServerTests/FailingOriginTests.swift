import HTTPCaching
import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import CacheEngine
@testable import TileProxyServer

/// Origins that fail are left alone for a while, longer each time, by whom that costs nothing but freshness.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct FailingOriginTests {
    private static let second: UInt64 = 1_000_000_000

    /// An origin that answers once per connection, until it shall not.
    private static func origin(
        _ fails: Locked<Bool>, _ control: String = "max-age=1", _ others: [String] = []
    ) throws -> ScriptedOrigin {
        try ScriptedOrigin { request, wire in
            guard !fails.withLock({ $0 }) else { return false }
            let fields = ["Cache-Control: \(control)", "Connection: close"] + others
            wire.send(reply("200 OK", fields, "v\(request.number)"))
            return false
        }
    }

    @Test
    func whatIsStoredIsServedAtOnceWhileTheOriginIsLeftAlone() async throws {
        let fails = Locked(false)
        let origin = try Self.origin(fails)
        try await withProxy(origin) { proxy async throws in
            _ = try (proxy.ask("GET", "/a"), proxy.ask("GET", "/b"), proxy.ask("GET", "/c"))
            fails.withLock { $0 = true }
            proxy.clock.advance(seconds: 10)
            func expect(_ target: String, _ status: String, asked count: Int, _ text: String) throws {
                let answer = try proxy.ask("GET", target)
                #expect(answer["Cache-Status"] == "tileproxy; " + status)
                #expect(answer.text == text && origin.count == count)
            }
            let (asked, served) = (
                "fwd=stale; ttl=-9; detail=origin-unreachable", "hit; ttl=-9; detail=origin-unreachable"
            )
            try expect("/a", asked, asked: 4, "v1")
            // One question that it drops is left alone by itself.
            try expect("/a", served, asked: 4, "v1")
            try expect("/b", asked, asked: 5, "v2")
            #expect(try proxy.ask("GET", "/new").status == 502)
            // After three of them all of the origin is left alone.
            try expect("/c", served, asked: 6, "v3")
            try expect("/b", served, asked: 6, "v2")
            // But by those who could not be served.
            #expect(try proxy.ask("GET", "/new").status == 502)
            #expect(origin.count == 7)
            // Half a second later one asks, and then it is a whole one.
            proxy.clock.advance(nanoseconds: Self.second / 2)
            try expect("/b", asked, asked: 8, "v2")
            proxy.clock.advance(nanoseconds: Self.second - 1)
            try expect("/b", served, asked: 8, "v2")
            // An answer to anybody ends it.
            fails.withLock { $0 = false }
            #expect(try proxy.ask("GET", "/new").text == "v9")
            try expect("/c", "fwd=stale; fwd-status=200; ttl=1; stored", asked: 10, "v10")
        }
    }

    @Test(arguments: ["must-revalidate", "no-cache"])
    func whatMustNotBeStaleIsAskedForEachTime(directive: String) async throws {
        let fails = Locked(false)
        let origin = try Self.origin(fails, "max-age=1, \(directive)", ["ETag: \"v\""])
        try await withProxy(origin) { proxy async throws in
            _ = try proxy.ask()
            fails.withLock { $0 = true }
            proxy.clock.advance(seconds: 10)
            for count in 2...4 {
                #expect(try proxy.ask().status == 504)
                #expect(origin.count == count)
            }
            fails.withLock { $0 = false }
            #expect(try proxy.ask().text == "v5")
        }
    }

    @Test
    func aGatewaysErrorLeavesItAloneWhereStaleIfErrorPermits() async throws {
        let fails = Locked(false)
        let origin = try ScriptedOrigin { request, wire in
            let permits = request.target == "/a" ? ", stale-if-error=60" : ""
            let status = fails.withLock { $0 } ? "503 Service Unavailable" : "200 OK"
            wire.send(reply(status, ["Cache-Control: max-age=1" + permits], "v\(request.number)"))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            _ = try (proxy.ask("GET", "/a"), proxy.ask("GET", "/b"))
            fails.withLock { $0 = true }
            proxy.clock.advance(seconds: 10)
            #expect(try proxy.ask("GET", "/a").text == "v1")
            #expect(origin.count == 3)
            let again = try proxy.ask("GET", "/a")
            #expect(again.text == "v1" && again["Cache-Status"] == "tileproxy; hit; ttl=-9; detail=stale-if-error")
            #expect(origin.count == 3)
            #expect(try proxy.ask("GET", "/b").status == 503)
            #expect(origin.count == 4)
        }
    }

    /// RFC 9110 §10.2.3: those who have something stale do without an origin that asked for it; the others ask.
    @Test(arguments: ["503 Service Unavailable", "429 Too Many Requests"])
    func retryAfterIsObeyedByThoseWhoHaveSomethingStale(status: String) async throws {
        let fails = Locked(false)
        let origin = try ScriptedOrigin { request, wire in
            guard fails.withLock({ $0 }) else {
                wire.send(reply("200 OK", ["Cache-Control: max-age=1, stale-if-error=600"], "v\(request.number)"))
                return true
            }
            wire.send(reply(status, ["Retry-After: 100", "Cache-Control: no-store"], "busy"))
            return true
        }
        try await withProxy(origin) { proxy async throws in
            _ = try (proxy.ask("GET", "/a"), proxy.ask("GET", "/b"))
            fails.withLock { $0 = true }
            proxy.clock.advance(seconds: 10)
            _ = try proxy.ask("GET", "/new")
            #expect(origin.count == 3)
            // It spoke of itself, not of one URL.
            for (target, text) in [("/a", "v1"), ("/b", "v2")] {
                let answer = try proxy.ask("GET", target)
                #expect(answer.text == text)
                #expect(answer["Cache-Status"] == "tileproxy; hit; ttl=-9; detail=stale-if-error")
            }
            #expect(origin.count == 3)
            #expect(try proxy.ask("GET", "/new").text == "busy")
            #expect(origin.count == 4)
            fails.withLock { $0 = false }
            proxy.clock.advance(seconds: 101)
            #expect(try proxy.ask("GET", "/a").text == "v5")
        }
    }

    @Test
    func nobodyWaitsForTheOneThatTriesAgain() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { request, wire in
            if request.number == 2 { return false }
            if request.number > 2 { gate.wait() }
            wire.send(reply("200 OK", ["Cache-Control: max-age=1", "Connection: close"], "v\(request.number)"))
            return false
        }
        try await withProxy(origin) { proxy async throws in
            _ = try proxy.ask()
            proxy.clock.advance(seconds: 10)
            #expect(try proxy.ask().text == "v1")
            proxy.clock.advance(nanoseconds: 2 * Self.second)
            let first = try proxy.connect()
            first.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            while origin.count < 3 { await Task.yield() }
            for _ in 0..<3 { #expect(try proxy.ask().text == "v1") }
            #expect(origin.count == 3)
            gate.open()
            #expect(first.answer()?.text == "v3")
            // The one that was let through may have its answer a moment before the cache has it.
            let next = try proxy.ask().text
            #expect(next == "v3" || next == "v4")
        }
    }

    @Test
    func whoWaitsForAConnectionDoesNotWaitForAllBefore() async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin { _, _ in
            gate.wait()
            return false
        }
        try await withProxy(
            origin,
            configure: {
                $0.upstream.connections = 1
                $0.upstream.head = .milliseconds(100)
            }
        ) { proxy async throws in
            let wires = try (0..<5).map { _ in try proxy.connect() }
            for (i, wire) in wires.enumerated() { wire.send("GET /\(i) HTTP/1.1\r\nHost: a\r\n\r\n") }
            for wire in wires { #expect(wire.answer()?.status == 504) }
            #expect(origin.count < 5, "the others never got a connection")
            gate.open()
        }
    }
}
