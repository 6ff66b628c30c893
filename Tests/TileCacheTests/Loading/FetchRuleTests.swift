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

/// Single rules of fetching, each once broken.
@Suite(.timeLimit(.minutes(60)))
struct FetchRuleTests {
    // MARK: The hook

    /// Whether it heeds being cancelled or not.
    @Test(arguments: [true, false])
    func aHookThatHangsEndsWithTheTimeout(heedsCancelling: Bool) async throws {
        let lab = try CacheLab()
        let door = Latch()
        let source = try lab.source {
            $0.timeout = .seconds(30)
            $0.prepare = { _, _ in
                if heedsCancelling { return try await door.pass() }
                await Task { try? await door.pass() }.value
            }
        }
        let task = Task { await lab.failure(from: source) }
        await until { lab.clock.sleepers == 1 && door.waiting == 1 }
        lab.clock.advance(seconds: 29)
        #expect(lab.clock.sleepers == 1)
        lab.clock.advance(seconds: 1)
        let failure = try #require(await task.value)
        #expect(failure.code == .hookFailed && failure.message.contains("30"), "\(failure)")
        #expect(lab.transport.count == 0)
        door.open()
        lab.transport.answer(.answer(200))
        #expect(try await lab.load(from: source)?.origin == .network)
        await until { lab.clock.sleepers == 0 }
    }

    @Test func aCallerWhoLeavesCancelsTheHook() async throws {
        let lab = try CacheLab()
        let door = Latch()
        let source = try lab.source { $0.prepare = { _, _ in try await door.pass() } }
        let task = Task { try await lab.load(from: source) }
        await until { door.waiting == 1 }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        await until { door.waiting == 0 && lab.clock.sleepers == 0 && lab.cache.flights.count == 0 }
    }

    // MARK: What the server says of errors

    @Test func staleIfErrorOfZeroForbidsAStaleTileAfterAnError() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        try await lab.prime(1, [.cacheControl: "max-age=60, stale-if-error=0"])
        try await lab.prime(2, [.cacheControl: "max-age=60"])
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(500))
        #expect(await lab.failure(1, from: source)?.status == 500)
        // Who says nothing leaves it to the source's own rule.
        #expect(try await lab.load(2, from: source)?.origin == .stale(.error))
        // It is about errors: where nobody answers, a cache may serve what it has (RFC 9111 §4.2.4).
        lab.cache.forgetFailures()
        lab.transport.goOffline()
        #expect(try await lab.load(1, from: source)?.origin == .stale(.error))
    }

    /// The server's clock is ten minutes ahead, then ten behind.
    @Test(arguments: ["22:23:20", "22:03:20"])
    func aRetryAfterDateCountsFromTheAnswersDate(time: String) async throws {
        let lab = try CacheLab()
        let later = time.replacingOccurrences(of: ":20", with: ":50")
        lab.transport.answer(
            .answer(
                503, [.date: "Tue, 14 Nov 2023 \(time) GMT", .retryAfter: "Tue, 14 Nov 2023 \(later) GMT"]))
        #expect(await lab.failure(from: try lab.source { $0.attempts = 1 })?.retryAfter == .seconds(30))
    }

    // MARK: Overzoom

    struct NoPicture: Error {}

    /// A cache whose magnifier takes pictures by number, and none with the number 9.
    private func overzoomLab() throws -> (CacheLab, TileSource) {
        let lab = try CacheLab { configuration in
            configuration.magnifier = { ancestor, overzoom in
                if ancestor == Picture.png(9) { throw NoPicture() }
                return OverzoomLoadTests.picture(ancestor, overzoom)
            }
        }
        let source = try lab.source {
            $0.zooms = 0...12
            $0.overzoom = OverzoomRules(levels: 3)
            $0.attempts = 1
        }
        return (lab, source)
    }

    /// One of which no picture can be made, and one that the server sends as a page.
    @Test(arguments: [Picture.png(9), Data("<html>".utf8)])
    func aDamagedAncestorGivesWayToTheNextOne(body: Data) async throws {
        let (lab, source) = try overzoomLab()
        let hour: HTTPFields = [.cacheControl: "max-age=3600", .contentType: "image/png"]
        lab.transport.script { request in
            request.head.path == "/12/0/0.png" ? .answer(200, hour, body: body) : .answer(200, hour)
        }
        for _ in 0..<2 {
            let tile = try #require(try await lab.cache.tile(source, z: 13, x: 0, y: 0))
            #expect(tile.origin == .overzoomed && tile.data == Picture.png(1) + Data("2 0 0".utf8))
        }
        #expect(lab.transport.paths == ["/12/0/0.png", "/11/0/0.png"])
        // With no sound one within reach, the nearest one's damage is the answer.
        lab.transport.answer(.answer(200, hour, body: Picture.png(9)))
        do {
            _ = try await lab.cache.tile(source, z: 15, x: 32, y: 32)
            Issue.record("made of what is no picture")
        } catch let error as TileCacheError { #expect(error.code == .badBody && error.cause is NoPicture) }
    }

    // MARK: A full disk

    @Test func aFullDiskDoesNotMakeEveryLookARequest() async throws {
        let lab = try CacheLab()
        let full = SimulatedFileSystem.Fault(at: 0, number: ENOSPC, scope: .space, persistent: true)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=3600", .eTag: "\"a\""]))
        lab.files.fail(full)
        #expect(try await lab.load()?.origin == .network)
        for _ in 0..<5 { #expect(try await lab.load()?.data == Picture.png(1)) }
        #expect(try await lab.load(1, .cacheOnly)?.origin == .memory)
        #expect(try await lab.load()?.origin == .memory)
        #expect(lab.transport.count == 1 && lab.events.count == 1)
        // Absence too.
        lab.transport.answer(.answer(404))
        for _ in 0..<5 { #expect(try await lab.load(2)?.isAbsent == true) }
        #expect(lab.transport.count == 2)
        // Not for ever: it may be possible to store it later.
        lab.clock.advance(seconds: 300)
        lab.files.fail(nil)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=3600"], body: Picture.png(2)))
        #expect(try await lab.load()?.data == Picture.png(2))
        #expect(try await lab.load(1, .cacheOnly)?.data == Picture.png(2))
        #expect(lab.transport.count == 3)
    }

    @Test func onAFullDiskAConfirmationCountsAsLongAsItSays() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 61)
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        lab.transport.answer(.answer(304, [.cacheControl: "max-age=60"]))
        #expect(try await lab.load()?.origin == .revalidated)
        for _ in 0..<5 { #expect(try await lab.load()?.origin == .memory) }
        #expect(lab.transport.count == 2)
        // A newer tile that cannot be stored wins over the older one that is.
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"b\""], body: Picture.png(2)))
        #expect(try await lab.load()?.origin == .network)
        #expect(try await lab.load()?.data == Picture.png(2))
        // And it is asked about by its own tag, and confirmed as itself.
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(304, [.cacheControl: "max-age=60"]))
        #expect(try await lab.load()?.data == Picture.png(2))
        #expect(lab.transport.requests.last?.head.headerFields[.ifNoneMatch] == "\"b\"")
        lab.clock.advance(seconds: 61)
        lab.files.fail(nil)
        #expect(try await lab.load()?.data == Picture.png(2))
        #expect(try await lab.load(1, .cacheOnly)?.data == Picture.png(2))
        #expect(lab.transport.count == 5)
    }

    @Test func aTileLargerThanTheWholeCapacityIsNotAskedForAtEveryLook() async throws {
        let lab = try CacheLab { $0.store.capacity = 65_536 }
        lab.transport.answer(
            .answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""], body: Picture.png(1, size: 200_000)))
        for _ in 0..<5 { #expect(try await lab.load()?.data?.count == 200_000) }
        #expect(lab.transport.count == 1)
        guard case .notStored(_, let error)? = lab.events.first else {
            Issue.record("no event")
            return
        }
        #expect("\(error)".contains("capacity"), "\(error)")
        #expect(lab.cache.held.count == 1)
        // Confirmed, it is still no tile of the store.
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(304, [.cacheControl: "max-age=60"]))
        for _ in 0..<5 { #expect(try await lab.load()?.data?.count == 200_000) }
        #expect(lab.transport.count == 2)
    }

    /// It was held in memory for five minutes, where no other process could expire it, and the error said to raise the whole capacity.
    @Test func aTileLargerThanItsSourcesCapacityIsNotHeldAndTheErrorNamesTheSource() async throws {
        let source = try SourceName("lab")
        let lab = try CacheLab { $0.store.sourceCapacities = [source: 65_536] }
        for _ in 0..<2 {
            lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"], body: Picture.png(1, size: 200_000)))
            let tile = try #require(try await lab.load())
            #expect(tile.data?.count == 200_000 && tile.origin == .network)
            #expect(lab.cache.held.count == 0)
        }
        #expect(lab.transport.count == 2)
        guard case .notStored(_, let error)? = lab.events.first else {
            Issue.record("no event")
            return
        }
        let words = "\(error)"
        #expect(words.contains("source lab") && !words.contains("whole"), "\(words)")
    }
}
