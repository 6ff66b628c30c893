import CacheEngine
import Foundation
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Resources and tiles where it is tight: many askers, leavers, failures, redirections, odd requests.
@Suite(.timeLimit(.minutes(60)))
struct ResourceEdgeTests: ResourceSuite {
    // MARK: The health of a host, shared with tiles

    @Test
    func fiveResourcesWith503DoNotHideTheTilesOfTheirHost() async throws {
        let lab = try CacheLab()
        lab.transport.script { $0.head.path?.hasPrefix("/fonts") == true ? .answer(503) : .answer(200) }
        for number in 0..<5 { _ = try? await lab.cache.response(for: request("/fonts/\(number)")) }
        #expect(await lab.failure()?.code == nil)
    }

    @Test
    func bodiesAboveTheCallersOwnLimitSayNothingAgainstTheHost() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            if request.head.path?.hasPrefix("/fonts") == true { throw TransportError(.bodyTooLarge, "too large") }
            return .answer(200)
        }
        for number in 0..<5 { _ = try? await lab.cache.response(for: request("/fonts/\(number)"), bodyLimit: 10) }
        #expect(await lab.failure()?.code == nil)
    }

    @Test
    func whatTheTransportCannotSendSaysNothingAgainstTheHost() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            if request.head.path == "/one" { throw TransportError(.unsupported, "cannot send this") }
            return .answer(200)
        }
        _ = try? await lab.cache.response(for: request("/one"))
        #expect(await lab.failure()?.code == nil)
    }

    @Test
    func oneBrokenConnectionOfAResourceDoesNotHideTheTiles() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            if request.head.path == "/one" { throw TransportError(.connection, "the connection broke") }
            return .answer(200)
        }
        _ = try? await lab.cache.response(for: request("/one"))
        #expect(await lab.failure()?.code == nil)
    }

    @Test
    func aResourceDoesNotEndTheRetryAfterOfATile() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            request.head.path == "/style.json"
                ? .answer(200, [.cacheControl: "max-age=60"])
                : .answer(429, [.retryAfter: "600"])
        }
        _ = await lab.failure(1)
        let before = lab.transport.count
        #expect(await lab.failure(2)?.code == .waiting)
        #expect(lab.transport.count == before)
        lab.clock.advance(seconds: 1)
        _ = try? await lab.cache.response(for: request())
        let after = lab.transport.count
        #expect(after == before, "a resource was asked for though the host asked to be left alone for 600 s")
        #expect(await lab.failure(3)?.code == .waiting)
        #expect(lab.transport.count == after)
    }

    @Test
    func retryAfterOfAResourceIsObeyedByResources() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(429, [.retryAfter: "600"]))
        _ = try? await lab.cache.response(for: request("/a"))
        _ = try? await lab.cache.response(for: request("/b"))
        _ = try? await lab.cache.response(for: request("/c"))
        #expect(lab.transport.count == 1)
    }

    @Test
    func resourcesOfAHostThatIsAwayAreNotEachWaitedFor() async throws {
        let lab = try CacheLab()
        lab.transport.script { _ in throw TransportError(.timeout, "no answer in time") }
        for number in 0..<20 { _ = try? await lab.cache.response(for: request("/\(number)")) }
        #expect(lab.transport.count < 20)
    }

    // MARK: One request, however many ask

    @Test
    func aServerSlowerThanTenSecondsIsAskedOnce() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass()
            return .answer(200, [.cacheControl: "max-age=60"], body: Data("one".utf8))
        }
        let cache = lab.cache
        let request = request()
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<100 { group.addTask { _ = try? await cache.response(for: request) } }
            while lab.transport.count == 0 || lab.cache.resources.flights.count < 1 { await Task.yield() }
            for _ in 0..<5_000 { await Task.yield() }
            lab.clock.advance(seconds: 20)
            for _ in 0..<20_000 { await Task.yield() }
            latch.open()
            await group.waitForAll()
        }
        #expect(lab.transport.count == 1)
        await settled(lab)
    }

    @Test
    func whoeverWaitsInTheQueueOfAHostIsNotSentTwice() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass()
            return .answer(200, [.cacheControl: "max-age=60"], body: Data("one".utf8))
        }
        let cache = lab.cache
        let (wanted, others) = (request("/wanted"), (0..<6).map { request("/busy/\($0)") })
        await withTaskGroup(of: Void.self) { group in
            for other in others { group.addTask { _ = try? await cache.response(for: other) } }
            while lab.transport.count < 6 { await Task.yield() }
            for _ in 0..<10 { group.addTask { _ = try? await cache.response(for: wanted) } }
            for _ in 0..<5_000 { await Task.yield() }
            lab.clock.advance(seconds: 11)
            for _ in 0..<20_000 { await Task.yield() }
            latch.open()
            await group.waitForAll()
        }
        #expect(lab.transport.count(of: "/wanted") == 1)
        await settled(lab)
    }

    @Test
    func aThousandAskersOfWhichHalfLeaveLeakNothing() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass()
            return .answer(200, [.cacheControl: "max-age=60"], body: Data("one".utf8))
        }
        let cache = lab.cache
        let request = request()
        let key = try key(of: request, lab)
        let askers = (0..<1000).map { _ in Task { try await cache.response(for: request)?.body } }
        // One who comes after the only other has left would ask anew.
        await until { lab.cache.resources.flights.followers(of: key) == 999 && latch.waiting == 1 }
        for (number, asker) in askers.enumerated() where number % 2 == 0 { asker.cancel() }
        for _ in 0..<5_000 { await Task.yield() }
        latch.open()
        for (number, asker) in askers.enumerated() {
            let result = await asker.result
            if number % 2 == 1 { #expect((try? result.get()) == Data("one".utf8)) }
        }
        #expect(lab.transport.count == 1)
        await settled(lab)
    }

    @Test
    func whoHasLeftAlreadySendsNothing() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
        let cache = lab.cache
        var sent = 0
        for number in 0..<50 {
            let request = request("/\(number)")
            let latch = Latch()
            let asker = Task {
                try? await latch.pass()
                return try await cache.response(for: request)
            }
            asker.cancel()
            _ = await asker.result
            await settled(lab)
            sent = lab.transport.count
        }
        #expect(sent == 0)
    }

    @Test
    func aTransportThatIgnoresCancellationKeepsNobody() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { _ in
            while latch.arrivals == 0 { await Task.yield() }
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let cache = lab.cache
        let request = request()
        let askers = (0..<20).map { _ in Task { try await cache.response(for: request) } }
        while lab.transport.active == 0 { await Task.yield() }
        for asker in askers { asker.cancel() }
        for asker in askers { _ = await asker.result }
        await settled(lab)
        try await latch.pass2()
        await until { lab.cache.slots.originCount == 0 }
    }

    @Test(arguments: 0..<30)
    func closingAtAnyMomentEndsAll(_ delay: Int) async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            for _ in 0..<20 { await Task.yield() }
            return .answer(
                200, [.cacheControl: "max-age=1, stale-while-revalidate=100", .vary: "Accept-Language"],
                body: Data((request.head.path ?? "").utf8))
        }
        let cache = lab.cache
        let requests = (0..<8).map { request("/\($0 % 3)", [.acceptLanguage: "\($0 % 2)"]) }
        let askers = requests.map { request in
            Task { for _ in 0..<4 { _ = try await cache.response(for: request); lab.clock.advance(seconds: 2) } }
        }
        for _ in 0..<(delay * 40) { await Task.yield() }
        try lab.cache.close()
        for asker in askers {
            if case .failure(let error) = await asker.result { #expect((error as? TileCacheError)?.code == .closed) }
        }
        await settled(lab)
        await until { lab.transport.active == 0 }
    }

    // MARK: Disk

    @Test
    func onAFullDiskAConfirmationSaysThatItIsNotStored() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(304, [.eTag: "\"a\"", .cacheControl: "max-age=60"]))
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        let second = try await lab.cache.response(for: request())
        #expect(text(second) == "one")
        #expect(second?.notStored != nil)
        #expect(lab.events.count == 1)
    }

    @Test(arguments: 0..<12)
    func anInputOutputErrorAtAnyOperationCostsNobodyAnAnswer(_ at: Int) async throws {
        let lab = try CacheLab()
        lab.transport.answer(
            .answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\"", .vary: "Accept"], body: body("one")))
        lab.files.fail(.init(at: at, number: EIO, persistent: at % 2 == 0))
        #expect(text(try await lab.cache.response(for: request())) == "one")
        lab.clock.advance(seconds: 100)
        #expect(text(try await lab.cache.response(for: request())) == "one")
        lab.files.fail(nil)
        #expect(text(try await lab.cache.response(for: request())) == "one")
        await settled(lab)
    }

    @Test
    func noQueryIsWrittenDownWithARedirection() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            request.head.path == "/s?key=SECRET1"
                ? .answer(301, [.location: "/s/?key=SECRET1", .cacheControl: "max-age=600"])
                : .answer(200, [.cacheControl: "max-age=600"], body: Data("there".utf8))
        }
        #expect(text(try await lab.cache.response(for: request("/s?key=SECRET1"))) == "there")
        for (name, bytes) in lab.bytesOnDisk() {
            #expect(!String(decoding: bytes, as: UTF8.self).contains("SECRET1"), "\(name)")
        }
    }

    @Test
    func aBodyShorterThanAnnouncedIsNotStored() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .contentLength: "100"], body: body("one")))
        _ = try? await lab.cache.response(for: request())
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("whole")))
        #expect(text(try await lab.cache.response(for: request())) == "whole")
    }

    // MARK: Requests

    @Test
    func theAppsOwnFieldsGoOut() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200))
        let names = ["api_key", "X-Remote-Key", "X-Scheme", "Forwarded", "X-Api-Key"]
        var fields = HTTPFields()
        for name in names { fields[try #require(HTTPField.Name(name))] = "v" }
        _ = try await lab.cache.response(for: request("/a", fields))
        let sent = try #require(lab.transport.requests.first?.head.headerFields)
        for name in names { #expect(sent[try #require(HTTPField.Name(name))] == "v", "\(name)") }
    }

    @Test
    func aRangeIsAskedForAfterARedirectionToo() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            if request.head.authority == "tiles.example" {
                return .answer(302, [.location: "https://cdn.example/big"])
            }
            return request.head.headerFields[.range] == nil
                ? .answer(200, body: Data(count: 10_000))
                : .answer(206, [.contentRange: "bytes 0-9/10000"], body: Data(count: 10))
        }
        let response = try await lab.cache.response(for: request("/big", [.range: "bytes=0-9"]))
        #expect(response?.head.status.code == 206)
        #expect(response?.body.count == 10)
    }

    @Test
    func aConditionIsAskedAfterARedirectionToo() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            if request.head.authority == "tiles.example" {
                return .answer(302, [.location: "https://cdn.example/big"])
            }
            return request.head.headerFields[.ifNoneMatch] == nil ? .answer(200) : .answer(304)
        }
        let response = try await lab.cache.response(for: request("/big", [.ifNoneMatch: "\"a\""]))
        #expect(response?.head.status.code == 304)
    }

    @Test(arguments: ["a?b", "a#b", "a\\b", "a:b:c", ":80", "a:99999x", "[::1"])
    func whatIsNoHostIsRefused(_ authority: String) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200))
        let found = await code { _ = try await lab.cache.response(for: request("/x", host: authority)) }
        #expect(found == .invalidRequest)
        #expect(lab.transport.count == 0)
    }

    @Test
    func aFragmentIsNotSent() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
        _ = try? await lab.cache.response(for: request("/x#part"))
        #expect(lab.transport.paths.allSatisfy { !$0.contains("#") })
    }

    @Test(arguments: ["[::1]:8080", "[::1]", "MAPS.example:443", "xn--mnchen-3ya.example"])
    func hostsOfAllKindsAreCached(_ host: String) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        _ = try await lab.cache.response(for: request("/x", host: host))
        #expect(try await lab.cache.response(for: request("/x", host: host))?.origin == .stored)
    }

    @Test(arguments: [
        "/a/../b", "/%2e%2e/b", "/..%2f", "//host/x", "/" + String(repeating: "a", count: 5000), "/a%00b", "/:",
        "/a\"b", "/a?b?c",
    ])
    func oddPathsAreSentAsTheyAreAndMixedWithNothing(_ path: String) async throws {
        let lab = try CacheLab()
        lab.transport.script { .answer(200, [.cacheControl: "max-age=60"], body: Data(($0.head.path ?? "").utf8)) }
        for other in [path, "/b", "/x", path] {
            #expect(text(try await lab.cache.response(for: request(other))) == other)
        }
    }

    // MARK: Rules

    @Test
    func whatIsGoneIsNotShownOfflineToWhoShowsCredentials() async throws {
        let lab = try CacheLab()
        let asked = request("/private", [.authorization: "Bearer x"])
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("old")))
        _ = try await lab.cache.response(for: asked)
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(410, [.cacheControl: "no-store"]))
        #expect(try await lab.cache.response(for: asked)?.head.status.code == 410)
        lab.transport.goOffline()
        lab.clock.advance(seconds: 100)
        #expect(text(try? await lab.cache.response(for: asked)) == nil)
    }

    @Test
    func whatIsGoneIsNotShownOffline() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("old")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(410, [.cacheControl: "no-store"]))
        #expect(try await lab.cache.response(for: request())?.head.status.code == 410)
        lab.transport.goOffline()
        #expect(text(try? await lab.cache.response(for: request())) == nil)
    }

    @Test
    func inASharedCacheTheAnswerToOneUserIsNotGivenToAnother() async throws {
        let lab = try CacheLab { $0.isShared = true }
        let latch = Latch()
        lab.transport.script { request in
            try await latch.pass()
            return .answer(
                200, [.cacheControl: "max-age=60"], body: Data((request.head.headerFields[.authorization] ?? "").utf8))
        }
        let cache = lab.cache
        let askers = (0..<10).map { number in
            let request = request("/me", [.authorization: "user\(number)"])
            return Task { try await cache.response(for: request) }
        }
        for _ in 0..<2_000 { await Task.yield() }
        latch.open()
        for (number, asker) in askers.enumerated() { #expect(text(try await asker.value) == "user\(number)") }
        await settled(lab)
    }

    @Test
    func varyThatChangesNeverMixesVariants() async throws {
        let lab = try CacheLab()
        let round = Locked(0)
        lab.transport.script { request in
            let number = round.withLock {
                $0 += 1; return $0
            }
            let language = request.head.headerFields[.acceptLanguage] ?? ""
            let vary =
                number % 3 == 0
                ? "Accept-Language" : number % 3 == 1 ? "Accept, Accept-Language" : "Accept-Language, Cookie"
            return .answer(
                200, [.cacheControl: "max-age=5", .vary: vary, .eTag: "\"\(language)\""], body: Data(language.utf8))
        }
        for number in 0..<60 {
            let language = ["de", "en", "fr"][number * 7 % 3]
            #expect(text(try await lab.cache.response(for: request("/v", [.acceptLanguage: language]))) == language)
            lab.clock.advance(seconds: Int64(number % 4))
        }
        await settled(lab)
    }

    @Test
    func aVariantAppearsWhenTheClockHasGoneBack() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("all")))
        _ = try await lab.cache.response(for: request("/v", [.acceptLanguage: "de"]))
        lab.clock.advance(seconds: -30)
        lab.transport.script { request in
            let language = request.head.headerFields[.acceptLanguage] ?? ""
            return .answer(200, [.cacheControl: "max-age=600", .vary: "Accept-Language"], body: Data(language.utf8))
        }
        let reload = request("/v", [.acceptLanguage: "de", .cacheControl: "no-cache"])
        #expect(text(try await lab.cache.response(for: reload)) == "de")
        #expect(text(try await lab.cache.response(for: request("/v", [.acceptLanguage: "en"]))) == "en")
    }

    @Test
    func rangesOfAnEmptyBody() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=600"], body: Data()))
        _ = try await lab.cache.response(for: request())
        for range in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            let part = try await lab.cache.response(for: request("/style.json", [.range: range]))
            #expect([200, 416].contains(part?.head.status.code ?? 0))
            #expect(part?.body.isEmpty == true)
        }
    }

    @Test
    func a304ToNothing() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(304))
        #expect(await code { _ = try await lab.cache.response(for: request()) } == .noAnswer)
        let own = try await lab.cache.response(for: request("/style.json", [.ifNoneMatch: "\"x\""]))
        #expect(own?.head.status.code == 304)
        await settled(lab)
    }

    @Test
    func a304ToAQuestionWithoutConditionsIsNotHandedOn() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(304, [.eTag: "\"other\"", .lastModified: "Mon, 01 Jan 2024 00:00:00 GMT"]))
        let answer = try? await lab.cache.response(for: request("/style.json", [.ifNoneMatch: "\"mine\""]))
        #expect(lab.transport.requests.last?.head.headerFields[.ifNoneMatch] == nil)
        #expect(answer?.head.status.code != 304)
    }

    @Test
    func aMaxAgeThatOthersHaveUsedUpIsNotFresh() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .age: "100"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        #expect(try await lab.cache.response(for: request())?.origin == .server)
        lab.transport.goOffline()
        #expect(try await lab.cache.response(for: request())?.origin == .stale)
    }

    @Test
    func forgetFailuresLetsResourcesBeTriedAgain() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 100)
        lab.transport.goOffline()
        #expect(try await lab.cache.response(for: request())?.origin == .stale)
        let count = lab.transport.count
        #expect(try await lab.cache.response(for: request())?.origin == .stale)
        #expect(lab.transport.count == count)
        lab.cache.forgetFailures()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("two")))
        #expect(text(try await lab.cache.response(for: request())) == "two")
    }

    @Test
    func tilesAndResourcesOfOneSourceDoNotMix() async throws {
        let lab = try CacheLab()
        try await lab.prime(1)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        let name = try SourceName("lab")
        #expect(text(try await lab.cache.response(for: request("/12/1/2.png"), source: name)) == "one")
        #expect(try await lab.load(1)?.data == Picture.png(1))
    }

    // MARK: Tiles

    @Test
    func tilesGiveEverySlotAndProbeBack() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { request in
            if request.head.authority == "tiles.example" {
                return .answer(302, [.location: "https://b.example\(request.head.path ?? "")"])
            }
            try await latch.pass()
            throw TransportError(.timeout, "slow")
        }
        let source = try lab.source { $0.attempts = 1 }
        let askers = (0..<40).map { number in Task { try await lab.load(number, from: source) } }
        while lab.transport.active == 0 { await Task.yield() }
        for (number, asker) in askers.enumerated() where number % 2 == 0 { asker.cancel() }
        for _ in 0..<2000 { await Task.yield() }
        latch.open()
        for asker in askers { _ = await asker.result }
        await until { lab.cache.slots.originCount == 0 && lab.cache.flights.count == 0 }
        lab.clock.advance(seconds: 1000)
        lab.transport.answer(.answer(200))
        #expect(await lab.failure(100, from: source) == nil)
    }

    @Test
    func aProbeThatIsCancelledIsTakenUpByTheNext() async throws {
        let lab = try CacheLab()
        lab.transport.script { _ in throw TransportError(.timeout, "slow") }
        let source = try lab.source { $0.attempts = 1 }
        for number in 0..<8 { _ = await lab.failure(number, from: source) }
        lab.clock.advance(seconds: 1000)
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass(); return .answer(200)
        }
        let probe = Task { try await lab.load(20, from: source) }
        while lab.transport.active == 0 { await Task.yield() }
        probe.cancel()
        _ = await probe.result
        await until { lab.transport.active == 0 && lab.cache.flights.count == 0 }
        latch.open()
        #expect(await lab.failure(21, from: source)?.code == nil)
    }

    @Test
    func aRedirectionInALoopEndsAndGivesItsSlotsBack() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            .answer(
                302,
                [.location: request.head.authority == "tiles.example" ? "//b.example/x#f" : "https://tiles.example/y"])
        }
        #expect(await lab.failure()?.code == .badRedirect)
        #expect(lab.transport.count == 6)
        #expect(lab.cache.slots.originCount == 0)
    }

    // MARK: Second round

    @Test
    func errorsHoldNoSecrets() async throws {
        let lab = try CacheLab()
        let asked = request("/s?key=SECRET", [.authorization: "SECRET", .cookie: "SECRET"])
        lab.transport.goOffline()
        for location in ["", "http://x/?k=SECRET", "https://u:SECRET@x/", "ftp://x/SECRET", "https://SECRET x/"] {
            if !location.isEmpty { lab.transport.answer(.answer(302, [.location: location])) }
            do {
                _ = try await lab.cache.response(for: asked)
                Issue.record("followed \(location)")
            } catch {
                #expect(!"\(error)".contains("SECRET"))
                #expect(!String(reflecting: error).contains("SECRET"), "\(location)")
            }
        }
    }

    @Test
    func secretsGoToNoOtherHost() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            switch request.head.authority {
            case "tiles.example": .answer(302, [.location: "HTTPS://TILES.example:443/again"])
            case "TILES.example:443", "tiles.example:443": .answer(307, [.location: "//cdn.example/x"])
            default: .answer(200)
            }
        }
        let key = try #require(HTTPField.Name("X-Api-Key"))
        _ = try await lab.cache.response(
            for: request("/a", [.authorization: "S", .cookie: "S", key: "S", .referer: "S"]))
        let sent = lab.transport.requests
        #expect(sent.count == 3)
        #expect(sent[1].head.headerFields[.authorization] == "S")
        #expect(!sent[2].head.headerFields.contains { $0.value == "S" })
    }

    @Test
    func aReadOnlyFolderCostsNobodyAnAnswer() async throws {
        let lab = try CacheLab()
        lab.files.setWritable(false)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        let response = try await lab.cache.response(for: request())
        #expect(text(response) == "one")
        await settled(lab)
    }

    @Test
    func aRefreshThatFailsIsReportedOnce() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=1, stale-while-revalidate=1000"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 5)
        lab.transport.goOffline()
        for _ in 0..<10 {
            #expect(try await lab.cache.response(for: request())?.origin == .stale)
            await settled(lab)
        }
        #expect(lab.transport.count == 2)
        #expect(lab.events.count == 1)
    }

    @Test
    func whoAsksInACancelledTaskDoesNotTakeOthersAlong() async throws {
        let lab = try CacheLab()
        lab.transport.script { _ in
            for _ in 0..<50 { try Task.checkCancellation(); await Task.yield() }
            return .answer(200, [.cacheControl: "max-age=60"], body: Data("one".utf8))
        }
        let cache = lab.cache
        for number in 0..<50 {
            let request = request("/\(number)")
            let leader = Task { try await cache.response(for: request)?.body }
            let follower = Task { try await cache.response(for: request)?.body }
            for _ in 0..<number { await Task.yield() }
            leader.cancel()
            let late = Task { try await cache.response(for: request)?.body }
            #expect(try await follower.value == Data("one".utf8))
            #expect(try await late.value == Data("one".utf8))
        }
        await settled(lab)
    }

    @Test(arguments: [500, 503, 403, 400])
    func aRetryAfterOfZeroIsNoSilence(_ status: Int) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(status, [.retryAfter: "0"]))
        let source = try lab.source { $0.attempts = 1 }
        for number in 0..<6 { _ = await lab.failure(number, from: source) }
        lab.transport.answer(.answer(200))
        #expect(await lab.failure(20, from: source)?.code == nil)
    }

    @Test(arguments: [500, 503, 403, 400])
    func errorsWithoutRetryAfterAreNoSilence(_ status: Int) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(status))
        let source = try lab.source { $0.attempts = 1 }
        for number in 0..<6 { _ = await lab.failure(number, from: source) }
        lab.transport.answer(.answer(200))
        #expect(await lab.failure(20, from: source)?.code == nil)
    }

    @Test(arguments: [false, true])
    func aCancelledProbeOfAResourceIsTakenUpByTheNext(_ ignores: Bool) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=1"], body: body("one")))
        for path in ["/a", "/b"] { _ = try await lab.cache.response(for: request(path)) }
        lab.clock.advance(seconds: 10)
        lab.transport.goOffline()
        for path in ["/a", "/b"] { #expect(try await lab.cache.response(for: request(path))?.origin == .stale) }
        lab.clock.advance(seconds: 1000)
        let latch = Latch()
        let isOpen = Locked(false)
        lab.transport.script { _ in
            if ignores { while !isOpen.withLock({ $0 }) { await Task.yield() } } else { try await latch.pass() }
            return .answer(200, [.cacheControl: "max-age=1"], body: Data("two".utf8))
        }
        let cache = lab.cache
        let (first, second) = (request("/a"), request("/a"))
        let probe = Task { try await cache.response(for: first) }
        while lab.transport.active == 0 { await Task.yield() }
        #expect(try await cache.response(for: second)?.origin == .stale)
        probe.cancel()
        _ = await probe.result
        await settled(lab)
        latch.open()
        isOpen.withLock { $0 = true }
        #expect(text(try await cache.response(for: second)) == "two")
    }

    @Test
    func aClosedStoreSaysThatItIsClosed() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        try lab.cache.close()
        #expect(await code { _ = try await lab.cache.response(for: request()) } == .closed)
        #expect(lab.transport.count == 1)
    }

    @Test
    func aCachedRedirectionToHttpIsNeverFollowed() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(301, [.location: "http://tiles.example/x", .cacheControl: "max-age=600"]))
        for _ in 0..<3 { #expect(await code { _ = try await lab.cache.response(for: request()) } == .badRedirect) }
        #expect(lab.transport.count == 1)
    }

    @Test
    func tilesAndResourcesTogetherGiveAllBackWhenClosed() async throws {
        let lab = try CacheLab()
        lab.transport.script { _ in
            for _ in 0..<30 { await Task.yield() }
            return .answer(200, [.cacheControl: "max-age=1"])
        }
        let cache = lab.cache
        let requests = (0..<50).map { request("/\($0 % 10)") }
        let askers = requests.map { request in Task { _ = try await cache.response(for: request) } }
        let tiles = (0..<50).map { number in Task { _ = try await lab.load(number) } }
        for _ in 0..<500 { await Task.yield() }
        try cache.close()
        for asker in askers + tiles { _ = await asker.result }
        await settled(lab)
        await until { cache.slots.originCount == 0 && cache.flights.count == 0 }
    }
}

extension Latch {
    /// Counts an arrival and does not wait.
    fileprivate func pass2() async throws {
        open()
        try await pass()
    }
}
