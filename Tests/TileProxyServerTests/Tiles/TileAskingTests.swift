import CacheEngine
import ContentCoding
import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileCache
import TileCacheTesting
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// What tile routes make of answers that are large, old, or not to be kept, and of a configuration that changes meanwhile.
@Suite(.timeLimit(.minutes(60)))
struct TileAskingTests {
    private static func answer(
        _ text: String, _ cacheControl: String = "max-age=60", _ more: HTTPFields = [:], status: Int = 200
    ) -> TileLab.Answer {
        var fields = more
        fields[.cacheControl] = cacheControl
        return TileLab.Answer(status: status, fields: fields, body: status == 200 ? TileLab.png(text) : Data())
    }

    /// The mirrors of a source, and its secrets, are those that it had when its tile was asked for.
    @Test
    func aFillThatIsUnderWayAsksTheHostsOfItsOwnConfiguration() async throws {
        let gate = TileCacheTesting.Gate()
        try await TileLab.with(
            "osm=https://a.example/{z}/{x}/{y}.png",
            {
                $0.mirrors = ["https://b.example"]
                ($0.attempts, $0.headers[.authorization]) = (1, "secret")
            },
            origin: { request in
                if request.authority == "a.example" {
                    await gate.wait()
                    return TileLab.Answer(status: 503)
                }
                return Self.answer("sea")
            }
        ) { lab async throws in
            async let answer = lab.get("/tiles/osm/3/4/2.png")
            while lab.origin.count < 1 { await Task.yield() }
            var other = try SourceConfiguration(argument: "osm=https://c.example/{z}/{x}/{y}.png")
            other.mirrors = ["https://d.example"]
            try await lab.adopt([other])
            gate.open()
            #expect(try await answer.status == 200)
            #expect(lab.origin.hosts == ["https://a.example", "https://b.example"])
            #expect(try await lab.get("/tiles/osm/3/4/3.png").status == 200)
            #expect(lab.origin.hosts.last == "https://c.example")
            #expect(lab.origin.asked.withLock { $0.last?.headerFields[.authorization] } == nil)
        }
    }

    /// Else a server that was configured wrongly answers those who ask after it was put right.
    @Test
    func whoAsksAfterAReloadDoesNotWaitForTheServerBeforeIt() async throws {
        let gate = TileCacheTesting.Gate()
        try await TileLab.with(
            "osm=https://a.example/{z}/{x}/{y}.png",
            origin: { request in
                if request.authority == "a.example" { await gate.wait() }
                return Self.answer(request.authority ?? "")
            }
        ) { lab async throws in
            async let first = lab.get("/tiles/osm/3/4/2.png")
            while lab.origin.count < 1 { await Task.yield() }
            // One that has not changed is asked once by all.
            try await lab.adopt([try SourceConfiguration(argument: "osm=https://a.example/{z}/{x}/{y}.png")])
            async let second = lab.get("/tiles/osm/3/4/2.png")
            let key = try TileKey("osm/3/4/2")
            while lab.service.flights.followers(of: lab.flight(key)) < 2 { await Task.yield() }
            try await lab.adopt([try SourceConfiguration(argument: "osm=https://b.example/{z}/{x}/{y}.png")])
            let third = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(third.body == TileLab.png("b.example"))
            #expect(third[.cacheStatus] == "tileproxy; fwd=uri-miss; ttl=60; stored")
            #expect(lab.origin.hosts == ["https://a.example", "https://b.example"])
            gate.open()
            for answer in [try await first, try await second] {
                #expect(answer.status == 200 && answer.body == TileLab.png("a.example"))
                #expect(answer[.cacheStatus]?.contains("stored") == false && answer[.cacheControl] == "no-store")
            }
            // Nor does the late answer take the place of the new one.
            #expect(try lab.store.read(key)?.data == TileLab.png("b.example"))
        }
    }

    /// A tile that failed under a wrong configuration is asked for at once after it was put right.
    @Test
    func whatFailedBeforeAReloadIsNotLeftAloneAfterIt() async throws {
        try await TileLab.with(
            "osm=https://a.example/{z}/{x}/{y}.png", { $0.attempts = 1 },
            origin: { request in
                request.authority == "a.example" ? TileLab.Answer(status: 403) : Self.answer("sea")
            }
        ) { lab async throws in
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 502)
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 504)
            try await lab.adopt([try SourceConfiguration(argument: "osm=https://b.example/{z}/{x}/{y}.png")])
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 200)
        }
    }

    /// Without its end and checksum it is no tile, and no client could read all of it.
    @Test
    func aVectorTileWhoseGzipIsCutIsNotStored() async throws {
        let whole = try Gzip.encode(Data((0..<5000).map { UInt8(truncatingIfNeeded: $0 &* $0) & 0x1F }))
        var wrong = whole
        wrong[wrong.count - 5] ^= 1
        for body in [whole.prefix(whole.count / 2), whole.dropLast(4), wrong, whole + Data([1])] {
            let body = Data(body)
            try await TileLab.with(
                "v=https://tiles.example/{z}/{x}/{y}.pbf", { $0.attempts = 1 },
                origin: { _ in
                    TileLab.Answer(fields: [.cacheControl: "max-age=60", .contentEncoding: "gzip"], body: body)
                }
            ) { lab async throws in
                #expect(try await lab.get("/tiles/v/3/4/2.pbf", [.acceptEncoding: "gzip"]).status == 502)
                #expect(try lab.store.entry(for: TileKey("v/3/4/2")) == nil)
                lab.clock.advance(seconds: 600)
                lab.origin.become { _ in
                    TileLab.Answer(fields: [.cacheControl: "max-age=60", .contentEncoding: "gzip"], body: whole)
                }
                #expect(try await lab.get("/tiles/v/3/4/2.pbf", [.acceptEncoding: "gzip"]).body == whole)
                #expect(try lab.store.read(TileKey("v/3/4/2"))?.data == whole)
            }
        }
    }

    /// Where another source has taken a source's place, its requests are still its own.
    @Test
    func aRequestIsCountedForItsSourceAlsoAfterAReload() async throws {
        let gate = TileCacheTesting.Gate()
        try await TileLab.with(
            "b=https://b.example/{z}/{x}/{y}.png",
            origin: { _ in
                await gate.wait()
                return Self.answer("sea")
            }
        ) { lab async throws in
            async let answer = lab.get("/tiles/b/3/4/2.png")
            while lab.origin.count < 1 { await Task.yield() }
            try await lab.adopt([
                try SourceConfiguration(argument: "a=https://a.example/{z}/{x}/{y}.png"),
                try SourceConfiguration(argument: "b=https://b.example/{z}/{x}/{y}.png"),
            ])
            gate.open()
            #expect(try await answer.status == 200)
            let counts = lab.statistics.snapshot.sources
            #expect(counts.first { $0.name.description == "b" }?.requests.misses == 1)
            #expect(counts.first { $0.name.description == "a" }?.requests.misses ?? 0 == 0)
        }
    }

    /// A server whose clock is behind sends what does not replace the stored tile.
    @Test
    func whatIsOlderThanTheStoredTileIsNotSaidToBeStored() async throws {
        try await TileLab.with { lab async throws in
            let date = { (seconds: Int) in HTTPDate(seconds: lab.clock.now.seconds).adding(seconds: seconds).description
            }
            let first = date(0)
            lab.origin.become { _ in Self.answer("sea", "max-age=60", [.date: first]) }
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            lab.clock.advance(seconds: 100)
            let older = date(-160)
            lab.origin.become { _ in Self.answer("land", "max-age=7200", [.date: older]) }
            let answer = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(answer.body == TileLab.png("land"))
            #expect(answer[.cacheStatus]?.contains("stored") == false, "\(answer[.cacheStatus] ?? "")")
            #expect(answer[.cacheControl] == "no-store")
            #expect(try lab.store.read(TileKey("osm/3/4/2"))?.data == TileLab.png("sea"))
        }
    }

    @Test(arguments: [(200, "no-store"), (200, "private"), (410, "no-store")])
    func whatWasAnsweredBySomethingNotToBeKeptDoesNotComeBack(status: Int, cacheControl: String) async throws {
        try await TileLab.with { lab async throws in
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            lab.clock.advance(seconds: 100)
            lab.origin.become { _ in Self.answer("land", cacheControl, status: status) }
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == status)
            lab.origin.become { _ in throw TransportError(.connection, "away") }
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 502)
            #expect(try lab.store.entry(for: TileKey("osm/3/4/2")) == nil)
        }
    }

    /// Some servers name a coding that they have not applied: with it no client could read the tile.
    @Test
    func whatIsNoGzipIsNotSaidToBeGzip() async throws {
        try await TileLab.with(origin: { _ in
            TileLab.Answer(
                fields: [.cacheControl: "max-age=60", .contentEncoding: "gzip", .contentType: "image/png"],
                body: TileLab.png("sea"))
        }) { lab async throws in
            for _ in 0..<2 {
                let answer = try await lab.get("/tiles/osm/3/4/2.png", [.acceptEncoding: "gzip"])
                #expect(answer.status == 200 && answer[.contentEncoding] == nil)
                #expect(answer.body == TileLab.png("sea"))
            }
            #expect(try lab.store.entry(for: TileKey("osm/3/4/2"))?.metadata.response.contentEncoding == nil)
        }
    }

    /// Else the event loop hashes a large tile once for each of those who waited for it.
    @Test(arguments: ["max-age=60", "no-store"])
    func theNameOfATileWithoutATagIsKnownToAllWhoWait(cacheControl: String) async throws {
        let body = TileLab.png(String(repeating: "x", count: 200 << 10))
        try await TileLab.with(origin: { _ in
            TileLab.Answer(fields: [.cacheControl: cacheControl], body: body)
        }) { lab async throws in
            let gate = TileCacheTesting.Gate()
            lab.origin.become { _ in
                await gate.wait()
                return TileLab.Answer(fields: [.cacheControl: cacheControl], body: body)
            }
            async let answer = lab.get("/tiles/osm/3/4/2.png")
            while lab.origin.count < 1 { await Task.yield() }
            let news = Locked<FillEnd?>(nil)
            let key = try TileKey("osm/3/4/2")
            let place = lab.service.flights.follow(lab.flight(key), .visible, nil) { told in news.withLock { $0 = told }
            }
            #expect(place?.leads == nil)
            gate.open()
            #expect(try await answer.body == body)
            // Those who wait are told one after another: the first may have read its answer before the next is told.
            while news.withLock({ $0 == nil }) { await Task.yield() }
            guard case .some(.tile(let tile)) = news.withLock({ $0 }) else {
                Issue.record("no tile")
                return
            }
            #expect(tile.candidate.entry.blob == body.withUnsafeBytes { BlobDigest(hashing: $0) })
            let isFile = if case .file = tile.candidate.body { true } else { false }
            #expect(isFile == (cacheControl != "no-store"), "what is stored need not be in memory for slow readers")
        }
    }

    /// All of a server's requests hang: whoever stood in line waited for as long as they did, and then as long again.
    @Test
    func whoWaitsTooLongForASlotGetsWhatIsStoredOrIsToldToAskLater() async throws {
        try await TileLab.with { lab async throws in
            _ = try await lab.get("/tiles/osm/3/4/2.png")
            lab.clock.advance(seconds: 100)
            var hanging: [OriginSlots.Slot] = []
            while case .slot(let slot) = lab.service.slots.enter(
                "tiles.example", FetchTicket(.visible), granted: { _ in Issue.record("nobody left") })
            {
                hanging.append(slot)
            }
            // The lab's clock passes at once.
            let before = lab.clock.ticks
            let none = try await lab.get("/tiles/osm/3/4/3.png")
            #expect(none.status == 504 && none[.retryAfter] == "5")
            #expect(lab.clock.ticks - before == 30_000_000_000)
            let stale = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(stale.status == 200 && stale.body == TileLab.png("sea"))
            #expect(stale[.cacheStatus]?.hasSuffix("detail=origin-unreachable") == true, "\(stale[.cacheStatus] ?? "")")
            #expect(lab.origin.count == 1 && !hanging.isEmpty)
            #expect(lab.service.slots.waiting("tiles.example") == 1, "but for the test's own")
        }
    }

    /// Each redirect had the whole of it anew.
    @Test
    func aRequestAndItsRedirectsHaveOneTime() async throws {
        try await TileLab.with("osm=https://tiles.example/{z}/{x}/{y}.png", { $0.attempts = 1 }) { lab async throws in
            let clock = lab.clock
            lab.origin.become { request in
                clock.advance(seconds: 20)
                guard request.path != "/b" else { return Self.answer("sea") }
                return TileLab.Answer(status: 302, fields: [.location: request.path == "/a" ? "/b" : "/a"])
            }
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 504)
            #expect(lab.origin.timeouts.withLock { $0 } == [.seconds(30), .seconds(10)], "then nothing was left")
        }
    }

    /// On a full disk each look at a large tile was a request.
    @Test
    func aLargeTileThatCannotBeStoredIsAskedForOnce() async throws {
        let files = SimulatedFileSystem(SimulatedDisk(clock: ManualClock()))
        let body = TileLab.png(String(repeating: "x", count: 6 << 20))
        try await TileLab.with(
            files: files, origin: { _ in TileLab.Answer(fields: [.cacheControl: "max-age=60"], body: body) }
        ) { lab async throws in
            files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
            for _ in 0..<3 { #expect(try await lab.get("/tiles/osm/3/4/2.png").body == body) }
            #expect(lab.origin.count == 1)
        }
    }

    @Test
    func largeTilesThatAreNotStoredAreBoundedInMemory() async throws {
        let body = TileLab.png(String(repeating: "x", count: 200 << 10))
        try await TileLab.with(origin: { _ in
            TileLab.Answer(fields: [.cacheControl: "no-store"], body: body)
        }) { lab async throws in
            let all = 256 << 20
            #expect(lab.service.budget.take(all))
            let refused = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(refused.status == 503 && refused[.retryAfter] == "1")
            lab.service.budget.give(all)
            #expect(try await lab.get("/tiles/osm/3/4/2.png").body == body)
            while !lab.service.budget.isUnused { await Task.yield() }
        }
    }

    /// What a tile is, where its server does not say, is found out by its bytes: each client has a copy of them.
    @Test
    func storedTilesThatAreReadWholeAreBoundedInMemoryToo() async throws {
        let body = TileLab.png(String(repeating: "x", count: 200 << 10))
        try await TileLab.with(origin: { _ in
            TileLab.Answer(fields: [.cacheControl: "max-age=60"], body: body)
        }) { lab async throws in
            let all = 256 << 20
            let first = try await lab.get("/tiles/osm/3/4/2.png")
            #expect(first.body == body && first[.contentType] == "image/png")
            while !lab.service.budget.isUnused { await Task.yield() }
            #expect(lab.service.budget.take(all))
            #expect(try await lab.get("/tiles/osm/3/4/2.png").status == 503)
            lab.service.budget.give(all)
            #expect(try await lab.get("/tiles/osm/3/4/2.png").body == body)
        }
    }
}
