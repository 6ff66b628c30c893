import Foundation
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct RevalidationTests {
    @Test func a304BringsValidatorsAndExpiryUpToDateAndKeepsTheBlob() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60", .lastModified: "Mon, 13 Nov 2023 10:00:00 GMT"])
        let before = try #require(try lab.store.entry(for: lab.key()))
        lab.clock.advance(seconds: 100)
        lab.transport.answer(
            .answer(
                304,
                [
                    .cacheControl: "max-age=600", .eTag: "\"new\"",
                    .lastModified: "Mon, 13 Nov 2023 10:00:00 GMT",
                ]))
        #expect(try await lab.load()?.etag == "\"new\"")
        let head = lab.transport.requests[1].head
        #expect(head.headerFields[.ifModifiedSince] == "Mon, 13 Nov 2023 10:00:00 GMT")
        let after = try #require(try lab.store.entry(for: lab.key()))
        #expect(after.blob == before.blob && after.metadata.etag == "\"new\"")
        #expect(after.metadata.expires == lab.clock.now.adding(seconds: 600))
        #expect(try lab.store.statistics().blobs == 1)
    }

    @Test func a304ToAnUnconditionalRequestIsAnError() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(304, [.eTag: "\"a\""]))
        #expect(await lab.failure()?.code == .badStatus)
        #expect(await lab.failure(2, .serverOnly)?.code == .badStatus)
        // Stored without a validator: nothing to ask about.
        try await lab.prime(3, [.cacheControl: "max-age=60"])
        lab.clock.advance(seconds: 1_000_000)
        lab.transport.answer(.answer(304))
        #expect(await lab.failure(3)?.code == .badStatus)
        #expect(lab.transport.requests.allSatisfy { $0.head.headerFields[.ifNoneMatch] == nil })
    }

    @Test(arguments: [true, false])
    func a304WhoseEntryIsGoneMeanwhileStillGivesTheTile(blobToo: Bool) async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        let key = try lab.key()
        lab.transport.script { _ in
            if blobToo {
                for (path, _) in lab.bytesOnDisk() where path.hasPrefix("objects/") { lab.disk.remove(path) }
            }
            _ = try? lab.store.remove([key])
            return .answer(304, [.cacheControl: "max-age=60"])
        }
        let tile = try #require(try await lab.load())
        #expect(tile.origin == .revalidated && tile.data == Picture.png(1))
        #expect(try await lab.load()?.data == Picture.png(1))
        #expect(lab.transport.count == 2)
    }

    @Test func a304AfterWhichTheBlobIsMissingLeadsToANewRequest() async throws {
        let lab = try CacheLab { $0.store.memoryTierBytes = 0 }
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        lab.transport.script { _ in
            for (path, _) in lab.bytesOnDisk() where path.hasPrefix("objects/") { lab.disk.remove(path) }
            return .answer(304, [.cacheControl: "max-age=60"])
        }
        #expect(try await lab.load()?.data == Picture.png(1))
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
        #expect(try await lab.load()?.origin == .network)
        #expect(lab.transport.requests[2].head.headerFields[.ifNoneMatch] == nil)
        #expect(try await lab.load()?.origin.isCached == true)
    }

    @Test func anotherTileStoredMeanwhileIsTheOneThatCounts() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        let key = try lab.key()
        lab.transport.script { _ in
            let now = lab.clock.now
            _ = try? lab.store.put(
                Picture.png(9), for: key,
                metadata: TileMetadata(etag: "\"z\"", storedAt: now, expires: now.adding(seconds: 60)))
            return .answer(304)
        }
        #expect(try await lab.load()?.data == Picture.png(9))
        #expect(try await lab.load()?.data == Picture.png(9))
    }

    /// RFC 9111 §4.3.3: what it confirms is not what is here.
    @Test func a304WithAnotherTagLeadsToTheWholeTile() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        lab.transport.script { request in
            request.head.headerFields[.ifNoneMatch] != nil
                ? .answer(304, [.eTag: "\"b\""])
                : .answer(200, [.eTag: "\"b\"", .cacheControl: "max-age=60"], body: Picture.png(2))
        }
        let tile = try #require(try await lab.load())
        #expect(tile.origin == .network && tile.data == Picture.png(2) && lab.transport.count == 3)
        // A server that answers so to everything is not asked for ever.
        lab.clock.advance(seconds: 1_000_000)
        lab.transport.answer(.answer(304, [.eTag: "\"c\""]))
        #expect(await lab.failure()?.code == .badStatus)
        #expect(lab.transport.count == 5)
    }

    @Test func aBodyThatChangedUnderTheSameTagReplacesTheOld() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""], body: Picture.png(2)))
        #expect(try await lab.load()?.data == Picture.png(2))
        let again = try #require(try await lab.load())
        #expect(again.data == Picture.png(2) && again.origin.isCached)
    }

    @Test func a304ThatForbidsStoringRemovesTheTileAndStillGivesIt() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(304, [.cacheControl: "no-store"]))
        #expect(try await lab.load()?.data == Picture.png(1))
        #expect(try await lab.load(1, .cacheOnly) == nil)
    }

    @Test(arguments: [204, 404, 410])
    func absenceIsRememberedForItsOwnTime(status: Int) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(status, body: Data("gone".utf8)))
        let source = try lab.source { $0.lifetimes.absent = .seconds(50) }
        let first = try #require(try await lab.load(from: source))
        #expect(first.isAbsent && first.status == status && first.origin == .network)
        #expect(try #require(try await lab.load(from: source)).isAbsent)
        #expect(lab.transport.count == 1)
        lab.clock.advance(seconds: 50)
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=5"]))
        #expect(try await lab.load(from: source)?.data == Picture.png(1))
    }

    /// An error page's validators say nothing of the tile: a 304 for them would keep it absent for ever.
    @Test func anAbsentTileIsAskedForWithoutConditions() async throws {
        let lab = try CacheLab()
        lab.transport.answer(
            .answer(
                404, [.eTag: "\"page\"", .lastModified: "Mon, 13 Nov 2023 10:00:00 GMT", .cacheControl: "max-age=5"]))
        try await lab.load()
        lab.clock.advance(seconds: 10)
        try await lab.load()
        let fields = lab.transport.requests[1].head.headerFields
        #expect(fields[.ifNoneMatch] == nil && fields[.ifModifiedSince] == nil)
    }

    @Test func aTileThatIsGoneReplacesTheOldOne() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 100)
        lab.transport.answer(.answer(410))
        #expect(try #require(try await lab.load()).isAbsent)
        #expect(try #require(try await lab.load(1, .cacheOnly)).isAbsent)
        #expect(try lab.store.statistics().blobs == 0)
    }
}
