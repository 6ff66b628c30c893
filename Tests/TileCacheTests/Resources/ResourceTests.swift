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

/// Styles, glyphs and whatever else is no tile, by the rules of a private cache.
@Suite(.timeLimit(.minutes(60)))
struct ResourceTests: ResourceSuite {
    @Test
    func aFreshResponseIsNotAskedForAgain() async throws {
        let lab = try CacheLab()
        lab.transport.answer(
            .answer(200, [.cacheControl: "max-age=60", .contentType: "application/json"], body: body("{}")))
        let first = try await lab.cache.response(for: request())
        #expect(first?.origin == .server)
        #expect(first?.notStored == nil)
        lab.clock.advance(seconds: 20)
        let second = try await lab.cache.response(for: request())
        #expect(second?.origin == .stored)
        #expect(text(second) == "{}")
        #expect(second?.head.headerFields[.contentType] == "application/json")
        #expect(second?.head.headerFields[.age] == "20")
        #expect(lab.transport.count == 1)
    }

    @Test
    func aStaleResponseIsRevalidatedByItsValidators() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(304, [.eTag: "\"a\""]))
        let second = try await lab.cache.response(for: request())
        #expect(lab.transport.requests.last?.head.headerFields[.ifNoneMatch] == "\"a\"")
        #expect(second?.origin == .revalidated)
        #expect(text(second) == "one")
        #expect(try await lab.cache.response(for: request())?.origin == .stored)
    }

    @Test
    func aStaleResponseStandsInForAServerThatIsAway() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 3600)
        lab.transport.goOffline()
        let stale = try await lab.cache.response(for: request())
        #expect(stale?.origin == .stale)
        #expect(text(stale) == "one")
        await #expect(throws: TileCacheError.self) { try await lab.cache.response(for: request("/other")) }
    }

    @Test
    func whatMustBeRevalidatedStandsInForNobody() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60, must-revalidate"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 3600)
        lab.transport.goOffline()
        do {
            _ = try await lab.cache.response(for: request())
            Issue.record("a response that must be revalidated was served stale")
        } catch let error as TileCacheError {
            #expect(error.code == .noAnswer)
            #expect((error.cause as? TransportError)?.code == .connection)
        }
    }

    @Test
    func variantsAreKeptApartByTheFieldsThatVaryNames() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            let language = request.head.headerFields[.acceptLanguage] ?? ""
            return .answer(200, [.cacheControl: "max-age=60", .vary: "Accept-Language"], body: Data(language.utf8))
        }
        for language in ["de", "en", "de", "en"] {
            let response = try await lab.cache.response(for: request("/style.json", [.acceptLanguage: language]))
            #expect(text(response) == language)
        }
        #expect(lab.transport.count == 2)
    }

    @Test
    func whoOnlyWantsWhatIsStoredAsksNobody() async throws {
        let lab = try CacheLab()
        let only = request("/style.json", [.cacheControl: "only-if-cached, max-stale"])
        #expect(try await lab.cache.response(for: only) == nil)
        #expect(lab.transport.count == 0)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 600)
        let stale = try await lab.cache.response(for: only)
        #expect(stale?.origin == .stale)
        #expect(text(stale) == "one")
        #expect(lab.transport.count == 1)
    }

    @Test
    func aThousandAskersSendOneRequest() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass()
            return .answer(200, [.cacheControl: "max-age=60"], body: Data("one".utf8))
        }
        let cache = lab.cache
        let request = request()
        try await withThrowingTaskGroup(of: String?.self) { group in
            for _ in 0..<1000 {
                group.addTask {
                    try await cache.response(for: request).map { String(decoding: $0.body, as: UTF8.self) }
                }
            }
            while lab.transport.count == 0 { await Task.yield() }
            latch.open()
            for try await text in group { #expect(text == "one") }
        }
        #expect(lab.transport.count == 1)
        #expect(lab.cache.resources.flights.count == 0)
        #expect(lab.cache.resources.changes.count == 0)
    }

    @Test
    func theLastAskerToLeaveCancelsTheRequest() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass()
            return .answer(200)
        }
        let cache = lab.cache
        let request = request()
        let key = try key(of: request, lab)
        let askers = (0..<3).map { _ in Task { try await cache.response(for: request) } }
        // One who comes after the others have left would ask anew.
        await until { lab.cache.resources.flights.followers(of: key) == 2 && latch.waiting == 1 }
        for asker in askers { asker.cancel() }
        for asker in askers { await #expect(throws: CancellationError.self) { try await asker.value } }
        while lab.cache.resources.drivers.count > 0 || lab.transport.active > 0 { await Task.yield() }
        #expect(lab.transport.count == 1)
        #expect(lab.transport.cancelled == 1)
        #expect(lab.cache.resources.flights.count == 0)
        #expect(lab.cache.resources.changes.count == 0)
    }

    @Test
    func closingTheCacheEndsThoseWhoWait() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass()
            return .answer(200)
        }
        let cache = lab.cache
        let request = request()
        let asker = Task { try await cache.response(for: request) }
        while lab.transport.active == 0 { await Task.yield() }
        try lab.cache.close()
        do {
            _ = try await asker.value
            Issue.record("an answer came from a closed cache")
        } catch { #expect((error as? TileCacheError)?.code == .closed) }
        await #expect(throws: TileCacheError.self) { try await cache.response(for: request) }
        while lab.transport.active > 0 { await Task.yield() }
    }

    @Test
    func whatIsStaleAndMayWaitIsRefreshedBehindItsAsker() async throws {
        let lab = try CacheLab()
        lab.transport.answer(
            .answer(200, [.cacheControl: "max-age=60, stale-while-revalidate=600"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("two")))
        let stale = try await lab.cache.response(for: request())
        #expect(stale?.origin == .stale)
        #expect(text(stale) == "one")
        while lab.cache.resources.drivers.count > 0 { await Task.yield() }
        #expect(text(try await lab.cache.response(for: request())) == "two")
        #expect(lab.transport.count == 2)
    }

    @Test
    func redirectionsAreFollowedAndLeaveSecretsBehind() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            switch request.head.authority {
            case "tiles.example":
                .answer(301, [.location: "https://cdn.example/s.json", .cacheControl: "max-age=600"])
            default: .answer(200, [.cacheControl: "max-age=600"], body: Data("there".utf8))
            }
        }
        let asked = request("/style.json", [.authorization: "Bearer x", .accept: "application/json"])
        let response = try await lab.cache.response(for: asked)
        #expect(text(response) == "there")
        #expect(response?.request.authority == "cdn.example")
        let last = lab.transport.requests.last
        #expect(last?.head.headerFields[.authorization] == nil)
        #expect(last?.head.headerFields[.accept] == "application/json")
        _ = try await lab.cache.response(for: asked)
        #expect(lab.transport.count == 2)

        lab.transport.answer(.answer(302, [.location: "http://tiles.example/plain"]))
        await #expect(throws: TileCacheError.self) { try await lab.cache.response(for: request("/b")) }
        lab.transport.answer(.answer(302, [.location: "/again"]))
        await #expect(throws: TileCacheError.self) { try await lab.cache.response(for: request("/again")) }
    }

    @Test
    func aRangeIsCutOutOfWhatIsStored() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""], body: body("0123456789")))
        _ = try await lab.cache.response(for: request())
        let range = try #require(HTTPField.Name("Range"))
        let part = try await lab.cache.response(for: request("/style.json", [range: "bytes=2-4"]))
        #expect(part?.head.status == .partialContent)
        #expect(text(part) == "234")
        var head = request()
        head.method = .head
        let answer = try await lab.cache.response(for: head)
        #expect(answer?.origin == .stored)
        #expect(answer?.body.isEmpty == true)
        #expect(lab.transport.count == 1)
    }

    @Test
    func onAFullDiskTheAnswerComesAndSaysThatItIsNotStored() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        let response = try await lab.cache.response(for: request())
        #expect(text(response) == "one")
        #expect(response?.notStored != nil)
        #expect(lab.events.count == 1)
        lab.files.fail(nil)
        #expect(try await lab.cache.response(for: request())?.origin == .server)
        #expect(try await lab.cache.response(for: request())?.origin == .stored)
    }

    @Test
    func queriesAndFieldsAreNeverWrittenDown() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .vary: "Cookie"], body: body("one")))
        _ = try await lab.cache.response(
            for: request("/s?key=SECRET1", [.cookie: "SECRET2", .authorization: "SECRET3"]))
        for (name, bytes) in lab.bytesOnDisk() {
            let text = String(decoding: bytes, as: UTF8.self)
            #expect(!text.contains("SECRET") && !name.contains("SECRET"), "\(name)")
        }
        #expect(
            try await lab.cache.response(
                for: request("/s?key=SECRET1", [.cookie: "SECRET2", .authorization: "SECRET3"]))?.origin == .stored)
        #expect(try await lab.cache.response(for: request("/s?key=SECRET4", [.cookie: "SECRET2"]))?.origin == .server)
    }

    @Test(arguments: [
        HTTPRequest(method: .post, scheme: "https", authority: "a", path: "/"),
        HTTPRequest(method: .get, scheme: "ftp", authority: "a", path: "/"),
        HTTPRequest(method: .get, scheme: "https", authority: nil, path: "/"),
        HTTPRequest(method: .get, scheme: "https", authority: "user:word@a", path: "/"),
        HTTPRequest(method: .get, scheme: "https", authority: "a/b", path: "/"),
        HTTPRequest(method: .get, scheme: "https", authority: "a", path: "no"),
        HTTPRequest(method: .get, scheme: "https", authority: "a", path: "/a b"),
    ])
    func whatCannotBeSentIsRefused(_ request: HTTPRequest) async throws {
        let lab = try CacheLab()
        do {
            _ = try await lab.cache.response(for: request)
            Issue.record("\(request) was accepted")
        } catch { #expect((error as? TileCacheError)?.code == .invalidRequest) }
        #expect(lab.transport.count == 0)
    }

    @Test
    func aURLIsAskedForAsItIsWritten() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        let url = try #require(URL(string: "https://maps.example:443/fonts/Open%20Sans/0-255.pbf?a=b#c"))
        #expect(text(try await lab.cache.response(for: url)) == "one")
        #expect(lab.transport.paths == ["/fonts/Open%20Sans/0-255.pbf?a=b"])
        let same = try #require(URL(string: "https://MAPS.example/fonts/Open%20Sans/0-255.pbf?a=b"))
        #expect(try await lab.cache.response(for: same)?.origin == .stored)
    }

    /// Between two servers, and between a server and its plain twin, nothing is shared.
    @Test
    func equalPathsOfTwoServersAreTwoResources() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            .answer(
                200, [.cacheControl: "max-age=60"],
                body: Data("\(request.head.scheme ?? "")-\(request.head.authority ?? "")".utf8))
        }
        for (scheme, host) in [("https", "a"), ("http", "a"), ("https", "b"), ("https", "a:8443"), ("https", "a")] {
            let request = HTTPRequest(method: .get, scheme: scheme, authority: host, path: "/x")
            #expect(text(try await lab.cache.response(for: request)) == "\(scheme)-\(host)")
        }
        #expect(lab.transport.count == 4)
    }
}
