import Foundation
import HTTPTypes
import Testing
import TileStoreTesting

@testable import TileCache
@testable import TileStore

/// Region downloads whose requests the system carries, while the process is there and while it is not.
@Suite(.timeLimit(.minutes(60)))
struct BackgroundDownloadTests {
    /// A cache, the system around it, and the processes that come and go.
    private final class Rig: Sendable {
        let lab: CacheLab
        let system: ScriptedSystem
        let source: TileSource

        init() throws {
            let lab = try CacheLab()
            self.lab = lab
            system = ScriptedSystem(lab.clock)
            source = try lab.source()
        }

        /// Another process, after the one before is gone.
        func process(_ change: (inout TileCacheConfiguration) -> Void = { _ in }) throws -> TileCache {
            var configuration = lab.cache.configuration
            configuration.store = StoreConfiguration()
            configuration.backgroundSessions = system
            change(&configuration)
            let files = SimulatedFileSystem(lab.disk)
            let store = try TileStore(
                environment: lab.clock.manual.environment(files), configuration: configuration.store)
            return TileCache(
                store: store, transport: lab.transport, configuration: configuration, clock: lab.clock.cacheClock)
        }

        func lose(_ cache: TileCache) {
            system.loseProcess()
            cache.store.simulateKill()
        }

        /// 85 tiles.
        var world: TileCoverage {
            get throws { try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...3) }
        }

        var options: DownloadOptions {
            var options = DownloadOptions()
            options.inBackground = true
            options.concurrency = 8
            return options
        }

        func download(_ cache: TileCache, _ change: (inout DownloadOptions) -> Void = { _ in }) async throws
            -> TileDownload
        {
            var options = options
            change(&options)
            return try await cache.download(source, world, named: "world", options: options)
        }

        /// Begins a download in a process that is gone when the system has its first tasks.
        func begin() async throws {
            let cache = try process()
            _ = try await download(cache)
            await until { system.tasks.count == 8 }
            lose(cache)
        }

        func answer(_ request: TransportRequest) -> Result<TransportResponse, TransportError> {
            let path = request.head.path ?? ""
            return .success(.answer(200, [.cacheControl: "max-age=3600"], body: Picture.png(path.hashValue & 0xFFFF)))
        }
    }

    @Test func theSystemDoesItWhileNoProcessIsThere() async throws {
        let rig = try Rig()
        try await rig.begin()
        let session = try #require(rig.system.opened.first)
        var processes = 0
        while true {
            rig.system.end(with: rig.answer)
            rig.lab.clock.advance(seconds: 60)
            let cache = try rig.process()
            rig.system.tellThatAllWasTold()
            processes += 1
            guard let download = try await cache.handleEvents(ofBackgroundSession: session, from: [rig.source]) else {
                break
            }
            // All that had come is in the cache, and the system has the next tasks.
            let stored = try cache.store.statistics().entries
            #expect(stored == min(85, processes * 8))
            #expect(rig.system.tasks.count == min(8, 85 - stored))
            if rig.system.tasks.isEmpty {
                #expect(await download.report().verdict == .complete)
                #expect(try await cache.downloads().isEmpty)
            }
            rig.lose(cache)
        }
        // Eleven for the tiles, and one that found nothing to do.
        #expect(processes == 12)
        #expect(rig.system.begun.count == 85 && Set(rig.system.begun).count == 85)
        #expect(rig.lab.transport.count == 0 && rig.system.cancelled.isEmpty)
        #expect(Set(rig.system.opened) == [session])
    }

    @Test func tasksOfAnEarlierProcessAreTakenUp() async throws {
        let rig = try Rig()
        try await rig.begin()
        let begun = rig.system.begun
        let cache = try rig.process()
        // A person opens the app: nobody hands over events.
        let download = try await cache.downloads()[0].resume(from: rig.source)
        #expect(download.options.inBackground && download.options.concurrency == 8)
        while !download.isOver {
            rig.system.end(1, with: rig.answer)
            await Task.yield()
        }
        #expect(await download.report().verdict == .complete)
        #expect(rig.system.begun.count == 85 && Array(rig.system.begun.prefix(8)) == begun)
        try cache.close()
    }

    @Test func whatFailedMeanwhileIsTriedAgain() async throws {
        let rig = try Rig()
        try await rig.begin()
        // As when a person has ended the app.
        rig.system.end { _ in .failure(TransportError(.cancelled, "cancelled")) }
        let cache = try rig.process()
        let download = try await cache.downloads()[0].resume(from: rig.source)
        await until { rig.system.begun.count == 16 }
        #expect(Set(rig.system.begun).count == 8)
        while !download.isOver {
            rig.system.end(with: rig.answer)
            await Task.yield()
        }
        #expect(await download.report().verdict == .complete)
        try cache.close()
    }

    /// It counts from when the system had it, not from when the app was started to take it.
    @Test func theTimeForWhichAnAnswerLayIsPartOfItsAge() async throws {
        let rig = try Rig()
        try await rig.begin()
        let came = rig.lab.clock.now
        rig.system.end(with: rig.answer)
        rig.lab.clock.advance(seconds: 3000)
        let cache = try rig.process()
        rig.system.tellThatAllWasTold()
        _ = try await cache.handleEvents(ofBackgroundSession: rig.system.opened[0], from: [rig.source])
        let entry = try #require(try cache.store.entry(for: try TileKey(source: "lab", z: 0, x: 0, y: 0)))
        #expect(entry.metadata.expires == came.adding(seconds: 3600))
        try cache.close()
    }

    /// A map waited for what the system does when it is a good time.
    @Test func whoLooksAtTheMapDoesNotWaitForTheSystem() async throws {
        let rig = try Rig()
        let cache = try rig.process { $0.requestsPerHost = 1 }
        _ = try await rig.download(cache) { $0.concurrency = 64 }
        await until { rig.system.tasks.count == 64 }
        rig.lab.transport.script { _ in .answer(200, [.cacheControl: "max-age=60"]) }
        #expect(try await cache.tile(rig.source, z: 0, x: 0, y: 0)?.origin == .network)
        #expect(rig.lab.transport.paths == ["/0/0/0.png"])
        try cache.close()
    }

    /// The gate for networks kept it from handing tasks over, which the system would have carried when it is at home.
    @Test func theSystemWaitsForTheNetwork() async throws {
        let rig = try Rig()
        rig.lab.network.become(.cellular)
        let cache = try rig.process()
        _ = try await rig.download(cache) { $0.networks = NetworkUse(allowsExpensive: false, allowsConstrained: true) }
        await until { rig.system.tasks.count == 8 }
        #expect(
            rig.system.tasks.allSatisfy {
                $0.request.networks == NetworkUse(allowsExpensive: false, allowsConstrained: true)
            })
        try cache.close()
    }

    @Test func cancellingEndsTheTasks() async throws {
        let rig = try Rig()
        let cache = try rig.process()
        let download = try await rig.download(cache)
        await until { rig.system.tasks.count == 8 }
        download.cancel()
        #expect(await download.report().wasCancelled)
        await until { rig.system.tasks.isEmpty }
        #expect(Set(rig.system.cancelled) == Set(rig.system.begun))
        try cache.close()
    }

    @Test func aRegionThatWasRemovedHasNoTasks() async throws {
        let rig = try Rig()
        try await rig.begin()
        let session = rig.system.opened[0]
        let cache = try rig.process()
        _ = try await cache.removeRegion("world")
        #expect(try await cache.handleEvents(ofBackgroundSession: session, from: [rig.source]) == nil)
        #expect(rig.system.tasks.isEmpty && rig.system.cancelled.count == 8)
        try cache.close()
    }

    @Test func sessionsOfOthersAreLeftAlone() async throws {
        let rig = try Rig()
        try await rig.begin()
        let cache = try rig.process()
        for identifier in [
            "", "com.example.app", "swift-tile-cache.", "swift-tile-cache.00000000000000000000000000000000.1",
        ] {
            #expect(try await cache.handleEvents(ofBackgroundSession: identifier, from: [rig.source]) == nil)
        }
        #expect(rig.system.opened.count == 1 && rig.system.tasks.count == 8)
        let other = try rig.lab.source("other")
        await #expect(throws: TileCacheError.self) {
            try await cache.handleEvents(ofBackgroundSession: rig.system.opened[0], from: [other])
        }
        #expect(rig.system.tasks.count == 8)
        try cache.close()
    }

    @Test func aCacheThatIsClosedOpensNoSession() async throws {
        let rig = try Rig()
        try await rig.begin()
        let cache = try rig.process()
        try cache.close()
        #expect(cache.background(ofRegion: "world") == nil)
        await #expect(throws: TileCacheError.self) {
            try await cache.handleEvents(ofBackgroundSession: rig.system.opened[0], from: [rig.source])
        }
        #expect(rig.system.opened.count == 1 && rig.system.tasks.count == 8)
    }

    /// Whoever waits for the events may give up; the system ends an app that takes too long.
    @Test func whoWaitsForTheEventsMayGiveUp() async throws {
        let rig = try Rig()
        try await rig.begin()
        let cache = try rig.process()
        // The system never says that it has told all.
        let session = rig.system.opened[0]
        let waiting = Task { try await cache.handleEvents(ofBackgroundSession: session, from: [rig.source]) }
        await until { rig.system.opened.count == 2 }
        waiting.cancel()
        _ = await waiting.result
        try cache.close()
    }

    @Test func aBodyThatIsTooLargeIsRefused() async throws {
        let rig = try Rig()
        let cache = try rig.process()
        var source = rig.source
        source.bodyLimit = 100
        let coverage = try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...0)
        let download = try await cache.download(source, coverage, named: "one", options: rig.options)
        while !download.isOver {
            rig.system.end { _ in .success(.answer(200, [:], body: Picture.png(1, size: 101))) }
            await Task.yield()
        }
        let report = await download.report()
        #expect(report.progress.failed == 1 && report.present == 0)
        try cache.close()
    }

    @Test func itNeedsARegionWithAName() async throws {
        let rig = try Rig()
        let cache = try rig.process()
        await #expect(throws: TileCacheError.self) {
            try await cache.download(rig.source, rig.world, options: rig.options)
        }
        #expect(rig.system.opened.isEmpty)
        try cache.close()
    }

    /// Where the system suspends no process, the cache's own transport carries it.
    @Test func withoutSessionsItIsADownloadAsAnyOther() async throws {
        let rig = try Rig()
        let cache = try rig.process { $0.backgroundSessions = nil }
        rig.lab.transport.script { _ in .answer(200, [.cacheControl: "max-age=60"]) }
        #expect(try await rig.download(cache).report().verdict == .complete)
        #expect(rig.lab.transport.count == 85)
        try cache.close()
    }

    /// The system keeps the requests anyway; the names of the tasks need not show what is secret.
    @Test func namesOfTasksShowNoSecrets() async throws {
        let rig = try Rig()
        let cache = try rig.process()
        let source = try rig.lab.source("lab", "https://tiles.example/{z}/{x}/{y}.png?key=s3cret")
        let coverage = try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...1)
        _ = try await cache.download(source, coverage, named: "secret", options: rig.options)
        await until { rig.system.tasks.count == 5 }
        for task in rig.system.tasks {
            #expect(task.name.count == 64 && !task.name.contains("s3cret"))
        }
        #expect(Set(rig.system.tasks.map(\.name)).count == 5)
        try cache.close()
    }
}
