import HTTPTypes
import Testing
import TileStore

@testable import TileCache

/// Regions: counted, pinned, kept, given back; and who may be asked for one.
@Suite(.timeLimit(.minutes(60)))
struct RegionDownloadTests {
    private let swiss: RegionShape

    init() throws { swiss = .box(try GeoBox(west: 5.9, south: 45.8, east: 10.5, north: 47.8)) }

    private func serve(_ lab: CacheLab, size: Int = 5000) {
        lab.transport.script { request in
            let number = (request.head.path?.hashValue ?? 0) & 0xFFFF_FFFF
            return .answer(200, [.cacheControl: "max-age=60"], body: Picture.png(number, size: size))
        }
    }

    @Test func aNamedRegionIsPinnedAndSurvivesEviction() async throws {
        let lab = try CacheLab { $0.store.capacity = 40_000 }
        serve(lab)
        let source = try lab.source()
        let coverage = try source.coverage(swiss, zooms: 0...7)
        let report = try await lab.cache.download(source, coverage, named: "swiss").report()
        #expect(report.progress.isComplete && report.progress.failed == 0)
        // Browsing elsewhere fills the rest many times over.
        for x in 0..<64 { _ = try await lab.cache.tile(source, z: 9, x: x, y: 400) }
        let figures = try #require(try await lab.cache.regions().first)
        #expect(figures.region.name == "swiss" && figures.tiles == coverage.tileCount)
        #expect(figures.present == coverage.tileCount)
        let all = try lab.store.statistics()
        #expect(all.allocatedBytes - all.pinnedBytes <= 40_000)
    }

    @Test func removingARegionFreesItsTilesButNotThoseOfAnother() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        let all = try source.coverage(swiss, zooms: 5...8)
        let part = try source.coverage(swiss, zooms: 5...6)
        _ = try await lab.cache.download(source, all, named: "all").report()
        _ = try await lab.cache.download(source, part, named: "part").report()
        let removed = try #require(try await lab.cache.removeRegion("all"))
        #expect(removed.removedEntries == all.tileCount - part.tileCount)
        #expect(removed.freedBytes > 0)
        #expect(try lab.store.statistics().entries == part.tileCount)
        #expect(try await lab.cache.removeRegion("all") == nil)
    }

    @Test func aPinnedTileIsServedOfflineWhateverItsDirectives() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=1, must-revalidate"]))
        let source = try lab.source()
        _ = try await lab.cache.download(source, source.coverage(swiss, zooms: 0...3), named: "swiss").report()
        lab.clock.advance(seconds: 86_400 * 100)
        lab.transport.goOffline()
        let tile = try await lab.cache.tile(source, z: 0, x: 0, y: 0)
        #expect(tile?.origin == .stale(.offline))
    }

    @Test func aRegionAcrossTheAntimeridianComesOnce() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        let fiji = try source.coverage(.box(GeoBox(west: 177, south: -19, east: -178, north: -16)), zooms: 0...8)
        let report = try await lab.cache.download(source, fiji).report()
        #expect(report.progress.fetched == fiji.tileCount && report.progress.isComplete)
        #expect(lab.transport.count == fiji.tileCount)
        #expect(Set(lab.transport.paths).count == fiji.tileCount)
    }

    @Test func anUpdateNeverLeavesAGap() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        lab.transport.script { request in
            .answer(200, [.cacheControl: "max-age=60"], body: Picture.png(1, size: 100))
        }
        let coverage = try source.coverage(swiss, zooms: 0...7)
        _ = try await lab.cache.download(source, coverage, named: "swiss").report()
        lab.clock.advance(seconds: 3600)
        lab.transport.script { request in
            .answer(200, [.cacheControl: "max-age=60"], body: Picture.png(2, size: 100))
        }
        let keys = coverage.tiles().map { TileKey(source: source.name, tile: $0) }
        let download = try await lab.cache.download(source, coverage, named: "swiss")
        while !download.progress.isComplete {
            for key in keys { #expect(try lab.store.read(key)?.data != nil) }
            await Task.yield()
        }
        let report = await download.report()
        #expect(report.progress.fetched == keys.count)
    }

    @Test func hostsWhoseTermsForbidItAreRefusedUnlessNamed() async throws {
        let lab = try CacheLab()
        serve(lab)
        let osm = try lab.source("osm", "https://tile.openstreetmap.org/{z}/{x}/{y}.png")
        let coverage = try osm.coverage(swiss, zooms: 0...2)
        let error = await #expect(throws: TileCacheError.self) {
            _ = try await lab.cache.download(osm, coverage, named: "swiss")
        }
        #expect(error?.code == .forbidden)
        #expect(throws: TileCacheError.self) {
            try lab.cache.prefetch(osm, around: TileAddress(z: 3, x: 4, y: 2))
        }
        #expect(lab.transport.count == 0)
        #expect(try lab.store.regions().isEmpty)
        // One tile that somebody looks at is what the server is for.
        _ = try await lab.cache.tile(osm, z: 0, x: 0, y: 0)
        #expect(lab.transport.count == 1)

        let allowed = try CacheLab { $0.bulkAllowedHosts = ["Tile.OpenStreetMap.org"] }
        serve(allowed)
        #expect(try await allowed.cache.download(osm, coverage).report().progress.isComplete)
    }

    /// The template names a harmless host, and the hook sends the request to another.
    @Test func aHookDoesNotLeadAroundTheTerms() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source { $0.prepare = { request, _ in request.authority = "tile.openstreetmap.org" } }
        let report = try await lab.cache.download(source, source.coverage(swiss, zooms: 0...1)).report()
        #expect(report.progress.failed == report.progress.total)
        #expect(report.failures.first?.error.code == .forbidden)
        #expect(lab.transport.count == 0)
    }

    @Test(arguments: ["https://tile.openstreetmap.org/0/0/0.png", "//TILE.openstreetmap.org.:443/0/0/0.png"])
    func aRedirectionDoesNotEither(location: String) async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            request.head.authority == "tiles.example" ? .answer(302, [.location: location]) : .answer(200)
        }
        let source = try lab.source()
        let report = try await lab.cache.download(source, source.coverage(swiss, zooms: 0...0)).report()
        #expect(report.failures.first?.error.code == .forbidden)
        #expect(lab.transport.requests.allSatisfy { $0.head.authority == "tiles.example" })
        // Somebody who looks at the tile may be sent there.
        lab.cache.forgetFailures()
        #expect(try await lab.cache.tile(source, z: 0, x: 0, y: 0)?.origin == .network)
    }

    @Test func anEstimateIsNearAndItsSamplesAreNotWasted() async throws {
        let lab = try CacheLab()
        serve(lab, size: 3000)
        let source = try lab.source()
        let coverage = try source.coverage(swiss, zooms: 0...10)
        let estimate = try await lab.cache.estimateSize(source, coverage, samples: 30)
        #expect(estimate.tiles == coverage.tileCount && estimate.samples == 30)
        #expect(estimate.bytes == coverage.tileCount * 3000)
        #expect(try lab.store.statistics().entries == 30)
    }

    @Test func aRegionOutsideOfTheSourceIsAnError() async throws {
        let lab = try CacheLab()
        var source = try lab.source()
        source.zooms = 0...5
        #expect(throws: TileCacheError.self) { try source.coverage(swiss, zooms: 8...9) }
        #expect(try source.coverage(swiss, zooms: 4...9).zooms == 4...5)
    }

    @Test func anEstimateDoesNotAskHostsWhoseTermsForbidItEither() async throws {
        let lab = try CacheLab()
        lab.transport.script { request in
            let elsewhere = "https://tile.openstreetmap.org" + (request.head.path ?? "/")
            return request.head.authority == "tiles.example" ? .answer(302, [.location: elsewhere]) : .answer(200)
        }
        let source = try lab.source()
        let error = await #expect(throws: TileCacheError.self) {
            _ = try await lab.cache.estimateSize(source, source.coverage(swiss, zooms: 0...10), samples: 5)
        }
        #expect(error?.code == .forbidden)
        #expect(lab.transport.requests.allSatisfy { $0.head.authority == "tiles.example" })
    }

    /// A download that was cancelled after its last tile was not counted, and called complete what had been evicted.
    @Test(arguments: 0..<10)
    func aLateCancelDoesNotMakeARegionComplete(round: Int) async throws {
        let lab = try CacheLab { $0.store.capacity = 40_000 }
        let clock = lab.clock
        lab.transport.script { request in
            clock.advance(seconds: 1)
            let path = request.head.path ?? ""
            return .answer(
                200, [.cacheControl: "max-age=864000"], body: Picture.png(path.hashValue & 0xFFFFFF, size: 5000))
        }
        let source = try lab.source()
        let world = try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...2)
        let download = try await lab.cache.download(source, world)
        while download.progress.done < download.progress.total, !download.isOver { await Task.yield() }
        download.cancel()
        let report = await download.report()
        #expect(report.verdict != .complete && report.present ?? 21 < 21)
        if case .incomplete(let missing) = report.verdict { #expect(missing == 21 - (report.present ?? 0)) }
    }

    /// All tiles had come, and were not there any more: 100 % was told, and then what is missing.
    @Test func nothingIsWholeBeforeItWasCounted() async throws {
        let lab = try CacheLab { $0.store.capacity = 40_000 }
        let clock = lab.clock
        lab.transport.script { request in
            clock.advance(seconds: 1)
            let path = request.head.path ?? ""
            return .answer(
                200, [.cacheControl: "max-age=864000"], body: Picture.png(path.hashValue & 0xFFFFFF, size: 5000))
        }
        let source = try lab.source()
        let world = try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...2)
        let download = try await lab.cache.download(source, world)
        for await progress in download.updates() { #expect(progress.fraction < 1 && !progress.isComplete) }
        #expect(await download.report().progress.lost > 0)
    }

    /// It went on, asked for all its tiles, pinned none of them and said that all was well.
    @Test func theDownloadOfARegionThatIsRemovedEnds() async throws {
        let lab = try CacheLab()
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let source = try lab.source()
        let world = try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...2)
        let removed = try await lab.cache.download(source, world, named: "world")
        await until { door.waiting == 4 }
        _ = try await lab.cache.removeRegion("world")
        var report = await removed.report()
        #expect(report.stoppedBy?.code == .invalidRegion && report.verdict == .incomplete(missing: 21))

        let replaced = try await lab.cache.download(source, world, named: "world")
        await until { door.waiting == 4 }
        let smaller = try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...1)
        let second = try await lab.cache.download(source, smaller, named: "world")
        report = await replaced.report()
        #expect(report.stoppedBy?.code == .invalidRegion)
        door.open()
        #expect(await second.report().verdict == .complete)
        #expect(try await lab.cache.downloads().isEmpty)
    }
}
