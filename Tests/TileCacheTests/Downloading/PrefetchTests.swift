import HTTPTypes
import Testing
import TileStore

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct PrefetchTests {
    @Test func aPlanHasEachTileOnceAndKeepsToTheZooms() throws {
        let center = try TileAddress(z: 5, x: 0, y: 0)
        let tiles = PrefetchPlan(rings: 0...2, parents: 3, nextZoom: true).tiles(around: center, zooms: 3...5)
        #expect(Set(tiles).count == tiles.count)
        #expect(tiles.allSatisfy { (3...5).contains($0.z) })
        // Around the north-west corner: five columns, across the antimeridian, and three rows.
        #expect(tiles.filter { $0.z == 5 }.count == 15)
        #expect(tiles.contains(try TileAddress(z: 5, x: 30, y: 2)))
        // What is further out comes first.
        #expect(tiles.first?.z == 4)
    }

    @Test func aPlanIsBounded() throws {
        let center = try TileAddress(z: 20, x: 1000, y: 1000)
        #expect(PrefetchPlan(rings: 0...100_000).tiles(around: center, zooms: 0...28).count == 4096)
        let alone = PrefetchPlan(rings: 0...0, parents: -5, nextZoom: false)
        #expect(alone.tiles(around: center, zooms: 0...28).count == 1)
    }

    @Test func whatIsThereIsNotAskedForAndBudgetsHold() async throws {
        let lab = try CacheLab()
        lab.transport.script { _ in .answer(200, [.cacheControl: "max-age=60"], body: Picture.png(1, size: 1000)) }
        let source = try lab.source()
        let center = try TileAddress(z: 12, x: 100, y: 100)
        _ = try await lab.cache.tile(source, z: 12, x: 100, y: 100)
        let first = try await lab.cache.prefetch(source, around: center, requestBudget: 10).report()
        #expect(first.reachedBudget && lab.transport.count <= 1 + 11)
        let all = try await lab.cache.prefetch(source, around: center, requestBudget: 1000).report()
        #expect(all.progress.isComplete && all.progress.unchanged > 0)
        #expect(Set(lab.transport.paths).count == lab.transport.count)
        let bytes = try await lab.cache.prefetch(
            source, around: TileAddress(z: 12, x: 900, y: 900), byteBudget: 5000, requestBudget: 1000
        ).report()
        // Two at a time: one more may be under way when the budget is used up.
        #expect(bytes.reachedBudget && bytes.progress.bytes <= 6000)
    }

    @Test func itFetchesUnderTheKeysThatAMapAsksFor() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
        let source = try lab.source { $0.format = "png" }
        // A screen with two pixels a point, and a template that knows one scale.
        let center = try TileAddress(z: 12, x: 100, y: 100, scale: 2)
        _ = try await lab.cache.prefetch(source, around: center, plan: PrefetchPlan(rings: 0...0)).report()
        let before = lab.transport.count
        #expect(try await lab.cache.tile(source, z: 12, x: 100, y: 100, scale: 2)?.origin.isCached == true)
        #expect(lab.transport.count == before)
    }

    @Test func theLongestStaleAreRefreshedFirst() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        for x in 0..<6 {
            lab.transport.answer(.answer(200, [.cacheControl: "max-age=\(100 - x)", .eTag: "\"a\""]))
            _ = try await lab.load(x)
        }
        lab.clock.advance(seconds: 1000)
        lab.transport.answer(.answer(304, [.cacheControl: "max-age=60", .eTag: "\"a\""]))
        let report = try await lab.cache.refreshStale(source, limit: 3).report()
        #expect(report.progress.total == 3 && report.progress.revalidated == 3)
        #expect(Set(lab.transport.paths.suffix(3)) == ["/12/5/2.png", "/12/4/2.png", "/12/3/2.png"])
        #expect(try await lab.cache.refreshStale(source).report().progress.revalidated == 3)
        #expect(try await lab.cache.refreshStale(source).report().progress.total == 0)
    }

    /// What is told is told while the old bytes are still there; and where it cannot be told, they stay.
    @Test(arguments: [true, false])
    func otherBytesAreToldBeforeTheyAreStored(canBeTold: Bool) async throws {
        struct NotTold: Error {}
        let lab = try CacheLab()
        let source = try lab.source()
        lab.transport.script { _ in .answer(200, [.cacheControl: "max-age=60"], body: Picture.png(1, size: 1000)) }
        for x in 0..<3 { _ = try await lab.load(x) }
        let last = try #require(try await lab.load(3))
        let store = lab.cache.store
        let old = try #require(try store.entry(for: last.key)?.blob)
        lab.clock.advance(seconds: 1000)
        lab.transport.script { _ in .answer(200, [.cacheControl: "max-age=60"], body: Picture.png(2, size: 1000)) }
        let told = Locked<[TileKey: BlobDigest?]>([:])
        var options = DownloadOptions.refreshing
        options.beforeStoring = { key, blob in
            #expect(try store.entry(for: key)?.blob == old)
            told.withLock { $0[key] = .some(blob) }
            if !canBeTold { throw NotTold() }
        }
        let report = try await lab.cache.refreshStale(source, options: options).report()
        #expect(report.progress.fetched == (canBeTold ? 4 : 0) && report.progress.failed == (canBeTold ? 0 : 4))
        let all = told.withLock { $0 }
        #expect(all.count == 4)
        for (key, blob) in all {
            #expect(blob != old)
            #expect(try store.entry(for: key)?.blob == (canBeTold ? blob : old))
        }
    }
}
