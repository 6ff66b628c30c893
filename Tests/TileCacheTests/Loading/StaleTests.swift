import CacheEngine
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct StaleTests {
    /// RFC 5861 §3.
    @Test func withinTheWindowAStaleTileIsServedAtOnceAndRefreshedOnce() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60, stale-while-revalidate=30", .eTag: "\"a\""])
        lab.clock.advance(seconds: 70)
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60", .eTag: "\"b\""], body: Picture.png(2))
        }
        for _ in 0..<20 {
            let tile = try #require(try await lab.load())
            #expect(tile.origin == .stale(.whileRevalidating) && tile.data == Picture.png(1))
        }
        await until { door.waiting == 1 }
        #expect(lab.transport.count == 2)
        #expect(lab.transport.requests[1].head.headerFields[.ifNoneMatch] == "\"a\"")
        door.open()
        await until { lab.cache.flights.count == 0 }
        let tile = try #require(try await lab.load())
        #expect(tile.origin.isCached && tile.data == Picture.png(2))
        #expect(lab.transport.count == 2)
    }

    @Test func pastTheWindowTheServerIsAsked() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60, stale-while-revalidate=30", .eTag: "\"a\""])
        lab.clock.advance(seconds: 90)
        lab.transport.answer(.answer(304))
        #expect(try await lab.load()?.origin == .revalidated)
    }

    @Test func aRefreshThatFailsIsReportedOnceAndNotRepeatedWithEveryUse() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60, stale-while-revalidate=300"])
        lab.clock.advance(seconds: 70)
        lab.transport.goOffline()
        for _ in 0..<50 {
            #expect(try await lab.load()?.origin == .stale(.whileRevalidating))
            await until { lab.cache.flights.count == 0 }
        }
        #expect(lab.transport.count == 2 && lab.events.count == 1)
        guard case .refreshFailed(let key, let error)? = lab.events.first else {
            Issue.record("no event")
            return
        }
        #expect(try key == lab.key() && (error as? TileCacheError)?.code == .noAnswer)
        lab.clock.advance(seconds: 10)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
        #expect(try await lab.load()?.origin == .stale(.whileRevalidating))
        await until { lab.cache.flights.count == 0 }
        #expect(try await lab.load()?.origin.isCached == true)
    }

    /// RFC 5861 §4: what the server itself has said about errors counts for answers that are errors.
    @Test(arguments: [500, 502, 503, 504, 401, 403, 429])
    func onAnErrorAStaleTileIsServedWithinStaleIfError(status: Int) async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60, stale-if-error=100"])
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(status))
        #expect(try await lab.load()?.origin == .stale(.error))
        lab.clock.advance(seconds: 100)
        let failure = await lab.failure()
        #expect(failure?.code == .badStatus && failure?.status == status)
    }

    @Test func withoutAnAnswerAnyAgeWillDo() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60, stale-if-error=100"])
        lab.clock.advance(seconds: 100_000_000)
        lab.transport.goOffline()
        #expect(try await lab.load()?.origin == .stale(.error))
    }

    /// RFC 9111 §4.2.4, §5.2.2.2, §5.2.2.4.
    @Test(arguments: ["max-age=60, must-revalidate, stale-if-error=1000, stale-while-revalidate=1000", "no-cache"])
    func mustRevalidateAndNoCacheForbidStaleTiles(control: String) async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: control])
        lab.clock.advance(seconds: 70)
        lab.transport.goOffline()
        #expect(await lab.failure()?.code == .noAnswer)
        // While it is left alone too.
        #expect(await lab.failure()?.code == .waiting)
        lab.clock.advance(seconds: 10)
        lab.transport.answer(.answer(503))
        #expect(await lab.failure()?.code == .badStatus)
        #expect(try await lab.load(1, .cacheOnly)?.origin == .stale(.offline))
        let source = try lab.source { $0.offlineUse = .always }
        #expect(try await lab.load(1, from: source)?.origin == .stale(.offline))
    }

    @Test func offlineThenBackRevalidationResumesByItself() async throws {
        let lab = try CacheLab()
        for x in 1...20 { try await lab.prime(x) }
        lab.clock.advance(seconds: 70)
        lab.transport.goOffline()
        for x in 1...20 { #expect(try await lab.load(x)?.origin == .stale(.error)) }
        // After five failures the host is left alone, and stale tiles come at once.
        #expect(lab.transport.count == 20 + 5)
        lab.transport.answer(.answer(304, [.cacheControl: "max-age=60"]))
        lab.clock.advance(seconds: 400)
        for x in 1...20 { #expect(try await lab.load(x)?.origin == .revalidated, "\(x)") }
        for x in 1...20 { #expect(try await lab.load(x)?.origin.isCached == true, "\(x)") }
        #expect(lab.transport.count == 45)
    }

    /// A host that is left alone because it answered with errors has not been out of reach.
    @Test func aHostThatAnsweredWithErrorsDoesNotCountAsUnreachable() async throws {
        let lab = try CacheLab()
        for x in 1...40 { try await lab.prime(x, [.cacheControl: "max-age=60, stale-if-error=10"]) }
        lab.clock.advance(seconds: 1000)
        lab.transport.answer(.answer(500))
        for x in 1...32 { #expect(await lab.failure(x)?.code == .badStatus) }
        for x in 33...40 { #expect(await lab.failure(x)?.code == .waiting) }
        #expect(lab.transport.count == 40 + 32)
    }

    @Test func aClockThatGoesBackMakesTilesStaleAndNothingWorse() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: -86_400)
        lab.transport.answer(.answer(304, [.eTag: "\"a\""]))
        let tile = try #require(try await lab.load())
        #expect(tile.origin == .revalidated && tile.freshUntil == lab.clock.now.adding(seconds: 60))
        #expect(try await lab.load()?.origin.isCached == true)
        // Back while a request is under way: no negative age.
        lab.clock.advance(seconds: 61)
        lab.transport.script { _ in
            lab.clock.advance(seconds: -7200)
            return .answer(304, [.eTag: "\"a\""])
        }
        #expect(try await lab.load()?.freshUntil == lab.clock.now.adding(seconds: 60))
    }
}
