import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

/// Downloads of many tiles, against a server in memory and a clock that stands still.
@Suite(.timeLimit(.minutes(60)))
struct DownloadTests {
    /// Zooms 0 to 3 of the whole world: 85 tiles.
    private func world(_ source: TileSource, _ zooms: ClosedRange<Int> = 0...3) throws -> TileCoverage {
        try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: zooms)
    }

    private func server(_ lab: CacheLab, _ fields: HTTPFields = [.cacheControl: "max-age=60", .eTag: "\"a\""]) {
        lab.transport.script { request in
            request.head.headerFields[.ifNoneMatch] == fields[.eTag]
                ? .answer(304, fields) : .answer(200, fields, body: Picture.png(request.head.path?.count ?? 0))
        }
    }

    @Test func everyTileIsCountedOnceAndTheLastProgressIsComplete() async throws {
        let lab = try CacheLab()
        server(lab)
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source))
        var last = DownloadProgress(total: 0)
        var before = -1
        for await progress in download.updates() {
            #expect(progress.done >= before)
            #expect(progress.isComplete == (progress.fraction == 1))
            before = progress.done
            last = progress
        }
        #expect(last.isComplete && last.total == 85 && last.fetched == 85)
        let report = await download.report()
        #expect(report.progress == last && report.failures.isEmpty && !report.wasCancelled)
        #expect(lab.transport.count == 85 && Set(lab.transport.paths).count == 85)
        // Who looks later sees the end at once.
        var late: [DownloadProgress] = []
        for await progress in download.updates() { late.append(progress) }
        #expect(late == [last])
    }

    @Test func aSecondRunAsksForNothing() async throws {
        let lab = try CacheLab()
        server(lab)
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source)).report()
        let again = try await lab.cache.download(source, world(source)).report().progress
        #expect(again.unchanged == 85 && again.isComplete && again.bytes == 0)
        #expect(lab.transport.count == 85)
    }

    @Test func aTileWhoseFileIsGoneIsFetchedAgain() async throws {
        let lab = try CacheLab()
        server(lab)
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source, 1...1)).report()
        let blob = try #require(try lab.store.entry(for: TileKey("lab/1/0/0"))?.blob)
        _ = try lab.files.unlink(blob.path)
        let again = try await lab.cache.download(source, world(source, 1...1)).report().progress
        #expect(again.fetched > 0 && again.failed == 0 && again.isComplete)
        #expect(try lab.store.read(TileKey("lab/1/0/0"))?.data != nil)
    }

    @Test func aStaleRegionCostsOneConditionalRequestEach() async throws {
        let lab = try CacheLab()
        server(lab)
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source)).report()
        let blobs = try lab.store.statistics().blobs
        lab.clock.advance(seconds: 3600)
        let again = try await lab.cache.download(source, world(source)).report().progress
        #expect(again.revalidated == 85 && again.bytes == 0 && again.isComplete)
        #expect(lab.transport.count == 170)
        #expect(lab.transport.requests.suffix(85).allSatisfy { $0.head.headerFields[.ifNoneMatch] == "\"a\"" })
        #expect(try lab.store.statistics().blobs == blobs)
        #expect(try lab.store.statistics().stale == 0)
    }

    /// A server that takes no token was asked for each of a region's tiles.
    @Test(arguments: [401, 403])
    func aServerThatRefusesEverythingIsNotAskedForEachTile(status: Int) async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        lab.transport.answer(.answer(status))
        let download = try await lab.cache.download(source, world(source, 0...6))
        let report = await download.report()
        #expect(report.stoppedBy?.status == status)
        #expect(report.verdict == .incomplete(missing: 5461))
        #expect(lab.transport.count >= 100 && lab.transport.count < 100 + 16)

        // Where it gives some, each is asked for: servers say so of tiles that do not exist.
        let fields: HTTPFields = [.cacheControl: "max-age=60"]
        lab.transport.script { $0.head.path == "/0/0/0.png" ? .answer(200, fields) : .answer(status) }
        lab.cache.forgetFailures()
        // One at a time, so that the first one is given before a hundred others are refused.
        var options = DownloadOptions()
        options.concurrency = 1
        let whole = try await lab.cache.download(source, world(source, 0...4), options: options).report()
        #expect(whole.stoppedBy == nil && whole.progress.failed == 340)
    }

    @Test func absentAndFailedTilesAreToldApartAndOnlyTheFailedAreTriedAgain() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        lab.transport.script { request in
            switch request.head.path {
            case "/1/0/0.png": .answer(404)
            case "/1/1/0.png": .answer(403)
            default: .answer(200, [.cacheControl: "max-age=60"])
            }
        }
        let download = try await lab.cache.download(source, world(source, 1...1))
        let report = await download.report()
        #expect(report.progress.fetched == 2 && report.progress.absent == 1 && report.progress.failed == 1)
        #expect(report.progress.isSettled && !report.progress.isComplete && report.progress.fraction == 0.75)
        #expect(report.verdict == .incomplete(missing: 1) && report.present == 3)
        #expect(report.shortfalls.map(\.reason.status) == [403])
        #expect(report.failures.map(\.key) == [try TileKey("lab/1/1/0")])
        #expect(report.failures.first?.error.status == 403)

        let before = lab.transport.count
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
        let retried = await download.retryFailed().report()
        #expect(retried.progress.total == 1 && retried.progress.fetched == 1)
        #expect(lab.transport.paths.dropFirst(before) == ["/1/1/0.png"])
    }

    @Test func aCancelledDownloadGoesOnWhereItWas() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let latch = Latch()
        let served = Locked(0)
        lab.transport.script { _ in
            // The first ten come through; the others wait at the door.
            let number = served.withLock { count in
                count += 1
                return count
            }
            if number > 10 { try await latch.pass() }
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let download = try await lab.cache.download(source, world(source))
        await until { latch.waiting > 0 && download.progress.done == 10 }
        download.cancel()
        let report = await download.report()
        #expect(report.wasCancelled && report.progress.fetched == 10 && !report.progress.isComplete)
        #expect(report.failures.isEmpty)

        latch.open()
        let before = lab.transport.count
        let rest = try await lab.cache.download(source, world(source)).report().progress
        #expect(rest.unchanged == 10 && rest.fetched == 75 && rest.isComplete)
        #expect(lab.transport.count - before == 75)
    }

    @Test func nothingStartsWhileItIsPaused() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let download = try await lab.cache.download(source, world(source))
        await until { latch.waiting == 4 }
        download.pause()
        latch.open()
        await until { download.progress.done == 4 }
        for _ in 0..<500 { await Task.yield() }
        #expect(download.progress.done == 4 && lab.transport.count == 4)
        download.resume()
        #expect(await download.report().progress.isComplete)
    }

    @Test func aPausedDownloadCanBeCancelled() async throws {
        let lab = try CacheLab()
        server(lab)
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source, 0...5))
        download.pause()
        download.cancel()
        #expect(await download.report().wasCancelled)
    }

    @Test func aServerThatStaysAwayEndsItAndTheRestIsPendingAndNotFailed() async throws {
        let lab = try CacheLab()
        server(lab)
        let source = try lab.source()
        let ten = Locked(0)
        lab.transport.script { _ in
            let number = ten.withLock { count in
                count += 1
                return count
            }
            if number > 10 { throw TransportError(.connection, "no route to the host") }
            return .answer(200, [.cacheControl: "max-age=864000"])
        }
        var options = DownloadOptions()
        options.patience = .seconds(600)
        let download = try await lab.cache.download(source, world(source), options: options)
        let start = lab.clock.manual.ticks
        let seen = Locked<TileCacheError?>(nil)
        let report = await lab.clock.running {
            for await progress in download.updates() where progress.isWaiting {
                if let obstacle = download.obstacle { seen.withLock { $0 = obstacle } }
            }
            return await download.report()
        }
        #expect(seen.withLock { $0?.code } == .noAnswer)
        #expect(report.stoppedBy?.message.contains("no route to the host") == true)
        #expect(report.progress.fetched == 10 && report.progress.failed == 0 && report.progress.pending == 75)
        #expect(report.progress.fraction < 0.12 && report.failures.isEmpty)
        #expect(report.verdict == .incomplete(missing: 75) && report.present == 10)
        #expect(lab.clock.manual.ticks - start >= 300_000_000_000)
        #expect(lab.transport.count < 60)
        // Whoever asks for another try gets all of them.
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=864000"]))
        let retried = await download.retryFailed().report()
        #expect(retried.progress.unchanged == 10 && retried.progress.fetched == 75)
        #expect(retried.verdict == .complete && retried.present == 85)
    }

    @Test func aServerThatNeverAnsweredIsGivenUpSooner() async throws {
        let lab = try CacheLab()
        lab.transport.goOffline()
        let source = try lab.source()
        var options = DownloadOptions()
        options.firstPatience = .seconds(15)
        let start = lab.clock.manual.ticks
        let download = try await lab.cache.download(source, world(source), options: options)
        let report = await lab.clock.running { await download.report() }
        #expect(report.stoppedBy?.code == .noAnswer && report.progress.pending == 85)
        #expect(lab.clock.manual.ticks - start <= 60_000_000_000)
    }

    /// Many times, as it depends on which worker is first: one is told 429, the others that the host is left alone.
    @Test(arguments: 0..<200)
    func aServerThatAsksForMoreThanThePatienceIsNotWaitedFor(round: Int) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(429, [.retryAfter: "3600"]))
        let source = try lab.source()
        var options = DownloadOptions()
        options.patience = .seconds(600)
        let download = try await lab.cache.download(source, world(source), options: options)
        let report = await lab.clock.running { await download.report() }
        #expect(report.stoppedBy?.status == 429 && report.progress.pending == 85 && report.progress.failed == 0)
        #expect(lab.transport.count <= 4)
    }

    @Test func itWaitsAsLongAsTheServerAsks() async throws {
        let lab = try CacheLab()
        let source = try lab.source { $0.attempts = 1 }
        let refused = Locked(false)
        lab.transport.script { _ in
            let first = refused.withLock { was in
                defer { was = true }
                return !was
            }
            return first ? .answer(429, [.retryAfter: "20"]) : .answer(200, [.cacheControl: "max-age=600"])
        }
        let start = lab.clock.manual.ticks
        let download = try await lab.cache.download(source, world(source, 0...1))
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 5 && report.progress.failed == 0)
        #expect(lab.clock.manual.ticks - start >= 20_000_000_000)
    }

    @Test func aRateIsKept() async throws {
        let lab = try CacheLab()
        server(lab)
        let source = try lab.source()
        var options = DownloadOptions()
        options.requestsPerSecond = 10
        let start = lab.clock.manual.ticks
        let download = try await lab.cache.download(source, world(source), options: options)
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 85)
        // 85 requests at ten a second: the last starts 8.4 seconds after the first.
        #expect(lab.clock.manual.ticks - start >= 8_400_000_000)
    }

    @Test func budgetsEndIt() async throws {
        let lab = try CacheLab()
        server(lab)
        let source = try lab.source()
        var options = DownloadOptions()
        options.requestBudget = 7
        options.concurrency = 1
        let report = try await lab.cache.download(source, world(source), options: options).report()
        #expect(report.reachedBudget && !report.wasCancelled)
        #expect(lab.transport.count == 7)
    }
}

extension TestClock {
    /// Runs a body and moves the time on, a second at a time, whenever somebody sleeps.
    func running<R: Sendable>(_ body: @escaping @Sendable () async -> R) async -> R {
        let isDone = Locked(false)
        async let result: R = {
            let result = await body()
            isDone.withLock { $0 = true }
            return result
        }()
        while !isDone.withLock({ $0 }) {
            if sleepers > 0 { advance(seconds: 1) }
            await Task.yield()
        }
        return await result
    }
}
