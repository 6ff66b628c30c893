import Foundation
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

/// A cache that gives up its locks while its app is suspended.
@Suite(.timeLimit(.minutes(60)))
struct CacheSuspensionTests {
    private func world(_ source: TileSource) throws -> TileCoverage {
        try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...2)
    }

    private let fresh: HTTPFields = [.cacheControl: "max-age=864000"]

    @Test func aDownloadBeginsNothingBeforeItIsResumed() async throws {
        let lab = try CacheLab()
        let (door, fields) = (Latch(), fresh)
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, fields)
        }
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source))
        await until { door.waiting == 4 }
        lab.cache.suspend()
        // Another process has the lock meanwhile.
        let other = try TileStore(
            environment: lab.clock.manual.environment(SimulatedFileSystem(lab.disk), seed: 9),
            configuration: StoreConfiguration())
        try other.put(
            Picture.png(9), for: lab.key(9), metadata: TileMetadata(storedAt: lab.clock.now, expires: .distantFuture))
        lab.clock.advance(seconds: 10 * 86_400)
        lab.cache.resume()
        door.open()
        let report = await download.report()
        #expect(report.verdict == .complete && report.progress.fetched == 21)
        #expect(try await lab.load(9, .cacheOnly)?.data == Picture.png(9))
    }

    @Test func itBeginsNothingThatWasAskedForWhileItWasSuspended() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        let source = try lab.source()
        lab.cache.suspend()
        let download = try await lab.cache.download(source, world(source))
        for _ in 0..<1000 { await Task.yield() }
        #expect(lab.transport.count == 0)
        lab.cache.resume()
        #expect(await download.report().verdict == .complete)
    }

    @Test func tilesAreServedAndFetchedMeanwhile() async throws {
        // Whoever waited for the lock kept threads and others from their work, for as long as this.
        let lab = try CacheLab { $0.store.lockWait = 3600 }
        try await lab.prime(1)
        lab.cache.suspend()
        #expect(try await lab.load(1)?.origin.isCached == true)
        // What comes cannot be stored, which is said, and is kept in memory.
        #expect(try await lab.load(2)?.notStored != nil)
        #expect(lab.events.count == 1)
        let sent = lab.transport.count
        #expect(try await lab.load(2)?.data == Picture.png(1))
        #expect(lab.transport.count == sent)
        lab.cache.resume()
        #expect(try await lab.load(3)?.notStored == nil)
    }

    /// On a real disk, with a clock that really waits: a fresh tile came after all who waited for the lock one after another.
    @Test func nobodyWaitsForTheLockOfASuspendedCache() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("suspended-\(UUID().uuidString)")
            .path
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let fields = fresh
        let transport = ScriptedTransport { _ in .answer(200, fields) }
        let source = try TileSource("lab", template: "https://tiles.example/{z}/{x}/{y}.png")
        var configuration = TileCacheConfiguration()
        configuration.store.lockWait = 3600
        let first = try TileCache(at: folder, transport: transport, configuration: configuration)
        for x in 0..<8 { _ = try await first.tile(source, z: 3, x: x, y: 0) }
        try first.close()
        let cache = try TileCache(at: folder, transport: transport, configuration: configuration)
        cache.suspend()
        try await withThrowingTaskGroup(of: Void.self) { group in
            for x in 0..<12 {
                group.addTask {
                    let tile = try await cache.tile(source, z: 4, x: x, y: 0)
                    #expect((tile?.notStored as? StoreError)?.code == .locked)
                }
            }
            group.addTask {
                let tile = try await cache.tile(source, z: 3, x: 1, y: 0)
                #expect(tile?.origin.isCached == true)
                let regions = try await cache.regions()
                #expect(regions.isEmpty)
            }
            try await group.waitForAll()
        }
        cache.resume()
        #expect(try await cache.tile(source, z: 5, x: 1, y: 0)?.notStored == nil)
        try cache.close()
    }

    /// Tiles that came while nothing could be stored had failed for good, and after sixteen the download was over.
    @Test(arguments: [4, 20])
    func aSuspensionCostsADownloadNoTile(concurrency: Int) async throws {
        let lab = try CacheLab { $0.requestsPerHost = 30 }
        let (door, fields) = (Latch(), fresh)
        lab.transport.script { request in
            try await door.pass()
            return .answer(200, fields, body: Picture.png((request.head.path ?? "").hashValue & 0xFFFF))
        }
        let source = try lab.source()
        var options = DownloadOptions()
        options.concurrency = concurrency
        let download = try await lab.cache.download(source, world(source), named: "world", options: options)
        await until { door.waiting == concurrency }
        lab.cache.suspend()
        door.open()
        await until { lab.transport.active == 0 }
        lab.cache.resume()
        let report = await download.report()
        #expect(report.verdict == .complete && report.progress.fetched == 21 && report.present == 21)
    }

    @Test func itIsClosedWhileItIsSuspended() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        lab.cache.suspend()
        let download = try await lab.cache.download(source, world(source))
        try lab.cache.close()
        #expect(await download.report().stoppedBy?.code == .closed)
    }
}
