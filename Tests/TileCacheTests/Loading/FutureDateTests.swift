import HTTPTypes
import Testing
import TileStore

@testable import TileCache

/// Servers whose clock is wrong.
///
/// The lab's clock begins at 1 700 000 000, which is Tue, 14 Nov 2023 22:13:20 GMT.
@Suite(.timeLimit(.minutes(60)))
struct FutureDateTests {
    private func fields(_ date: String, _ tag: String = "\"a\"") -> HTTPFields {
        [.date: date, .cacheControl: "max-age=60", .eTag: tag]
    }

    private let inAMonth = "Thu, 14 Dec 2023 22:13:20 GMT"
    private let afterTheFirstExpiry = "Tue, 14 Nov 2023 22:14:21 GMT"

    @Test func oneAnswerWithAFutureDateDoesNotFreezeATile() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, fields(inAMonth))
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(200, fields(afterTheFirstExpiry, "\"b\""), body: Picture.png(2)))
        #expect(try await lab.load()?.data == Picture.png(2))
        let again = try #require(try await lab.load())
        #expect(again.origin.isCached && again.data == Picture.png(2))
        #expect(lab.transport.count == 2)
    }

    @Test func aConfirmationWithARightDateCountsAfterOneWithAFutureDate() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, fields(inAMonth))
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(304, fields(inAMonth)))
        #expect(try await lab.load()?.origin == .revalidated)
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(304, fields("Tue, 14 Nov 2023 22:15:22 GMT")))
        #expect(try await lab.load()?.origin == .revalidated)
        #expect(try await lab.load()?.origin.isCached == true)
        #expect(lab.transport.count == 3)
    }

    /// Caches have such entries from before dates were judged at receipt.
    @Test func aTileThatWasStoredWithAFutureDateIsReplaced() async throws {
        let lab = try CacheLab()
        let now = lab.clock.now
        let frozen = TileMetadata(
            storedAt: now, date: now.adding(seconds: 30 * 86_400), expires: now.adding(seconds: 60))
        _ = try lab.store.put(Picture.png(1), for: lab.key(), metadata: frozen)
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(200, fields(afterTheFirstExpiry), body: Picture.png(2)))
        #expect(try await lab.load()?.origin == .network)
        #expect(try await lab.load()?.origin.isCached == true)
        #expect(lab.transport.count == 1)
    }

    @Test func anOlderAnswerStillDoesNotReplaceANewerOne() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, fields("Tue, 14 Nov 2023 22:13:15 GMT"))
        lab.clock.advance(seconds: 61)
        lab.transport.answer(.answer(200, fields("Tue, 14 Nov 2023 22:13:10 GMT"), body: Picture.png(2)))
        try await lab.load()
        #expect(try await lab.load(1, .cacheOnly)?.data == Picture.png(1))
    }

    /// Otherwise a machine that was set back by a year would refuse its tiles for a year.
    @Test func whatWasStoredInTheFutureOrdersNothing() throws {
        let lab = try CacheLab()
        let now = lab.clock.now
        let later = now.adding(seconds: 365 * 86_400)
        let fromTheFuture = TileMetadata(storedAt: later, date: later, expires: later)
        _ = try lab.store.put(Picture.png(1), for: lab.key(), metadata: fromTheFuture)
        let right = TileMetadata(storedAt: now, date: now, expires: now.adding(seconds: 60))
        let outcome = try lab.store.put(Picture.png(2), for: lab.key(), metadata: right)
        #expect(outcome != .olderThanStored)
    }

    @Test func aClockThatIsAheadIsReportedOnceForEachHost() async throws {
        let lab = try CacheLab()
        // A minute is nothing to report.
        try await lab.prime(1, fields("Tue, 14 Nov 2023 22:14:20 GMT"))
        #expect(lab.events.isEmpty)
        for x in 2...5 { try await lab.prime(x, fields(inAMonth)) }
        let hosts = lab.events.map { if case .dateInFuture(_, let host, _) = $0 { host } else { "\($0)" } }
        #expect(hosts == ["tiles.example"])
        lab.clock.advance(seconds: 3600)
        try await lab.prime(6, fields("Sun, 14 Jan 2024 22:13:20 GMT"))
        #expect(lab.events.count == 2)
    }
}
