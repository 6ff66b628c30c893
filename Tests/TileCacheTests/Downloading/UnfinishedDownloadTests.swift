import Foundation
import HTTPTypes
import Testing
import TileStoreTesting

@testable import TileCache
@testable import TileStore

/// Downloads of regions that outlive their process: listed, resumed, gone when there is nothing left to do.
@Suite(.timeLimit(.minutes(60)))
struct UnfinishedDownloadTests {
    /// Zooms 0 to 3 of the whole world: 85 tiles.
    private func world(_ source: TileSource, _ zooms: ClosedRange<Int> = 0...3) throws -> TileCoverage {
        try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: zooms)
    }

    /// So few requests that a download does not come to its end.
    private func few(_ requests: Int = 3) -> DownloadOptions {
        var options = DownloadOptions()
        options.requestBudget = requests
        return options
    }

    /// Answers all tiles but those of some columns, which it refuses for good.
    private func serve(_ lab: CacheLab, _ lifetime: String = "max-age=60", refusing refused: String? = nil) {
        lab.transport.script { request in
            let path = request.head.path ?? ""
            if let refused, path.hasPrefix(refused) { return .answer(403) }
            return .answer(200, [.cacheControl: lifetime], body: Picture.png(path.hashValue & 0xFFFF))
        }
    }

    /// Another process with the cache that the lab's process has left.
    private func reopened(_ lab: CacheLab) throws -> TileCache {
        var configuration = lab.cache.configuration
        configuration.store = StoreConfiguration()
        let files = SimulatedFileSystem(lab.disk)
        let store = try TileStore(
            environment: lab.clock.manual.environment(files), configuration: configuration.store)
        return TileCache(
            store: store, transport: lab.transport, configuration: configuration, clock: lab.clock.cacheClock)
    }

    private var planFile: String { "downloads/" + hash(of: "world") + ".json" }
    private func hash(of region: String) -> String {
        Array(region.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }.description.prefix(32).description
    }

    @Test func aCompleteRegionLeavesNothing() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source), named: "world")
        #expect(await download.report().verdict == .complete)
        #expect(try await lab.cache.downloads().isEmpty)
        #expect(lab.disk.names("downloads").isEmpty)
    }

    @Test func aDownloadWithoutANameIsNotKept() async throws {
        let lab = try CacheLab()
        serve(lab, refusing: "/3/")
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source)).report()
        #expect(try await lab.cache.downloads().isEmpty)
    }

    /// The tiles are stale by then, and those that were stored are not asked for all the same.
    @Test func anotherProcessGoesOnAndAsksForNothingThatWasStored() async throws {
        let lab = try CacheLab()
        serve(lab, "max-age=5")
        let source = try lab.source()
        var options = DownloadOptions()
        options.requestBudget = 30
        options.concurrency = 3
        options.attempts = 2
        options.patience = .seconds(77)
        let first = try await lab.cache.download(source, world(source), named: "world", options: options).report()
        #expect(first.reachedBudget && first.progress.fetched == 30)
        lab.store.simulateKill()
        lab.clock.advance(seconds: 86_400)

        let cache = try reopened(lab)
        let unfinished = try #require(try await cache.downloads().first)
        #expect(unfinished.region.name == "world" && unfinished.region.source == source.name)
        #expect(unfinished.region.tileCount == 85 && unfinished.scale == 1 && unfinished.format == nil)
        #expect(unfinished.options.requestBudget == 30 && unfinished.options.concurrency == 3)
        #expect(unfinished.options.attempts == 2 && unfinished.options.patience == .seconds(77))
        let asked = Set(lab.transport.paths)
        let second = try await unfinished.resume(from: source).report()
        #expect(second.progress.unchanged == 30 && second.progress.fetched == 30 && second.reachedBudget)
        #expect(try await cache.downloads().count == 1)
        let third = try await cache.downloads()[0].resume(from: source, options: DownloadOptions()).report()
        #expect(third.verdict == .complete && third.progress.unchanged == 60)
        #expect(lab.transport.count == 85 && Set(lab.transport.paths).count == 85 && asked.count == 30)
        #expect(try await cache.downloads().isEmpty)
    }

    @Test(arguments: [
        NetworkUse.any, .unmetered, NetworkUse(allowsExpensive: true, allowsConstrained: false),
        NetworkUse(allowsExpensive: false, allowsConstrained: true),
    ])
    func anotherProcessUsesTheNetworksThatItWasBegunFor(networks: NetworkUse) async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        var options = few()
        options.networks = networks
        _ = try await lab.cache.download(source, world(source), named: "world", options: options).report()
        lab.store.simulateKill()
        let unfinished = try #require(try await reopened(lab).downloads().first)
        #expect(unfinished.options.networks == networks)
        _ = try await unfinished.resume(from: source).report()
        #expect(lab.transport.requests.last?.networks == networks)
    }

    /// Older programs did not write it.
    @Test func aPlanThatSaysNothingOfNetworksMeansTheDefault() throws {
        let text = """
            {"begun":1,"download":1,"fingerprint":"a","options":{"attempts":4,"concurrency":4,"patience":1000,"priority":1,\
            "revalidatesFresh":false},"region":"alps","scale":1,"source":"osm","spans":"b"}
            """
        #expect(try DownloadPlan(text).options.value().networks == DownloadOptions().networks)
    }

    /// What was there before it began and is stale since is brought up to date, as it would have been.
    @Test func aStaleTileFromBeforeItBeganIsAskedFor() async throws {
        let lab = try CacheLab()
        serve(lab, "max-age=5")
        let source = try lab.source()
        _ = try await lab.cache.tile(source, z: 3, x: 7, y: 7)
        lab.clock.advance(seconds: 3600)
        var options = DownloadOptions()
        options.requestBudget = 10
        _ = try await lab.cache.download(source, world(source), named: "world", options: options).report()
        let report = try await lab.cache.downloads()[0].resume(from: source, options: DownloadOptions()).report()
        #expect(report.verdict == .complete && report.progress.unchanged == 10)
        #expect(lab.transport.count(of: "/3/7/7.png") == 2)
    }

    @Test func failedTilesKeepItUnfinishedUntilTheyCome() async throws {
        let lab = try CacheLab()
        serve(lab, refusing: "/3/7/")
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source), named: "world")
        #expect(await download.report().progress.failed == 8)
        #expect(try await lab.cache.downloads().count == 1)
        serve(lab)
        #expect(await download.retryFailed().report().verdict == .complete)
        #expect(try await lab.cache.downloads().isEmpty)
        #expect(lab.transport.count == 85 + 8)
    }

    @Test func oneThatIsUnderWayIsGivenAsItIs() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        var options = DownloadOptions()
        options.startsPaused = true
        let download = try await lab.cache.download(source, world(source), named: "world", options: options)
        let same = try await lab.cache.downloads()[0].resume(from: source)
        #expect(same === download)
        download.resume()
        #expect(await same.report().verdict == .complete)
    }

    @Test func anotherSourceIsRefusedAndOtherSecretsAreNot() async throws {
        let lab = try CacheLab()
        serve(lab)
        func source(_ host: String, _ path: String, _ key: String) throws -> TileSource {
            try TileSource(
                "lab", template: "https://\(host)/\(path)/{z}/{x}/{y}.png?key={key}", values: ["key": key])
        }
        let begun = try source("tiles.example", "a", "geheim")
        var options = DownloadOptions()
        options.requestBudget = 5
        _ = try await lab.cache.download(begun, world(begun), named: "world", options: options).report()
        for (path, bytes) in lab.bytesOnDisk() {
            #expect(!String(decoding: bytes, as: UTF8.self).contains("geheim"), "\(path)")
            #expect(!String(decoding: bytes, as: UTF8.self).contains("tiles.example"), "\(path)")
        }
        let unfinished = try #require(try await lab.cache.downloads().first)
        for other in [
            try source("other.example", "a", "geheim"), try source("tiles.example", "b", "geheim"), try lab.source("x"),
        ] {
            let error = await #expect(throws: TileCacheError.self) { try await unfinished.resume(from: other) }
            #expect(error?.code == .invalidSource)
        }
        let rotated = try source("tiles.example", "a", "rotated")
        let report = try await unfinished.resume(from: rotated, options: DownloadOptions()).report()
        #expect(report.verdict == .complete)
    }

    @Test func aRemovedOrReplacedRegionHasNoDownload() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source), named: "world", options: few()).report()
        let unfinished = try #require(try await lab.cache.downloads().first)
        // As a program does that knows nothing of plans.
        let plan = try #require(lab.disk.contents(planFile))
        _ = try await lab.cache.removeRegion("world")
        #expect(lab.disk.contents(planFile) == nil)
        lab.disk.plant(planFile, plan)
        #expect(try await lab.cache.downloads().isEmpty)
        let error = await #expect(throws: TileCacheError.self) { try await unfinished.resume(from: source) }
        #expect(error?.code == .invalidRegion)

        _ = try await lab.cache.download(source, world(source, 0...1), named: "world", options: few()).report()
        #expect(try await lab.cache.downloads().map(\.region.tileCount) == [5])
        // Pinned anew without a download.
        try lab.store.pin(
            PinnedRegion(name: "world", source: source.name, spans: [TileSpan(zoom: 2, columns: 0...1, rows: 0...1)]))
        #expect(try await lab.cache.downloads().isEmpty)
        #expect(lab.disk.contents(planFile) == nil)
    }

    /// Another run of the same region has begun meanwhile: its plan is not the older run's to remove.
    @Test func anOlderRunLeavesTheNewerOnesPlanAlone() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        var paused = DownloadOptions()
        paused.startsPaused = true
        let older = try await lab.cache.download(source, world(source), named: "world", options: paused)
        lab.clock.advance(seconds: 1)
        let newer = try await lab.cache.download(source, world(source), named: "world", options: paused)
        older.resume()
        #expect(await older.report().verdict == .complete)
        #expect(try await lab.cache.downloads().count == 1)
        newer.resume()
        #expect(await newer.report().verdict == .complete)
        #expect(try await lab.cache.downloads().isEmpty)
    }

    @Test(arguments: 0..<7)
    func aDamagedPlanIsAnEventAndNothingElse(how: Int) async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source, 0...1), named: "other", options: few()).report()
        _ = try await lab.cache.download(source, world(source), named: "world", options: few()).report()
        let whole = try #require(lab.disk.contents(planFile))
        func signed(_ object: String) -> [UInt8] { Array(PlanFolder.line(object)) }
        let text = String(decoding: whole.dropLast(17), as: UTF8.self) + "}"
        let damaged: [UInt8] =
            switch how {
            case 0: []
            case 1: Array(whole.dropLast(5))
            case 2: whole.enumerated().map { $0.offset == 20 ? $0.element ^ 1 : $0.element }
            case 3: [UInt8](repeating: 0x20, count: 200_000)
            case 4: signed(text.replacingOccurrences(of: "\"download\":1", with: "\"download\":3"))
            case 5: signed(text.replacingOccurrences(of: "\"concurrency\":4", with: "\"concurrency\":-9"))
            default: signed("{\"download\":1,\"region\":[[[[[[[[]]]]]]]]}")
            }
        lab.disk.plant(planFile, damaged)
        #expect(try await lab.cache.downloads().map(\.region.name) == ["other"])
        let events = lab.events.filter { if case .planNotRead = $0 { true } else { false } }
        #expect(events.count == 1)
        #expect(lab.disk.contents(planFile) == damaged, "it is left alone")
        #expect(try lab.store.verify().foreign.isEmpty)
        // A new download puts its own in the place.
        _ = try await lab.cache.download(source, world(source), named: "world", options: few()).report()
        #expect(try await lab.cache.downloads().map(\.region.name) == ["other", "world"])
    }

    /// Through a link, files of somebody else would be replaced and removed.
    @Test func aLinkInThePlaceOfTheFolderIsRefused() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        lab.disk.plantLink("downloads", to: "manifest")
        let before = lab.disk.names("manifest")
        let error = await #expect(throws: StoreError.self) {
            try await lab.cache.download(source, world(source), named: "world")
        }
        #expect(error?.code == .damaged && "\(error as Any)".contains("downloads"))
        #expect(lab.disk.names("manifest") == before && lab.disk.names("staging").isEmpty)
        #expect(lab.transport.count == 0)
        // What is in the way of plans is not in the way of regions without one.
        _ = try await lab.cache.removeRegion("world")
        #expect(try lab.store.regions().isEmpty)
    }

    /// Nothing but the download's own calls touches `downloads/`.
    @Test func maintenanceLeavesPlansAlone() async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source), named: "world", options: few()).report()
        let plan = lab.disk.contents(planFile)
        lab.clock.advance(seconds: 86_400)
        _ = try lab.store.verify(repair: true)
        _ = try lab.store.compact()
        for shard in UInt8.min ... .max { try lab.store.removeOrphans(inShard: shard) }
        lab.store.simulateKill()
        let cache = try reopened(lab)
        #expect(plan != nil && lab.disk.contents(planFile) == plan)
        #expect(try await cache.downloads().count == 1)
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func aPlanIsOnTheDiskOnceTheDownloadHasBegun(seed: UInt64) async throws {
        let lab = try CacheLab(recordsChanges: true) { $0.store.durability = .durable }
        serve(lab)
        let source = try lab.source()
        var paused = DownloadOptions()
        paused.startsPaused = true
        _ = try await lab.cache.download(source, world(source), named: "world", options: paused)
        let plan = try #require(lab.disk.contents(planFile))
        lab.store.simulateKill()
        var random = SplitMix64(seed: seed)
        lab.disk.powerCut(using: &random)
        #expect(lab.disk.contents(planFile) == plan)
        let unfinished = try await reopened(lab).downloads()
        #expect(unfinished.map(\.region.name) == ["world"])
    }

    /// They were two downloads of one plan.
    @Test(arguments: 0..<10)
    func twoWhoResumeItAtTheSameTimeGetTheSame(round: Int) async throws {
        let lab = try CacheLab()
        serve(lab)
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source), named: "world", options: few()).report()
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let unfinished = try #require(try await lab.cache.downloads().first)
        async let first = unfinished.resume(from: source, options: DownloadOptions())
        async let second = unfinished.resume(from: source, options: DownloadOptions())
        let (one, other) = try await (first, second)
        #expect(one === other)
        door.open()
        #expect(await one.report().verdict == .complete)
    }

    /// One whose budget is used up was given to whoever wanted to go on with a new one.
    @Test func oneThatIsEndingIsNotGoneOnWith() async throws {
        let lab = try CacheLab()
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let source = try lab.source()
        let ending = try await lab.cache.download(source, world(source), named: "world", options: few())
        await until { door.waiting == 3 }
        let unfinished = try #require(try await lab.cache.downloads().first)
        let second = try await unfinished.resume(from: source, options: DownloadOptions())
        #expect(second !== ending)
        door.open()
        #expect(await ending.report().reachedBudget)
        #expect(await second.report().verdict == .complete)
    }
}
