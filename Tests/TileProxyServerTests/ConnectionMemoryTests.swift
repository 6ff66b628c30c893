import HTTPListener
import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// What is buffered for a client and for its origin, where the one who should read does not: at most 256 KiB for each.
@Suite(.timeLimit(.minutes(60)), .serialized, .ownThreads)
struct ConnectionMemoryTests {
    private static let bound = 256 << 10
    private static let clients = 4
    /// On a busy machine it takes a while until all of them wait.
    private static let patient = {
        var limits = ServerLimits()
        (limits.writeStall, limits.bodyStall, limits.head, limits.idle) = (.hours(1), .hours(1), .hours(1), .hours(1))
        return limits
    }()

    /// Waits until every client is sent no more before it reads, then looks at what is buffered.
    private func check(_ proxy: ProxyUnderTest) async throws {
        while true {
            let all = try await proxy.server.buffered()
            if all.count == Self.clients, all.allSatisfy(\.isStalled) { break }
            await Task.yield()
        }
        // What is already on its way from the origin comes, too.
        for _ in 0..<50 {
            for one in try await proxy.server.buffered() { #expect(one.total <= Self.bound) }
            for bytes in try await proxy.bufferedForOrigins() { #expect(bytes <= Self.bound) }
        }
    }

    private func ask(_ proxy: ProxyUnderTest, _ text: String = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n") throws -> [Wire] {
        try (0..<Self.clients).map { _ in
            let wire = try Wire.unconnected()
            wire.holdAtMost(1 << 16)
            try wire.connect(to: proxy.server.port)
            wire.sendInBackground(text)
            return wire
        }
    }

    /// Waits until an answer is stored, and until the client that it went to is gone.
    private func store(_ proxy: ProxyUnderTest) async throws {
        repeat { await Task.yield() } while try proxy.ask()["Age"] == nil
        while try await proxy.server.connectionCount() > 0 { await Task.yield() }
    }

    @Test
    func aLargeStoredBodyThatNobodyReads() async throws {
        let body = String(repeating: "x", count: 24 << 20)
        let origin = try ScriptedOrigin(always: reply("200 OK", ["Cache-Control: max-age=60"], body))
        try await withProxy(origin, limits: Self.patient) { proxy async throws in
            try await store(proxy)
            let wires = try ask(proxy)
            try await check(proxy)
            #expect(wires.count == Self.clients && origin.count == 1)
        }
    }

    /// Of sizes that are written whole where there is room.
    @Test(arguments: [100 << 10, 200 << 10, ReadyAnswers.largestBody])
    func storedBodiesThatNobodyReadsThoughManyAreAskedFor(size: Int) async throws {
        let body = String(repeating: "x", count: size)
        let origin = try ScriptedOrigin(always: reply("200 OK", ["Cache-Control: max-age=60"], body))
        try await withProxy(origin, limits: Self.patient) { proxy async throws in
            try await store(proxy)
            let request = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
            let wires = try ask(proxy, String(repeating: request, count: (24 << 20) / size))
            try await check(proxy)
            #expect(wires.count == Self.clients && origin.count == 1)
        }
    }

    @Test(arguments: [
        "Content-Length: \(24 << 20)\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n\(String(24 << 20, radix: 16))\r\n",
    ])
    func aLargeBodyThatIsPassedOnAndNobodyReads(framing: String) async throws {
        let body = String(repeating: "x", count: 24 << 20)
        let origin = try ScriptedOrigin(always: "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n\(framing)\(body)")
        try await withProxy(origin, limits: Self.patient) { proxy async throws in
            let wires = try ask(proxy)
            try await check(proxy)
            #expect(wires.count == Self.clients)
        }
    }

    @Test(arguments: [
        "Content-Length: \(24 << 20)\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n\(String(24 << 20, radix: 16))\r\n",
    ])
    func anUploadThatTheOriginDoesNotRead(framing: String) async throws {
        let gate = Gate()
        let origin = try ScriptedOrigin(readsBodies: false) { _, _ in
            for _ in 0..<20 { gate.wait() }
            return false
        }
        try await withProxy(origin, limits: Self.patient) { proxy async throws in
            let body = String(repeating: "x", count: 24 << 20)
            let wires = try ask(proxy, "POST /a HTTP/1.1\r\nHost: a\r\n\(framing)\(body)")
            // Until each origin's connection has as much waiting as makes the client wait.
            while true {
                let all = try await proxy.bufferedForOrigins()
                if all.count == Self.clients, all.allSatisfy({ $0 > 32 << 10 }) { break }
                await Task.yield()
            }
            for _ in 0..<50 {
                for one in try await proxy.server.buffered() { #expect(one.total <= Self.bound) }
                for bytes in try await proxy.bufferedForOrigins() { #expect(bytes <= Self.bound) }
            }
            #expect(wires.count == Self.clients)
            gate.open()
        }
    }
}
