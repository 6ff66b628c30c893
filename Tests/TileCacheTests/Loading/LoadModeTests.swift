import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct LoadModeTests {
    @Test func standardServesAFreshTileWithoutARequest() async throws {
        let lab = try CacheLab()
        #expect(try await lab.prime()?.origin == .network)
        #expect(try await lab.load()?.origin == .disk)
        let again = try #require(try await lab.load())
        #expect(again.origin == .memory && again.data == Picture.png(1) && again.etag == "\"a\"")
        #expect(again.freshUntil == lab.clock.now.adding(seconds: 60))
        #expect(lab.transport.count == 1)
    }

    @Test func withoutAMemoryTierItComesFromDisk() async throws {
        let lab = try CacheLab { $0.store.memoryTierBytes = 0 }
        try await lab.prime()
        for _ in 0..<3 { #expect(try await lab.load()?.origin == .disk) }
    }

    @Test func standardRevalidatesAStaleTile() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 60)
        lab.transport.answer(.answer(304, [.eTag: "\"a\""]))
        let tile = try #require(try await lab.load())
        #expect(tile.origin == .revalidated && tile.data == Picture.png(1))
        #expect(lab.transport.requests[1].head.headerFields[.ifNoneMatch] == "\"a\"")
        #expect(try await lab.load()?.origin.isCached == true)
        #expect(lab.transport.count == 2)
    }

    @Test func noCacheAsksBeforeEveryUse() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "no-cache, max-age=60", .eTag: "\"a\""])
        lab.transport.answer(.answer(304))
        #expect(try await lab.load()?.origin == .revalidated)
        #expect(try await lab.load()?.origin == .revalidated)
        #expect(lab.transport.count == 3)
    }

    @Test func cacheThenServerTakesWhatIsThereHoweverOld() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.clock.advance(seconds: 1000)
        #expect(try await lab.load(1, .cacheThenServer)?.origin == .stale(.offline))
        #expect(lab.transport.count == 1)
        #expect(try await lab.load(2, .cacheThenServer)?.origin == .network)
    }

    @Test func serverThenCacheAsksEvenForAFreshTileAndFallsBack() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.transport.answer(.answer(304, [.eTag: "\"a\""]))
        #expect(try await lab.load(1, .serverThenCache)?.origin == .revalidated)
        #expect(lab.transport.requests[1].head.headerFields[.ifNoneMatch] == "\"a\"")
        lab.transport.goOffline()
        #expect(try await lab.load(1, .serverThenCache)?.origin.isCached == true)
        lab.clock.advance(seconds: 1000)
        #expect(try await lab.load(1, .serverThenCache)?.origin == .stale(.error))
    }

    @Test func cacheOnlySendsNothing() async throws {
        let lab = try CacheLab()
        try await lab.prime(1, [.cacheControl: "max-age=60, must-revalidate"])
        #expect(try await lab.load(1, .cacheOnly)?.origin.isCached == true)
        lab.clock.advance(seconds: 1000)
        #expect(try await lab.load(1, .cacheOnly)?.origin == .stale(.offline))
        #expect(try await lab.load(2, .cacheOnly) == nil)
        #expect(lab.transport.count == 1)
    }

    @Test func serverOnlyReadsAndStoresNothing() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=600"], body: Picture.png(2)))
        let before = lab.bytesOnDisk()
        for x in [1, 2] {
            let tile = try #require(try await lab.load(x, .serverOnly))
            #expect(tile.origin == .network && tile.data == Picture.png(2))
        }
        #expect(lab.transport.requests.suffix(2).allSatisfy { $0.head.headerFields[.ifNoneMatch] == nil })
        #expect(lab.bytesOnDisk() == before)
        #expect(try await lab.load(2, .cacheOnly) == nil)
        lab.transport.goOffline()
        #expect(await lab.failure(1, .serverOnly, from: try lab.source { $0.attempts = 1 })?.code == .noAnswer)
    }

    @Test func aTileOutsideTheZoomsIsAnErrorWithoutARequest() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.zooms = 3...10 }
        for (z, x) in [(2, 0), (11, 0), (29, 0), (-1, 0), (5, 32), (5, -1)] {
            do {
                _ = try await lab.cache.tile(source, z: z, x: x, y: 0)
                Issue.record("\(z)/\(x)/0 was found")
            } catch let error as TileCacheError { #expect(error.code == .outOfBounds) }
        }
        // Nor by a key that was made without asking the source.
        #expect(
            await code { try await lab.cache.tile(source, TileKey(source: "lab", z: 12, x: 1, y: 1)) } == .outOfBounds)
        #expect(lab.transport.count == 0)
    }

    /// Else the one source's tile would be stored under the other's key.
    @Test func aKeyOfAnotherSourceIsRefused() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        #expect(
            await code { try await lab.cache.tile(source, TileKey(source: "other", z: 1, x: 1, y: 1)) } == .outOfBounds)
        #expect(lab.transport.count == 0)
    }

    private func code(_ body: () async throws -> CachedTile?) async -> TileCacheError.Code? {
        do {
            _ = try await body()
            return nil
        } catch { return (error as? TileCacheError)?.code }
    }

    // MARK: Local files

    @Test func filesAreReadAsTheyAreAndNeverStored() async throws {
        let lab = try CacheLab()
        let folder = NSTemporaryDirectory() + "tile-cache-files-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try FileManager.default.createDirectory(atPath: folder + "/12/6/2.png", withIntermediateDirectories: true)
        for x in 1...5 {
            try FileManager.default.createDirectory(atPath: folder + "/12/\(x)", withIntermediateDirectories: true)
        }
        func write(_ x: Int, _ data: Data) throws {
            try data.write(to: URL(fileURLWithPath: folder + "/12/\(x)/2.png"))
        }
        try write(1, Picture.png(1))
        try write(2, Data("<html>".utf8))
        try write(3, Picture.png(3, size: 2000))
        try FileManager.default.createSymbolicLink(
            atPath: folder + "/12/4/2.png", withDestinationPath: folder + "/12/3/2.png")
        try FileManager.default.createSymbolicLink(atPath: folder + "/12/5/2.png", withDestinationPath: "/dev/zero")
        let source = try lab.source("lab", "file://" + folder + "/{z}/{x}/{y}.png") { $0.bodyLimit = 1000 }
        let before = lab.bytesOnDisk()
        let tile = try #require(try await lab.load(1, from: source))
        #expect(tile.origin == .disk && tile.data == Picture.png(1))
        #expect(await lab.failure(2, from: source)?.code == .badBody)
        #expect(await lab.failure(3, from: source)?.code == .badBody)
        #expect(await lab.failure(4, from: source)?.code == .badBody)
        #expect(await lab.failure(5, from: source)?.code == .badBody)
        #expect(try #require(try await lab.load(6, from: source)).isAbsent)
        #expect(try #require(try await lab.load(7, from: source)).isAbsent)
        #expect(try await lab.load(1, .cacheOnly, from: source) == nil)
        #expect(lab.transport.count == 0 && lab.bytesOnDisk() == before)
    }
}
