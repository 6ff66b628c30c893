import Dispatch
import HTTPTypes
import Testing
import TileStore

@testable import TileCache
@testable import TileCacheMapKit

@MainActor
private final class Watcher: RegionDownloaderDelegate {
    /// Steps since the last end.
    var percentages: [Double] = []
    /// The steps that came before each end.
    var steps: [[Double]] = []
    var reports: [DownloadReport] = []
    var errors: [any Error] = []
    var obstacles: [TileCacheError] = []
    /// The tiles and what became of them, in a word.
    var settled: [TileAddress: [String]] = [:]
    var progress: DownloadProgress?
    /// Whether every tile was told of before the step that it belongs to.
    var wasTimely = true

    func regionDownloader(_ downloader: RegionDownloader, isAt progress: DownloadProgress) { self.progress = progress }
    func regionDownloader(_ downloader: RegionDownloader, didSettle tile: TileAddress, as outcome: TileOutcome) {
        let word =
            switch outcome {
            case .fetched(let bytes): "fetched \(bytes)"
            case .revalidated: "revalidated"
            case .unchanged: "unchanged"
            case .absent: "absent"
            case .failed(let error): "failed \(error.status ?? 0)"
            }
        settled[tile, default: []].append(word)
    }
    func regionDownloader(_ downloader: RegionDownloader, didReach percentage: Double) {
        percentages.append(percentage)
        let told = settled.values.reduce(0) { $0 + $1.count }
        if Double(told) + 0.5 < percentage / 100 * Double(downloader.tileCount) { wasTimely = false }
    }
    func regionDownloader(_ downloader: RegionDownloader, didFinish report: DownloadReport) {
        steps.append(percentages)
        percentages = []
        reports.append(report)
    }
    func regionDownloader(_ downloader: RegionDownloader, didFail error: any Error) { errors.append(error) }
    func regionDownloader(_ downloader: RegionDownloader, isWaitingBecause reason: TileCacheError) {
        obstacles.append(reason)
    }
}

@Suite(.timeLimit(.minutes(60)))
@MainActor
struct RegionDownloaderTests {
    private let world: RegionShape

    init() throws { world = .box(try GeoBox(west: -180, south: -85, east: 180, north: 85)) }

    @Test func aDelegateHearsOfStepsThenOf100ThenOfTheEnd() async throws {
        let lab = try MapLab()
        let watcher = Watcher()
        let downloader = try RegionDownloader(world, zooms: 0...3, named: "world", of: lab.map)
        downloader.delegate = watcher
        #expect(downloader.tileCount == 85)
        try await downloader.start()
        await until { !watcher.reports.isEmpty }
        let steps = try #require(watcher.steps.first)
        #expect(steps.last == 100 && steps == steps.sorted() && steps.count { $0 == 100 } == 1)
        #expect(watcher.percentages.isEmpty)
        #expect(watcher.reports.map(\.progress.done) == [85])
        #expect(lab.map.state(of: try tile(3, 1, 1)).isPinned)
        // Again, nothing has to be asked for.
        let asked = lab.server.requests.count
        let report = try await downloader.start().report()
        #expect(report.progress.unchanged == 85 && lab.server.requests.count == asked)
    }

    @Test func failedTilesAreToldAndTriedAgainAlone() async throws {
        let lab = try MapLab()
        lab.server.script { $0.path == "/1/1/1.png" ? .status(403) : .tile(picture($0.path ?? "")) }
        let watcher = Watcher()
        let downloader = try RegionDownloader(world, zooms: 0...1, named: nil, of: lab.map)
        downloader.delegate = watcher
        downloader.options.attempts = 1
        try await downloader.start()
        await until { watcher.reports.count == 1 }
        #expect(watcher.reports[0].failures.map(\.key.description) == ["lab/1/1/1"])
        #expect(watcher.steps[0].last.map { $0 < 100 } == true, "100 % means that all is there")
        let asked = lab.server.requests.count
        lab.server.script { .tile(picture($0.path ?? "")) }
        downloader.retryFailed()
        await until { watcher.reports.count == 2 }
        #expect(watcher.reports[1].progress.fetched == 1)
        #expect(lab.server.requests.count == asked + 1)
    }

    @Test func everyTileIsToldOnceWithWhatBecameOfIt() async throws {
        let lab = try MapLab()
        lab.server.script {
            switch $0.path {
            case "/1/1/1.png": .status(403)
            case "/1/0/1.png": .status(404)
            default: .tile(picture("a"), [.cacheControl: "max-age=600", .eTag: "\"a\""])
            }
        }
        try lab.put(try tile(0, 0, 0))
        let watcher = Watcher()
        let downloader = try RegionDownloader(world, zooms: 0...1, named: nil, of: lab.map)
        downloader.delegate = watcher
        downloader.percentageStep = 1
        try await downloader.start()
        await until { watcher.reports.count == 1 }
        let expected = [
            try tile(0, 0, 0): ["unchanged"], try tile(1, 0, 0): ["fetched 17"], try tile(1, 1, 0): ["fetched 17"],
            try tile(1, 0, 1): ["absent"], try tile(1, 1, 1): ["failed 403"],
        ]
        #expect(watcher.settled == expected && watcher.wasTimely)
        #expect(watcher.progress?.done == 5)
        // Another try is told of too, and is about the failed tile alone.
        lab.server.script { _ in .tile(picture("b")) }
        downloader.retryFailed()
        await until { watcher.reports.count == 2 }
        #expect(watcher.settled[try tile(1, 1, 1)] == ["failed 403", "fetched 17"])
        // A download that begins anew, with conditional requests.
        watcher.settled = [:]
        lab.server.script { _ in .status(304, [.cacheControl: "max-age=600"]) }
        downloader.options.revalidatesFresh = true
        try await downloader.start()
        await until { watcher.reports.count == 3 }
        #expect(watcher.settled[try tile(1, 0, 0)] == ["revalidated"] && watcher.settled.count == 5)
    }

    /// Whoever has no delegate pays nothing for it.
    @Test func withoutADelegateNoTileIsToldOf() async throws {
        let lab = try MapLab()
        let downloader = try RegionDownloader(world, zooms: 0...2, named: nil, of: lab.map)
        let download = try await downloader.start()
        #expect(download.options.onTile == nil)
        #expect(await download.report().verdict == .complete)
    }

    /// What MapCache calls `maxConcurrentDownloads`.
    @Test func noMoreTilesAreAskedForAtATimeThanAllowed() async throws {
        let lab = try MapLab()
        let (now, most) = (Locked(0), Locked(0))
        lab.server.script { request in
            let count = now.withLock { now in
                now += 1
                return now
            }
            most.withLock { $0 = max($0, count) }
            for _ in 0..<20 { await Task.yield() }
            now.withLock { $0 -= 1 }
            return .tile(picture(request.path ?? ""))
        }
        let downloader = try RegionDownloader(world, zooms: 0...3, named: nil, of: lab.map)
        downloader.options.concurrency = 2
        #expect(try await downloader.start().report().verdict == .complete)
        #expect(most.withLock { $0 } <= 2)
    }

    /// The plan asked for scale 1 and the renderer for the screen's: the region was blank offline.
    @Test(arguments: [1.0, 2, 3]) func aRegionIsThereOfflineOnEveryScreen(contentScale: Double) async throws {
        let lab = try MapLab { $0.urlTemplate = "https://tiles.example/{z}/{x}/{y}{r}.png" }
        let report = try await RegionDownloader(world, zooms: 0...2, named: "world", of: lab.map).start().report()
        #expect(report.verdict == .complete && report.progress.fetched == 21)
        let offline = try lab.other { $0.loadMode = .cacheOnly }
        let painter = TilePainter<String>(
            offline, clock: lab.clock.cacheClock, decode: { (String(decoding: $0.dropFirst(16), as: UTF8.self), 100) },
            onChange: { _ in })
        let wanted = try tile(2, 1, 2)
        let zoomScale = 256 * 4 / PlaneRect.world
        var drawn: [String] = []
        painter.paint(PlaneRect(wanted), zoomScale: zoomScale, contentScale: contentScale) { drawn.append($0.picture) }
        #expect(drawn == ["/2/1/2@2x.png"])
    }

    @Test func aServerThatIsAwayIsToldAndWaitedFor() async throws {
        let lab = try MapLab()
        lab.server.script { _ in throw TransportError(.connection, "no route to the host") }
        let watcher = Watcher()
        let downloader = try RegionDownloader(world, zooms: 0...1, named: nil, of: lab.map)
        downloader.delegate = watcher
        let download = try await downloader.start()
        await until { !watcher.obstacles.isEmpty && lab.clock.sleeping > 0 }
        #expect(watcher.obstacles.first?.message.contains("no route to the host") == true)
        #expect(watcher.reports.isEmpty && watcher.percentages.isEmpty)
        lab.server.script { .tile(picture($0.path ?? "")) }
        while !download.isOver {
            if lab.clock.sleeping > 0 { lab.clock.advance(seconds: 5) }
            await Task.yield()
        }
        await until { watcher.reports.count == 1 }
        #expect(watcher.reports[0].verdict == .complete && watcher.steps[0].last == 100)
    }

    @Test func aServerThatForbidsItIsNotAsked() async throws {
        let lab = try MapLab { $0.urlTemplate = "https://tile.openstreetmap.org/{z}/{x}/{y}.png" }
        let watcher = Watcher()
        let downloader = try RegionDownloader(world, zooms: 0...1, named: nil, of: lab.map)
        downloader.delegate = watcher
        await #expect(throws: TileCacheError.self) { try await downloader.start() }
        #expect(watcher.errors.count == 1 && lab.server.requests.isEmpty)
    }

    @Test func itStopsAtAPauseAndGoesOn() async throws {
        let lab = try MapLab()
        let downloader = try RegionDownloader(world, zooms: 0...2, named: nil, of: lab.map)
        downloader.pause()
        let download = try await downloader.start()
        for _ in 0..<100 { await Task.yield() }
        #expect(downloader.progress?.done == 0)
        downloader.resume()
        #expect(await download.report().progress.isComplete)
        let size = try await downloader.estimateSize(samples: 5)
        #expect(size.tiles == 21 && size.bytes > 0)
    }

    /// Keeps the cache's file threads busy, so that pinning a region takes until the door is opened.
    private func holdingFiles<R>(_ cache: TileCache, _ body: () async throws -> R) async throws -> R {
        let door = DispatchSemaphore(value: 0)
        let arrived = Locked(0)
        let threads = TileCacheConfiguration().fileThreads
        let holders = (0..<threads).map { _ in
            Task {
                try await cache.onFileThread {
                    arrived.withLock { $0 += 1 }
                    door.wait()
                }
            }
        }
        await until { arrived.withLock { $0 } == threads }
        let result = try await body()
        for _ in holders { door.signal() }
        for holder in holders { try await holder.value }
        return result
    }

    @Test func aCancelWhileTheRegionIsBeingPinnedIsNotLost() async throws {
        let lab = try MapLab()
        let watcher = Watcher()
        let downloader = try RegionDownloader(world, zooms: 0...4, named: "world", of: lab.map)
        downloader.delegate = watcher
        let start = try await holdingFiles(lab.cache) {
            let start = Task { try await downloader.start() }
            // Its part up to the pinning runs on this actor.
            for _ in 0..<100 { await Task.yield() }
            #expect(downloader.progress == nil)
            downloader.cancel()
            return start
        }
        let report = try await start.value.report()
        #expect(report.wasCancelled && lab.server.requests.isEmpty)
        await until { watcher.reports.count == 1 }
        // It may be begun again.
        #expect(try await downloader.start().report().verdict == .complete)
    }

    @Test func ofTwoThatAreBegunAtOnceOnlyTheLastGoesOn() async throws {
        let lab = try MapLab()
        let watcher = Watcher()
        let downloader = try RegionDownloader(world, zooms: 0...4, named: "world", of: lab.map)
        downloader.delegate = watcher
        // Whoever is begun first: neither gets anything before it is let go on.
        downloader.pause()
        let first = Task { try await downloader.start() }
        let second = Task { try await downloader.start() }
        let downloads = [try await first.value, try await second.value]
        await until { downloads.contains { $0.isOver } }
        #expect(downloads.count { $0.isOver } == 1)
        downloader.cancel()
        for download in downloads { #expect(await download.report().wasCancelled) }
        await until { !watcher.reports.isEmpty }
        #expect(watcher.reports.count == 1 && lab.server.requests.isEmpty)
    }

    @Test func aRetryWhilePausedWaitsForResume() async throws {
        let lab = try MapLab()
        lab.server.script { _ in .status(403) }
        let downloader = try RegionDownloader(world, zooms: 0...1, named: nil, of: lab.map)
        _ = try await downloader.start().report()
        lab.server.script { .tile(picture($0.path ?? "")) }
        downloader.pause()
        let asked = lab.server.requests.count
        downloader.retryFailed()
        for _ in 0..<1000 { await Task.yield() }
        #expect(lab.server.requests.count == asked && downloader.progress?.done == 0)
        downloader.resume()
        await until { downloader.progress?.isComplete == true }
        #expect(lab.server.requests.count == asked + 5)
    }

    @Test func stepsAreToldOnceEachAnd100Always() {
        func told(_ step: Double, _ done: [Int], of total: Int) -> [Double] {
            var steps = PercentageSteps(step: step)
            return done.compactMap { done in
                var progress = DownloadProgress(total: total)
                progress.fetched = done
                return steps.reached(progress)
            }
        }
        #expect(told(25, Array(0...8), of: 8) == [25, 50, 75, 100])
        #expect(told(25, [0, 3, 3, 7, 8, 8], of: 8) == [37.5, 87.5, 100])
        #expect(told(200, Array(0...8), of: 8) == [100])
        #expect(told(5, [0], of: 0) == [100])
    }

    /// It was forgotten when the download began a moment later.
    @Test func aCancelRightAfterTheStartIsHeeded() async throws {
        let lab = try MapLab()
        let download = ObservableDownload(try RegionDownloader(world, zooms: 0...4, named: "world", of: lab.map))
        download.start()
        download.cancel()
        await until { !download.status.isUnderWay }
        guard case .finished(let report) = download.status.phase else {
            Issue.record("it is not finished: \(download.status.phase)")
            return
        }
        #expect(report.wasCancelled && lab.server.requests.isEmpty)
    }

    /// There were two downloads then, of which one could not be cancelled any more.
    @Test func whatIsStartedAnewIsNotTriedAgain() async throws {
        let lab = try MapLab()
        let watcher = Watcher()
        let downloader = try RegionDownloader(world, zooms: 0...3, named: "world", of: lab.map)
        downloader.delegate = watcher
        downloader.options.requestBudget = 3
        try await downloader.start()
        await until { watcher.reports.count == 1 }
        downloader.options.requestBudget = nil
        let number = downloader.begin()
        downloader.retryFailed()
        #expect(lab.map.cache.running.count == 0)
        try await downloader.carryOut(number)
        await until { watcher.reports.count == 2 }
        #expect(watcher.reports.last?.verdict == .complete && lab.server.requests.count == 85)
    }
}
