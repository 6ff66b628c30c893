import CacheEngine
import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

/// Who waits for whom at one host.
@Suite(.timeLimit(.minutes(60)))
struct SharedHostTests {
    // MARK: The circuit breaker

    @Test func whileAProbeIsOutOthersAreToldToComeBackSoon() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        lab.transport.goOffline()
        for x in 1...5 { _ = await lab.failure(x, from: source) }
        lab.clock.advance(seconds: 1)
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200)
        }
        let probe = Task { try await lab.load(40, from: source)?.origin }
        await until { door.waiting == 1 }
        let told = try #require(await lab.failure(41, from: source)?.retryAfter)
        #expect(told <= .seconds(1), "\(told)")
        door.open()
        #expect(try await probe.value == .network)
        #expect(try await lab.load(41, from: source)?.origin == .network)
    }

    /// What the servers of renderers say of tiles that they cannot draw.
    @Test(arguments: [500, 502, 503, 504])
    func sixTilesThatAServerCannotDrawHideNoneOfTheTwelveOthers(status: Int) async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        let bad = Set((1...6).map { "/12/\($0)/2.png" })
        lab.transport.script { request in
            bad.contains(request.head.path ?? "") ? .answer(status) : .answer(200, [.cacheControl: "no-cache"])
        }
        for view in 1...4 {
            for x in 1...6 { #expect(await lab.failure(x, from: source) != nil) }
            for x in 7...18 { #expect(await lab.failure(x, from: source) == nil, "tile \(x) in view \(view)") }
            lab.clock.advance(seconds: 3)
        }
    }

    @Test func tilesThatTimeOutWhileOthersAreAnsweredDoNotBlameTheHost() async throws {
        let lab = try CacheLab { $0.requestsPerHost = 24 }
        let source = try lab.source { $0.attempts = 1 }
        let door = Latch()
        let bad = Set((1...6).map { "/12/\($0)/2.png" })
        lab.transport.script { request in
            guard bad.contains(request.head.path ?? "") else { return .answer(200) }
            try await door.pass()
            throw TransportError(.timeout, "no answer from tiles.example")
        }
        let tasks = (1...6).map { x in Task { await lab.failure(x, from: source)?.code } }
        await until { door.waiting == 6 }
        lab.clock.advance(seconds: 1)
        for x in 7...18 { #expect(try await lab.load(x, from: source)?.origin == .network) }
        door.open()
        for task in tasks { #expect(await task.value == .noAnswer) }
        #expect(try await lab.load(19, from: source)?.origin == .network)
    }

    @Test func oneTileThatFailsAgainAndAgainLeavesTheHostAlone() async throws {
        let lab = try CacheLab { $0.backoff = Backoff(first: .milliseconds(900), longest: .milliseconds(900)) }
        let source = try lab.source { $0.attempts = 1 }
        lab.transport.script { request in
            guard request.head.path == "/12/1/2.png" else { return .answer(200) }
            throw TransportError(.connection, "the connection ended before an answer")
        }
        for _ in 0..<10 {
            lab.clock.advance(seconds: 1)
            #expect(await lab.failure(1, from: source)?.code == .noAnswer)
        }
        #expect(try await lab.load(2, from: source)?.origin == .network)
    }

    @Test func aServerThatAnswersOnlyErrorsIsLeftAloneInTheEnd() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        lab.transport.answer(.answer(500))
        for x in 1...60 {
            #expect(await lab.failure(x, from: source)?.code == (x <= 32 ? .badStatus : .waiting), "\(x)")
        }
        lab.clock.advance(seconds: 1)
        lab.transport.answer(.answer(200))
        for x in 61...80 { #expect(try await lab.load(x, from: source)?.origin == .network) }
    }

    // MARK: Slots

    @Test func aVisibleTileDoesNotWaitForPrefetchedOnes() async throws {
        let lab = try CacheLab()
        let door = Latch()
        lab.transport.script { request in
            if request.head.path != "/12/99/2.png" { try await door.pass() }
            return .answer(200)
        }
        let crowd = (1...20).map { x in Task { try await lab.load(x, priority: .prefetch) } }
        let host = "tiles.example"
        await until { door.waiting + lab.cache.slots.waiting(host) == 20 }
        let isThere = Locked(false)
        let visible = Task {
            _ = try await lab.load(99)
            isThere.withLock { $0 = true }
        }
        await until { isThere.withLock { $0 } || door.waiting + lab.cache.slots.waiting(host) == 21 }
        #expect(isThere.withLock { $0 }, "it waits behind \(door.waiting) requests that nobody looks at")
        door.open()
        try await visible.value
        for task in crowd { _ = try await task.value }
        #expect(lab.cache.slots.originCount == 0)
    }

    /// A transport with fewer connections than the cache would use.
    private struct NarrowTransport: TileTransport {
        let base: ScriptedTransport
        let requestsPerHost: Int? = 2
        func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
            try await base.send(request)
        }
    }

    /// In the transport's own line a request would already spend its time.
    @Test func noMoreRequestsAreSentThanTheTransportCarries() async throws {
        let lab = try CacheLab()
        var configuration = TileCacheConfiguration()
        configuration.requestsPerHost = 64
        let cache = TileCache(
            store: lab.store, transport: NarrowTransport(base: lab.transport), configuration: configuration,
            clock: lab.clock.cacheClock)
        let source = try lab.source()
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200)
        }
        let tasks = (1...10).map { x in Task { try await cache.tile(source, z: 12, x: x, y: 2) } }
        await until { door.waiting + cache.slots.waiting("tiles.example") == 10 }
        door.open()
        for task in tasks { #expect(try await task.value?.origin == .network) }
        #expect(lab.transport.mostActive("tiles.example") == 2)
    }

    // MARK: Redirects

    @Test func aRedirectTakesASlotOfTheHostThatItLeadsTo() async throws {
        let lab = try CacheLab { $0.requestsPerHost = 1 }
        let door = Latch()
        lab.transport.script { request in
            guard request.head.authority == "cdn.example" else {
                return .answer(302, [.location: "https://cdn.example\(request.head.path ?? "")"])
            }
            try await door.pass()
            return .answer(200)
        }
        let sources = try ["a", "b", "c"].map { try lab.source($0, "https://\($0).example/{z}/{x}/{y}.png") }
        let tasks = sources.map { source in Task { try await lab.load(from: source) } }
        await until { door.waiting + lab.cache.slots.waiting("cdn.example") == 3 }
        door.open()
        for task in tasks { #expect(try await task.value?.origin == .network) }
        #expect(lab.transport.mostActive("cdn.example") == 1)
    }

    @Test func aRedirectDoesNotReachAHostThatIsLeftAlone() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        lab.transport.script { request in
            if request.head.authority == "cdn.example" { return .answer(503, [.retryAfter: "100"]) }
            if request.head.path == "/12/9/2.png" { return .answer(200) }
            return .answer(302, [.location: "https://cdn.example\(request.head.path ?? "")"])
        }
        #expect(await lab.failure(1, from: source)?.code == .badStatus)
        let second = await lab.failure(2, from: source)
        #expect(second?.code == .waiting && second?.retryAfter == .seconds(100))
        #expect(lab.transport.requests.filter { $0.head.authority == "cdn.example" }.count == 1)
        // It was not the host that sent them there which asked to be left alone.
        #expect(try await lab.load(9, from: source)?.origin == .network)
    }

    @Test func aDownloadIsNotRedirectedToAHostWhoseTermsForbidIt() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        lab.transport.script { request in
            request.head.authority == "tiles.example"
                ? .answer(302, [.location: "https://tile.openstreetmap.org/1.png"]) : .answer(200)
        }
        await #expect(throws: FetchFailure.self) {
            try await lab.cache.update(source, lab.key(), DownloadOptions(), RequestMeter())
        }
        #expect(lab.transport.count == 1)
    }

    // MARK: A visible ask that joins a download

    @Test func aVisibleAskThatJoinsADownloadKeepsItsOwnAttempts() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let (door, key) = (Latch(), try lab.key())
        lab.transport.script { _ in
            if lab.transport.count > 1 { return .answer(200) }
            try await door.pass()
            return .answer(502)
        }
        let download = Task { try await lab.cache.update(source, key, DownloadOptions(), RequestMeter()) }
        await until { door.waiting == 1 }
        let isOver = Locked(false)
        let visible = Task {
            defer { isOver.withLock { $0 = true } }
            return try await lab.load(from: source)?.origin
        }
        await until { lab.cache.flights.waiters(for: FlightKey(key: key, isStored: true)) == 2 }
        door.open()
        await until { lab.clock.sleepers == 1 || isOver.withLock { $0 } }
        lab.clock.advance(seconds: 1)
        #expect(try await visible.value == .network)
        #expect(try await download.value.origin == .network)
    }

    @Test func aVisibleAskIsNotRefusedByTheTermsOfADownload() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let (door, key) = (Latch(), try lab.key())
        lab.transport.script { request in
            guard request.head.authority == "tiles.example" else { return .answer(200) }
            try await door.pass()
            return .answer(302, [.location: "https://tile.openstreetmap.org/1.png"])
        }
        let download = Task { try await lab.cache.update(source, key, DownloadOptions(), RequestMeter()) }
        await until { door.waiting == 1 }
        let visible = Task { try await lab.load(from: source)?.origin }
        await until { lab.cache.flights.waiters(for: FlightKey(key: key, isStored: true)) == 2 }
        door.open()
        #expect(try await visible.value == .network)
        _ = await download.result
    }
}
