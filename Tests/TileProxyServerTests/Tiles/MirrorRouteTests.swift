import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// Tile routes of a source whose hosts stand for one another, and what is counted of servers.
@Suite(.timeLimit(.minutes(60)))
struct MirrorRouteTests {
    private static let tile = TileLab.Answer(
        fields: [.cacheControl: "max-age=60", .eTag: "\"v1\""], body: TileLab.png("sea"))

    private func with(
        mirrors: [String] = ["http://b.example", "https://c.example:81"],
        _ origin: @escaping @Sendable (HTTPRequest) async throws -> TileLab.Answer,
        _ body: (TileLab) async throws -> Void
    ) async throws {
        try await TileLab.with(
            "osm=https://a.example/{z}/{x}/{y}.png",
            {
                $0.mirrors = mirrors
                ($0.attempts, $0.timeout) = (1, .seconds(30))
            }, origin: origin
        ) { lab async throws in try await body(lab) }
    }

    private func counts(_ lab: TileLab) -> UpstreamCounts {
        lab.statistics.snapshot.sources.first?.upstream ?? UpstreamCounts()
    }

    @Test
    func aHostThatFailsIsFollowedByTheNextWithItsShareOfTheTime() async throws {
        try await with { request in
            if request.authority == "a.example" { throw TransportError(.connection, "refused") }
            return request.authority == "b.example" ? TileLab.Answer(status: 503) : Self.tile
        } _: { lab async throws in
            let answer = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(answer.status == 200 && answer[.cacheStatus] == "tileproxy; fwd=uri-miss; ttl=60; stored")
            #expect(lab.origin.hosts == ["https://a.example", "http://b.example", "https://c.example:81"])
            #expect(lab.origin.timeouts.withLock { $0 } == [.seconds(10), .seconds(15), .seconds(30)])
            let counts = counts(lab)
            #expect(counts.requests == 3 && counts.failures == 1 && counts.serverErrors == 1)
            #expect(counts.bodies == 1 && counts.failovers == 2 && counts.bytes == 11)
            // Those that failed rest: the others are asked first.
            #expect(try await lab.get("/tiles/osm/3/4/3.png").status == 200)
            #expect(lab.origin.hosts.last == "https://c.example:81" && lab.origin.count == 4)
        }
    }

    @Test
    func timeThatOneHostUsesUpIsNotTheOthers() async throws {
        let lab = Locked<TileLab?>(nil)
        try await with { request in
            lab.withLock { $0 }?.clock.advance(seconds: request.authority == "a.example" ? 10 : 20)
            throw TransportError(.timeout, "slow")
        } _: { running async throws in
            lab.withLock { $0 = running }
            #expect(try await running.get("/tiles/osm/3/4/2.png").status == 504)
            #expect(running.origin.timeouts.withLock { $0 } == [.seconds(10), .seconds(10)], "nothing was left")
            #expect(counts(running).failures == 2)
            lab.withLock { $0 = nil }
        }
    }

    /// A `Retry-After` of one host is not that of all: together they can be asked again when the first has rested.
    @Test
    func whereAllHostsFailTheClientIsToldWhenTheFirstHasRested() async throws {
        try await with { _ in
            TileLab.Answer(status: 503, fields: [.retryAfter: "600"])
        } _: { lab async throws in
            let answer = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(answer.status == 502 && answer[.retryAfter] == "600")
        }
        try await with { request in
            TileLab.Answer(status: 503, fields: request.authority == "b.example" ? [:] : [.retryAfter: "600"])
        } _: { lab async throws in
            let answer = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(answer.status == 502 && answer[.retryAfter] == "2" && lab.origin.count == 3)
        }
    }

    @Test
    func whatA304SavedIsCounted() async throws {
        try await with(mirrors: []) { request in
            request.headerFields[.ifNoneMatch] == nil
                ? Self.tile : TileLab.Answer(status: 304, fields: [.cacheControl: "max-age=60", .eTag: "\"v1\""])
        } _: { lab async throws in
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            lab.clock.advance(seconds: 100)
            #expect(try await lab.get("/tiles/osm/3/4/2.png").body == TileLab.png("sea"))
            #expect(counts(lab).bytesSaved == 11 && counts(lab).notModified == 1 && counts(lab).requests == 2)
        }
    }

    /// A failure is shared like a tile: those who waited for it do not ask one after the other.
    @Test
    func aFailureIsThatOfAllWhoWaitedForIt() async throws {
        let gate = TileCacheTesting.Gate()
        try await with(mirrors: []) { _ in
            await gate.wait()
            return TileLab.Answer(status: 500)
        } _: { lab async throws in
            try await withThrowingTaskGroup(of: String?.self) { group in
                for _ in 0..<12 {
                    group.addTask {
                        let answer = try await lab.get("/tiles/osm/3/4/2.png")
                        return answer.status == 502 ? answer[.cacheStatus] : nil
                    }
                }
                let key = try TileKey("osm/3/4/2")
                while lab.service.flights.followers(of: key) < 12 { await Task.yield() }
                gate.open()
                var said: [String] = []
                for try await status in group { said.append(status ?? "no failure") }
                #expect(said.sorted().first == "tileproxy; fwd=uri-miss")
                #expect(said.sorted().dropFirst().allSatisfy { $0 == "tileproxy; fwd=uri-miss; collapsed" })
            }
            #expect(lab.origin.count == 1 && lab.service.flights.count == 0)
        }
    }

    @Test
    func whoLeavesBlamesNoHost() async throws {
        let isHanging = Locked(true)
        try await with { _ in
            while isHanging.withLock({ $0 }), !Task.isCancelled { await Task.yield() }
            return Self.tile
        } _: { lab async throws in
            do {
                let wire = try Wire(port: lab.server.port)
                wire.resetsAtItsEnd()
                wire.send("GET /tiles/osm/3/4/2.png HTTP/1.1\r\nHost: a\r\n\r\n")
                while lab.origin.count < 1 { await Task.yield() }
            }
            while lab.service.flights.count > 0 { await Task.yield() }
            isHanging.withLock { $0 = false }
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 200)
            #expect(lab.origin.hosts == ["https://a.example", "https://a.example"])
            let counts = counts(lab)
            #expect(counts.failures == 0 && counts.failovers == 0 && counts.requests == 2)
        }
    }
}
