import CacheEngine
import Foundation
import HTTPCaching
import HTTPTypes
import NIOCore
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
                while lab.service.flights.followers(of: lab.flight(key)) < 12 { await Task.yield() }
                gate.open()
                var said: [String] = []
                for try await status in group { said.append(status ?? "no failure") }
                #expect(said.sorted().first == "tileproxy; fwd=uri-miss")
                #expect(said.sorted().dropFirst().allSatisfy { $0 == "tileproxy; fwd=uri-miss; collapsed" })
            }
            #expect(lab.origin.count == 1 && lab.service.flights.count == 0)
        }
    }

    /// Asks for a tile and goes away once its server has been asked.
    ///
    /// - Parameter meanwhile: What happens before it leaves.
    private func askAndLeave(_ lab: TileLab, _ tile: String, _ meanwhile: () -> Void = {}) async throws {
        let asked = lab.origin.count
        let wire = try Wire(port: lab.server.port)
        wire.resetsAtItsEnd()
        wire.send("GET /tiles/osm/\(tile).png HTTP/1.1\r\nHost: a\r\n\r\n")
        while lab.origin.count == asked { await Task.yield() }
        meanwhile()
    }

    private func flight(_ lab: TileLab, _ tile: String) throws -> TileFlight { lab.flight(try TileKey("osm/\(tile)")) }

    /// What its server has been asked for is stored: whoever comes next does not pay for it again.
    @Test
    func whoLeavesBlamesNoHostAndTheTileIsStored() async throws {
        let gate = TileCacheTesting.Gate()
        try await with { _ in
            await gate.wait()
            return Self.tile
        } _: { lab async throws in
            try await askAndLeave(lab, "3/4/2")
            while lab.service.loneFills.count == 0 { await Task.yield() }
            lab.clock.advance(seconds: 5)
            gate.open()
            while lab.service.flights.count > 0 { await Task.yield() }
            let answer = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(answer.status == 200 && answer[.cacheStatus]?.hasPrefix("tileproxy; hit") == true)
            #expect(lab.origin.hosts == ["https://a.example"] && lab.service.loneFills.count == 0)
            let counts = counts(lab)
            #expect(counts.failures == 0 && counts.failovers == 0 && counts.requests == 1)
        }
    }

    @Test
    func whoComesWhileATileIsFetchedForNobodyWaitsForIt() async throws {
        let gate = TileCacheTesting.Gate()
        try await with { request in
            await gate.wait()
            return request.authority == "a.example" ? TileLab.Answer(status: 503) : Self.tile
        } _: { lab async throws in
            try await askAndLeave(lab, "3/4/2")
            while lab.service.loneFills.count == 0 { await Task.yield() }
            async let answer = lab.get("/tiles/osm/3/4/2.png")
            while try lab.service.flights.followers(of: flight(lab, "3/4/2")) == 0 { await Task.yield() }
            gate.open()
            // Somebody waits again, so the next host is asked.
            #expect(try await answer.status == 200)
            #expect(lab.origin.hosts == ["https://a.example", "http://b.example"])
            #expect(lab.service.loneFills.count == 0 && lab.service.flights.count == 0)
        }
    }

    /// Five clients that left within seconds closed a host to everybody, which had only taken its time.
    @Test
    func aHostIsNotLeftAloneBecauseClientsLeave() async throws {
        let gate = TileCacheTesting.Gate()
        try await with { request in
            if request.authority == "a.example" { await gate.wait() }
            return Self.tile
        } _: { lab async throws in
            // A quarter of the requests that a host is sent at once goes on.
            for column in 0..<4 {
                try await askAndLeave(lab, "3/\(column)/2")
                while lab.service.loneFills.count <= column { await Task.yield() }
            }
            // The others are given up.
            for column in 4..<8 {
                try await askAndLeave(lab, "3/\(column)/2") { lab.clock.advance(seconds: 2) }
                while try lab.service.flights.followers(of: flight(lab, "3/\(column)/2")) > 0 { await Task.yield() }
                while lab.service.flights.count > 4 { await Task.yield() }
            }
            let hosts = lab.service.health.order(
                of: ["https://a.example", "http://b.example"].compactMap { OriginHost($0) })
            #expect(hosts.hosts.first?.name == "a.example" && lab.service.loneFills.count == 4)
            gate.open()
            while lab.service.flights.count > 0 { await Task.yield() }
            for column in 0..<4 { #expect(try lab.store.entry(for: TileKey("osm/3/\(column)/2")) != nil) }
            #expect(lab.service.loneFills.count == 0)
        }
    }

    @Test(arguments: [false, true])
    func whatIsFetchedForNobodyHasAnEnd(isAnswering: Bool) async throws {
        var configuration = try SourceConfiguration(argument: "osm=https://a.example/{z}/{x}/{y}.png")
        configuration.mirrors = ["http://b.example"]
        let gate = TileCacheTesting.Gate()
        let lab = try await TileLab([configuration], lonePatience: .milliseconds(20)) { request in
            if request.authority == "a.example" { await gate.wait() }
            return Self.tile
        }
        lab.origin.isAnswering.withLock { $0 = isAnswering }
        do {
            try await askAndLeave(lab, "3/4/2")
            while lab.service.flights.count > 0 { await Task.yield() }
            #expect(lab.service.loneFills.count == 0)
            let hosts = lab.service.health.order(
                of: ["https://a.example", "http://b.example"].compactMap { OriginHost($0) })
            #expect((hosts.hosts.first?.name == "b.example") == !isAnswering, "one that answers slowly is not silent")
            gate.open()
        } catch {
            gate.open()
            try await lab.end()
            throw error
        }
        try await lab.end()
    }

    /// A place for each, however many leave.
    @Test
    func whatIsFetchedForNobodyEndsWhenTheProxyStops() async throws {
        let gate = TileCacheTesting.Gate()
        let lab = try await TileLab([try SourceConfiguration(argument: "osm=https://a.example/{z}/{x}/{y}.png")]) { _ in
            await gate.wait()
            return Self.tile
        }
        try await askAndLeave(lab, "3/4/2")
        while lab.service.loneFills.count == 0 { await Task.yield() }
        try await lab.end()
        gate.open()
        while lab.service.loneFills.count > 0 { await Task.yield() }
    }
}
