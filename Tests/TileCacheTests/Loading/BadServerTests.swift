import CacheEngine
import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct BadServerTests {
    private static let html = Data("<!DOCTYPE html><title>Login</title>".utf8)

    /// What a server sends, and what is said of it.
    private static let refused: [(String, TransportResponse)] = [
        ("a page", .answer(200, [.contentType: "text/html"], body: html)),
        ("a page that claims to be a picture", .answer(200, [.contentType: "image/png"], body: html)),
        ("nothing", .answer(200, [.contentType: "image/png"], body: Data())),
        ("the wrong type", .answer(200, [.contentType: "application/json"], body: Data("{}".utf8))),
        ("too little", .answer(200, [.contentLength: "100"], body: Picture.png(1))),
        ("too much", .answer(200, [:], body: Picture.png(1, size: 5000))),
    ]

    @Test(arguments: 0..<6)
    func whatIsNoTileIsRefusedAndNeverStored(row: Int) async throws {
        let (what, answer) = Self.refused[row]
        let lab = try CacheLab()
        let source = try lab.source {
            $0.bodyLimit = 4000
            $0.attempts = 1
        }
        lab.transport.answer(answer)
        #expect(await lab.failure(from: source)?.code == .badBody, "\(what)")
        #expect(await lab.failure(from: source)?.code == .waiting, "\(what)")
        #expect(try await lab.load(1, .cacheOnly) == nil)
        #expect(lab.transport.requests[0].bodyLimit == 4000)
        // One tile's bad body is no reason to leave the host alone.
        lab.transport.answer(.answer(200))
        for x in 2...8 { #expect(try await lab.load(x, from: source)?.origin == .network) }
        // And with a stale tile at hand, that one is served.
        lab.clock.advance(seconds: 7 * 86_400 + 1)
        lab.transport.answer(answer)
        #expect(try await lab.load(2, from: source)?.origin == .stale(.error), "\(what)")
    }

    @Test func whatTheTransportRefusesIsAnErrorOfItsOwn() async throws {
        for code in [TransportError.Code.bodyTooLarge, .truncated, .timeout, .tls, .nameNotFound, .malformed] {
            let lab = try CacheLab()
            lab.transport.script { _ in throw TransportError(code, "tiles.example: \(code)") }
            let failure = await lab.failure(from: try lab.source { $0.attempts = 1 })
            #expect(failure?.code == .noAnswer)
            #expect((failure?.cause as? TransportError)?.code == code)
        }
    }

    @Test func aTransportThatIsCancelledByItselfIsAFailureLikeAnother() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        lab.transport.script { _ in throw TransportError(.cancelled, "the client was shut down") }
        #expect(try await lab.load()?.origin == .stale(.error))
        #expect(await lab.failure(2, from: try lab.source { $0.attempts = 1 })?.code == .noAnswer)
    }

    /// A person scrolls on, and back: the tile must not be found in disgrace.
    @Test func aCancelledRequestBlamesNobodyWhateverTheTransportSays() async throws {
        let lab = try CacheLab()
        let door = Latch()
        lab.transport.script { _ in
            do { try await door.pass() } catch { throw TransportError(.connection, "closed") }
            return .answer(200)
        }
        for _ in 0..<10 {
            let arrived = door.arrivals
            let task = Task { try await lab.load() }
            await until { door.arrivals == arrived + 1 && door.waiting == 1 }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            await until { lab.transport.active == 0 && lab.cache.slots.originCount == 0 }
        }
        door.open()
        #expect(try await lab.load()?.origin == .network)
    }

    // MARK: Retrying

    @Test func whatMayPassIsTriedASecondTimeAfterAPause() async throws {
        let lab = try CacheLab()
        let count = Locked(0)
        lab.transport.script { _ in
            let attempt = count.withLock { count -> Int in
                count += 1
                return count
            }
            return attempt == 1 ? .answer(502) : .answer(200, [.cacheControl: "max-age=60"])
        }
        let task = Task { try await lab.load()?.origin }
        await until { lab.clock.sleepers == 1 }
        #expect(lab.transport.count == 1)
        lab.clock.advance(seconds: 1)
        #expect(try await task.value == .network)
        #expect(lab.transport.count == 2)
    }

    @Test func failuresBackOffAndNeverBecomeEndlessRetries() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        lab.transport.answer(.answer(500))
        // Somebody asks every other second for ten minutes.
        for _ in 0..<300 {
            _ = await lab.failure(from: source)
            lab.clock.advance(seconds: 2)
        }
        #expect(lab.transport.count >= 6 && lab.transport.count <= 20, "\(lab.transport.count)")
    }

    @Test func aStatusThatCannotPassIsNotTriedAgain() async throws {
        for status in [400, 401, 403, 405, 418, 451, 206, 300, 999] {
            let lab = try CacheLab()
            lab.transport.answer(.answer(status))
            let failure = await lab.failure()
            #expect(failure?.code == .badStatus && failure?.status == status)
            #expect(lab.transport.count == 1)
        }
    }

    @Test(arguments: [429, 503])
    func retryAfterIsHonouredForTheWholeHost(status: Int) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(status, [.retryAfter: "100"]))
        let failure = await lab.failure()
        #expect(failure?.code == .badStatus && failure?.retryAfter == .seconds(100))
        lab.transport.answer(.answer(200))
        let waiting = await lab.failure(2)
        #expect(waiting?.code == .waiting && waiting?.retryAfter == .seconds(100))
        lab.clock.advance(seconds: 99)
        #expect(await lab.failure(2)?.code == .waiting)
        lab.clock.advance(seconds: 1)
        #expect(try await lab.load(2)?.origin == .network)
        #expect(try await lab.load(1)?.origin == .network)
        #expect(lab.transport.count == 3)
    }

    @Test(arguments: ["9999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
    func anAbsurdRetryAfterIsBounded(text: String) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(503, [.retryAfter: text]))
        #expect(await lab.failure()?.retryAfter == .seconds(3600))
        lab.clock.advance(seconds: 3600)
        lab.transport.answer(.answer(200))
        #expect(try await lab.load()?.origin == .network)
    }

    @Test func aShortRetryAfterIsWaitedForInPlace() async throws {
        let lab = try CacheLab()
        let date = Timestamp(seconds: lab.clock.now.seconds)
        lab.transport.script { _ in
            lab.clock.now == date ? .answer(429, [.retryAfter: "Tue, 14 Nov 2023 22:13:23 GMT"]) : .answer(200)
        }
        let task = Task { try await lab.load()?.origin }
        await until { lab.clock.sleepers == 1 }
        lab.clock.advance(seconds: 2)
        #expect(lab.clock.sleepers == 1)
        lab.clock.advance(seconds: 1)
        #expect(try await task.value == .network)
    }

    @Test func whoWaitsForASecondAttemptMayLeave() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(502))
        let task = Task { try await lab.load() }
        await until { lab.clock.sleepers == 1 }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        await until { lab.clock.sleepers == 0 && lab.cache.flights.count == 0 }
    }

    // MARK: The circuit breaker

    @Test func fiveFailuresInARowOpenTheCircuitAndAProbeClosesIt() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        lab.transport.goOffline()
        for x in 1...30 {
            #expect(await lab.failure(x, from: source)?.code == (x <= 5 ? .noAnswer : .waiting))
        }
        #expect(lab.transport.count == 5)
        lab.clock.advance(seconds: 1)
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200)
        }
        let probe = Task { try await lab.load(40, from: source)?.origin }
        await until { door.waiting == 1 }
        #expect(await lab.failure(41, from: source)?.code == .waiting)
        door.open()
        #expect(try await probe.value == .network)
        for x in 41...60 { #expect(try await lab.load(x, from: source)?.origin == .network) }
    }

    /// A map's worth of tiles stands in line when the phone goes offline: after the first five, none waits for a time-out.
    @Test func thoseInLineDoNotAskAHostThatHasFailedMeanwhile() async throws {
        let lab = try CacheLab { $0.requestsPerHost = 2 }
        let source = try lab.source { $0.attempts = 1 }
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            throw TransportError(.timeout, "no answer from tiles.example")
        }
        let tasks = (1...100).map { x in Task { await lab.failure(x, from: source)?.code } }
        await until { lab.cache.slots.waiting("tiles.example") == 98 }
        door.open()
        var codes: [TileCacheError.Code: Int] = [:]
        for task in tasks { if let code = await task.value { codes[code, default: 0] += 1 } }
        #expect(lab.transport.count <= 6)
        #expect(codes[.noAnswer, default: 0] == lab.transport.count && codes[.waiting, default: 0] >= 94)
    }

    @Test func aProbeThatIsCancelledLetsTheNextOneTry() async throws {
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
        let probe = Task { try await lab.load(10, from: source) }
        await until { door.waiting == 1 }
        probe.cancel()
        _ = await probe.result
        await until { lab.transport.active == 0 && lab.cache.slots.originCount == 0 }
        door.open()
        #expect(try await lab.load(11, from: source)?.origin == .network)
    }

    @Test func forgettingFailuresLetsEverythingBeTriedAtOnce() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(503, [.retryAfter: "1000"]))
        _ = await lab.failure()
        lab.transport.answer(.answer(200))
        #expect(await lab.failure()?.code == .waiting)
        lab.cache.forgetFailures()
        #expect(try await lab.load()?.origin == .network)
    }

    // MARK: Redirects

    @Test func aRedirectIsFollowedAndTheTileKeptUnderItsOwnKey() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            request.head.authority == "tiles.example"
                ? .answer(302, [.location: "https://cdn.example/t.png?token=s3cret"])
                : .answer(200, [.cacheControl: "max-age=60"])
        }
        #expect(try await lab.load()?.origin == .network)
        #expect(try await lab.load()?.origin.isCached == true)
        #expect(lab.transport.requests.map { $0.head.authority ?? "" } == ["tiles.example", "cdn.example"])
    }

    /// Each redirection had the whole time anew, so that a tile could take six times what its source allows.
    @Test func aRequestAndItsRedirectionsHaveOneTime() async throws {
        let lab = try CacheLab()
        let clock = lab.clock
        lab.transport.script { request in
            clock.advance(seconds: 20)
            return .answer(302, [.location: request.head.path == "/a" ? "/b" : "/a"])
        }
        let source = try lab.source {
            $0.timeout = .seconds(30)
            $0.attempts = 1
        }
        await #expect(throws: TileCacheError.self) { try await lab.load(from: source) }
        #expect(lab.transport.requests.map(\.timeout) == [.seconds(30), .seconds(10)])
    }

    @Test func aCircleEnds() async throws {
        let lab = try CacheLab()
        lab.transport.script { .answer(302, [.location: $0.head.path == "/a" ? "/b" : "/a"]) }
        #expect(await lab.failure()?.code == .badRedirect)
        #expect(lab.transport.count == 6)
    }

    @Test(arguments: ["http://tiles.example/x.png", "ftp://tiles.example/", "", "https://u:p@tiles.example/"])
    func badRedirectsAreNotFollowed(location: String) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(301, location.isEmpty ? [:] : [.location: location]))
        #expect(await lab.failure()?.code == .badRedirect)
        #expect(lab.transport.count == 1)
    }

    // MARK: What may not be kept

    @Test(arguments: [["Cache-Control": "no-store"], ["Vary": "*", "Cache-Control": "max-age=60"]])
    func whatMayNotBeStoredIsGivenAndForgotten(fields: [String: String]) async throws {
        let lab = try CacheLab()
        var head = HTTPFields()
        for (name, value) in fields { if let name = HTTPField.Name(name) { head[name] = value } }
        lab.transport.answer(.answer(200, head))
        #expect(try await lab.load()?.data == Picture.png(1))
        #expect(try await lab.load(1, .cacheOnly) == nil)
        #expect(try await lab.load()?.origin == .network)
        #expect(lab.transport.count == 2 && lab.events.isEmpty)
    }

    @Test func theOwnerMayOverrideNoStore() async throws {
        let lab = try CacheLab()
        let source = try lab.source {
            $0.lifetimes.minimum = .seconds(100)
            $0.lifetimes.overridesServer = true
        }
        lab.transport.answer(.answer(200, [.cacheControl: "no-store"]))
        try await lab.load(from: source)
        #expect(try await lab.load(from: source)?.origin.isCached == true)
    }
}
