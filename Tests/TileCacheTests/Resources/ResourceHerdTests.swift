import Foundation
import HTTPCaching
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

/// Many who ask for one resource at once: what becomes of one request is the outcome for all where they are one app.
@Suite(.timeLimit(.minutes(60)))
struct ResourceHerdTests: ResourceSuite {
    private func herd(
        _ lab: CacheLab, _ asked: HTTPRequest, _ script: @escaping ScriptedTransport.Script
    ) async throws -> [Result<CachedResponse?, any Error>] {
        try await herd(lab, asked, others: Array(repeating: asked, count: 15), script)
    }

    private func failure(_ result: Result<CachedResponse?, any Error>) -> TileCacheError? {
        if case .failure(let error) = result { error as? TileCacheError } else { nil }
    }

    @Test
    func aDeadServerIsAskedOnceByAllWhoWait() async throws {
        let lab = try CacheLab()
        let results = try await herd(lab, request()) { _ in throw TransportError(.timeout, "no answer in time") }
        #expect(lab.transport.count == 1)
        for result in results {
            #expect(failure(result)?.code == .noAnswer)
            #expect((failure(result)?.cause as? TransportError)?.code == .timeout)
            #expect(failure(result)?.message.contains("no answer in time") == true)
        }
    }

    @Test
    func aDeadServerIsAskedOnceAndEachGetsWhatIsStale() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: body("one")))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 100)
        let results = try await herd(lab, request()) { _ in throw TransportError(.connection, "no route") }
        #expect(lab.transport.count == 2)
        for result in results {
            #expect(text(try result.get()) == "one")
            #expect(try result.get()?.origin == .stale)
            #expect(try result.get()?.notStored == nil)
        }
    }

    @Test
    func inASharedCacheEachAsksADeadServerByItself() async throws {
        let lab = try CacheLab { $0.isShared = true }
        let asked = request()
        let results = try await herd(lab, asked, others: [asked, asked]) { _ in
            throw TransportError(.malformed, "no HTTP")
        }
        #expect(results.allSatisfy { failure($0)?.code == .noAnswer })
        #expect(lab.transport.count == 3)
    }

    /// Whoever waits for a host that is left alone is told until when.
    @Test
    func allWhoWaitHearUntilWhenAHostIsLeftAlone() async throws {
        let lab = try CacheLab()
        let asked = request()
        let results = try await herd(lab, asked) { _ in .answer(429, [.retryAfter: "600"]) }
        // A refusal is its asker's own: the others ask, and the host is left alone by then.
        #expect(lab.transport.count == 1)
        #expect(try results[0].get()?.head.status.code == 429)
        for result in results.dropFirst() {
            #expect(failure(result)?.code == .waiting)
            #expect(failure(result)?.retryAfter != nil)
        }
    }

    @Test
    func aFailureByTheLimitOfAnotherCallerIsNotOnesOwn() async throws {
        let lab = try CacheLab()
        let asked = request()
        let results = try await herd(lab, asked, others: [asked, asked], bodyLimit: 2) { request in
            guard request.bodyLimit > 3 else { throw TransportError(.bodyTooLarge, "more than 2 bytes") }
            return .answer(200, [.cacheControl: "max-age=60"], body: Data("one".utf8))
        }
        #expect(failure(results[0])?.code == .noAnswer)
        for result in results.dropFirst() { #expect(text(try result.get()) == "one") }
    }

    @Test(arguments: ["no-cache", "max-age=0", "no-cache, private"])
    func anAnswerThatMustNotBeUsedAgainUnaskedIsForAllWhoWaited(_ control: String) async throws {
        let lab = try CacheLab()
        let number = Locked(0)
        let answer: ScriptedTransport.Script = { _ in
            let next = number.withLock { number in
                number += 1
                return number
            }
            return .answer(200, [.cacheControl: control, .eTag: "\"\(next)\""], body: Data("\(next)".utf8))
        }
        let results = try await herd(lab, request(), answer)
        #expect(lab.transport.count == 1)
        for result in results {
            #expect(text(try result.get()) == "1")
            #expect(try result.get()?.origin == .server)
            #expect(try result.get()?.notStored == nil)
        }
        #expect(text(try await lab.cache.response(for: request())) == "2", "asked again the next time")
    }

    @Test
    func aConfirmationOfWhatMustBeConfirmedIsForAllWhoWaited() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "no-cache", .eTag: "\"a\""], body: body("one")))
        _ = try await lab.cache.response(for: request())
        let results = try await herd(lab, request()) { _ in .answer(304, [.eTag: "\"a\""]) }
        #expect(lab.transport.count == 2)
        for result in results { #expect(text(try result.get()) == "one") }
    }

    /// Each of them would have been answered by its server, which may look at any field.
    @Test
    func anAnswerThatMustNotBeUsedAgainUnaskedIsForEqualRequestsOnly() async throws {
        let lab = try CacheLab()
        let asked = (0..<4).map { request("/me", [.authorization: "user\($0)"]) }
        let results = try await herd(lab, asked[0], others: Array(asked.dropFirst())) { request in
            .answer(
                200, [.cacheControl: "no-cache", .eTag: "\"a\""],
                body: Data((request.head.headerFields[.authorization] ?? "").utf8))
        }
        for (number, result) in results.enumerated() { #expect(text(try result.get()) == "user\(number)") }
    }

    /// RFC 9111 §5.2.2.5: such an answer is for no other request.
    @Test
    func whatMustNotBeStoredIsForItsAskerAlone() async throws {
        let lab = try CacheLab()
        let asked = request()
        let results = try await herd(lab, asked, others: [asked, asked]) { _ in
            .answer(200, [.cacheControl: "no-store"], body: Data("mine".utf8))
        }
        #expect(lab.transport.count == 3)
        for result in results { #expect(text(try result.get()) == "mine") }
    }

    // MARK: Why it is not stored

    @Test
    func onAFullDiskAllWhoWaitedHearThatItIsNotStored() async throws {
        let lab = try CacheLab()
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        let results = try await herd(lab, request()) { _ in
            .answer(200, [.cacheControl: "max-age=60"], body: Data("one".utf8))
        }
        #expect(lab.transport.count == 1)
        for result in results {
            #expect(text(try result.get()) == "one")
            #expect(try result.get()?.notStored != nil)
        }
        #expect(lab.events.count == 1)
    }

    @Test
    func aBodyThatIsTooLargeToBeStoredIsForAllWhoWaitedAndSaysSo() async throws {
        let lab = try CacheLab()
        let large = Data(count: ResourceParts.storedBodyBytes + 1)
        let asked = request()
        let results = try await herd(lab, asked, others: [asked, asked], bodyLimit: 100 << 20) { _ in
            .answer(200, [.cacheControl: "max-age=60"], body: large)
        }
        #expect(lab.transport.count == 1)
        for result in results {
            #expect(try result.get()?.body.count == large.count)
            #expect((try result.get()?.notStored as? TileCacheError)?.code == .notStored)
        }
        #expect(try await lab.cache.response(for: request("/style.json", [.cacheControl: "only-if-cached"])) == nil)
    }

    @Test
    func anAnswerOlderThanWhatIsStoredSaysThatAndNotThatItIsTooLarge() async throws {
        let lab = try CacheLab()
        func answer(_ ago: Int, _ text: String) -> TransportResponse {
            let date = HTTPDate(seconds: lab.clock.now.seconds - Int64(ago)).description
            return .answer(200, [.cacheControl: "max-age=60", .date: date], body: body(text))
        }
        lab.transport.answer(answer(0, "new"))
        _ = try await lab.cache.response(for: request())
        lab.clock.advance(seconds: 100)
        let old = answer(200, "old")
        let results = try await herd(lab, request()) { _ in old }
        #expect(lab.transport.count == 2)
        for result in results {
            #expect(text(try result.get()) == "old")
            let why = try #require(try result.get()?.notStored as? TileCacheError)
            #expect(why.code == .notStored && why.message.contains("older"))
        }
    }
}
