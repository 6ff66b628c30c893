import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

/// What a cache tells of: all that it does, in order, and no secrets.
@Suite(.timeLimit(.minutes(60)))
struct EventTests {
    /// The log as lines, without the numbers and times that differ from run to run.
    private func lines(_ lab: CacheLab) -> [String] {
        lab.log.map { event in
            switch event {
            case .requestBegan(let request): "began \(request.host) \(request.key.map { "\($0)" } ?? "-")"
            case .requestEnded(_, let outcome, _): "ended \(outcome)"
            default: "\(event)"
            }
        }
    }

    @Test func aMissARequestAHitAndARevalidationAreTold() async throws {
        let lab = try CacheLab()
        let (key, other) = (try lab.key(), try lab.key(2))
        try await lab.prime()
        try await lab.load()
        #expect(
            lines(lab) == [
                "miss: \(key)", "began tiles.example \(key)", "ended 200, 64 B", "hit: \(key)",
            ])
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(304))
        try await lab.load()
        #expect(lines(lab).dropFirst(4) == ["miss: \(key)", "began tiles.example \(key)", "ended 304, 0 B"])
        try await lab.load(1, .cacheOnly)
        try await lab.load(2, .cacheOnly)
        #expect(lines(lab).dropFirst(7) == ["hit: \(key)", "miss: \(other)"])
        #expect(lab.log.allSatisfy { !$0.isTrouble })
    }

    @Test func aStaleTileThatIsServedWhileItIsRefreshedIsAStaleHit() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=1, stale-while-revalidate=1000"])
        lab.clock.advance(seconds: 100)
        lab.transport.goOffline()
        try await lab.load(from: lab.source { $0.attempts = 1 })
        await until { lab.events.count == 1 }
        let key = try lab.key()
        #expect(lines(lab).contains("stale hit: \(key)"))
        #expect(lines(lab).contains("ended no answer (connection)"))
        #expect(lab.events[0].description.hasPrefix("refresh failed: \(key)"))
    }

    @Test func aRequestHasANumberOfItsOwnAndItsTime() async throws {
        let lab = try CacheLab()
        let clock = lab.clock
        lab.transport.script { _ in
            clock.advance(seconds: 3)
            return .answer(200)
        }
        try await lab.load(1)
        try await lab.load(2)
        var began: [UInt64] = []
        var ended: [UInt64] = []
        for event in lab.log {
            switch event {
            case .requestBegan(let request): began.append(request.number)
            case .requestEnded(let request, let outcome, let time):
                ended.append(request.number)
                #expect(time == .seconds(3) && outcome == .answered(status: 200, bytes: 64))
            default: break
            }
        }
        #expect(began == ended && Set(began).count == 2 && !began.contains(0))
    }

    @Test func whatHadToGoIsTold() async throws {
        let lab = try CacheLab { $0.store.entryLimit = 3 }
        lab.transport.script { request in
            .answer(
                200, [.cacheControl: "max-age=60"], body: Picture.png((request.head.path ?? "").hashValue & 0xFFFF_FFFF)
            )
        }
        for x in 0..<10 { try await lab.load(x) }
        var gone = RemovalReport()
        for case .evicted(let report) in lab.log { gone += report }
        #expect(gone.removedBlobs >= 7 && gone == lab.store.evictedHere)
    }

    @Test func downloadsAreTold() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
        let source = try lab.source()
        let world = try source.coverage(
            .box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...1)
        _ = try await lab.cache.download(source, world, named: "world").report()
        await until { lab.log.contains { if case .downloadEnded = $0 { true } else { false } } }
        var began: DownloadEvent?
        for event in lab.log {
            switch event {
            case .downloadBegan(let download): began = download
            case .downloadEnded(let download, let report):
                #expect(download == began && report.progress.fetched == 5)
            default: break
            }
        }
        #expect(began?.region == "world" && began?.tiles == 5 && began?.source == source.name)
    }

    @Test func resourcesAreToldToo() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: Data("{}".utf8)))
        let request = HTTPRequest(
            method: .get, scheme: "https", authority: "tiles.example", path: "/style.json?token=s3cr3t")
        for _ in 0..<2 { _ = try await lab.cache.response(for: request) }
        let lines = lines(lab)
        #expect(lines.count == 4 && lines[0].hasPrefix("miss: resources") && lines[2] == "ended 200, 2 B")
        #expect(lines[1].hasPrefix("began tiles.example resources") && lines[3].hasPrefix("hit: resources"))
        for line in lines { #expect(!line.contains("s3cr3t")) }
    }

    /// In queries, fields, a user's name before the host, redirections, and errors of every kind.
    @Test func nothingThatIsToldHoldsASecret() async throws {
        let lab = try CacheLab { $0.store.capacity = 1 << 20 }
        let secret = "s3cr3t-t0ken"
        let source = try TileSource(
            "lab", template: "https://tiles.example/{z}/{x}/{y}.png?key={key}", values: ["key": secret])
        var hooked = source
        hooked.attempts = 1
        hooked.headers[.authorization] = "Bearer \(secret)"
        hooked.prepare = { request, _ in request.authority = "user:\(secret)@eu.tiles.example" }
        let answers: [TransportResponse] = [
            .answer(200, [.cacheControl: "max-age=1, stale-while-revalidate=1000"]), .answer(500), .answer(403),
            .answer(200, [:], body: Data("<html>\(secret)".utf8)),
            .answer(302, [.location: "https://other.example/x?key=\(secret)"]),
        ]
        for (x, answer) in answers.enumerated() {
            lab.transport.answer(answer)
            lab.cache.forgetFailures()
            _ = await lab.failure(x, from: hooked)
        }
        lab.transport.script { _ in
            throw TransportError(.connection, "eu.tiles.example: the connection failed", cause: BoomError())
        }
        lab.clock.advance(seconds: 10)
        lab.cache.forgetFailures()
        try await lab.load(0, from: hooked)
        await until { !lab.events.isEmpty }
        var options = DownloadOptions()
        options.attempts = 1
        options.patience = .zero
        let world = try hooked.coverage(
            .box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...1)
        _ = try await lab.cache.download(hooked, world, named: "world", options: options).report()
        #expect(lab.log.count > 15)
        for event in lab.log {
            let texts = ["\(event)", String(reflecting: event)]
            for text in texts {
                #expect(!text.contains(secret) && !text.contains("Bearer") && !text.contains("key="), "\(text)")
            }
        }
    }

    @Test func whoWantsOnlyTroubleIsToldWhichIsThat() throws {
        let key = try TileKey(source: "lab", z: 1, x: 0, y: 0)
        #expect(!TileCacheEvent.hit(key, isStale: true).isTrouble && !TileCacheEvent.miss(key).isTrouble)
        #expect(TileCacheEvent.notStored(key, BoomError()).isTrouble)
        #expect(TileCacheEvent.dateInFuture(key, host: "a", seconds: 90).isTrouble)
    }
}
