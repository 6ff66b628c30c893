import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Downloads whose server is away for a while, and downloads whose tiles cannot be kept.
@Suite(.timeLimit(.minutes(60)))
struct DownloadOutageTests {
    /// Zooms 0 to 3 of the whole world: 85 tiles.
    private func world(_ source: TileSource, _ zooms: ClosedRange<Int> = 0...3) throws -> TileCoverage {
        try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: zooms)
    }

    private let fresh: HTTPFields = [.cacheControl: "max-age=864000"]

    // MARK: A server that is away

    @Test func anOutageOfTwentyMinutesIsWaitedFor() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let back = lab.clock.manual.ticks + 1_200_000_000_000
        let clock = lab.clock.manual
        let fields = fresh
        lab.transport.script { _ in
            guard clock.ticks >= back else { throw TransportError(.connection, "no route to the host") }
            return .answer(200, fields)
        }
        let download = try await lab.cache.download(source, world(source))
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 85 && report.progress.failed == 0 && report.stoppedBy == nil)
        // Probes, further and further apart, and not a try of every tile.
        #expect(lab.transport.count < 85 + 200)
    }

    @Test(arguments: [TransportError.Code.nameNotFound, .timeout, .tls])
    func whateverTheNetworkSaysWhileItIsAwayNoTileHasFailed(code: TransportError.Code) async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let back = lab.clock.manual.ticks + 600_000_000_000
        let clock = lab.clock.manual
        let fields = fresh
        lab.transport.script { _ in
            guard clock.ticks >= back else { throw TransportError(code, "tiles.example is away") }
            return .answer(200, fields)
        }
        let download = try await lab.cache.download(source, world(source, 0...2))
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 21 && report.progress.failed == 0)
    }

    @Test(arguments: [429, 503])
    func aServerThatAsksForTwoMinutesGetsThem(status: Int) async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let start = lab.clock.manual.ticks
        let clock = lab.clock.manual
        let early = Locked(0)
        let fields = fresh
        lab.transport.script { _ in
            guard clock.ticks - start >= 120_000_000_000 else {
                early.withLock { $0 += 1 }
                return .answer(status, [.retryAfter: "120"])
            }
            return .answer(200, fields)
        }
        let download = try await lab.cache.download(source, world(source))
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 85 && report.progress.failed == 0)
        #expect(early.withLock { $0 } <= 4, "those under way when it said so, and none after that")
    }

    @Test func aTileThatNeverComesDoesNotHoldUpTheOthers() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let fields = fresh
        lab.transport.script { request in
            if request.head.path == "/1/0/1.png" { throw TransportError(.timeout, "no answer in time") }
            return .answer(200, fields)
        }
        var options = DownloadOptions()
        options.patience = .seconds(300)
        options.requestsPerSecond = 5
        let download = try await lab.cache.download(source, world(source), options: options)
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 84 && report.progress.failed == 1 && report.stoppedBy == nil)
        #expect(lab.transport.count(of: "/1/0/1.png") >= 4)
    }

    @Test(arguments: [429, 502, 503, 504])
    func theLastTileWhoseServerFailsForItAloneIsNotWaitedForAllDay(status: Int) async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let fields = fresh
        lab.transport.script { request in
            request.head.path == "/2/1/1.png" ? .answer(status) : .answer(200, fields)
        }
        let start = lab.clock.manual.ticks
        let download = try await lab.cache.download(source, world(source))
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 84 && report.progress.failed == 1 && report.stoppedBy == nil)
        #expect(report.failures.first?.error.status == status)
        #expect(lab.clock.manual.ticks - start < 300_000_000_000)
        #expect(lab.transport.count < 85 + 16)
    }

    /// As above, where nothing came in this run, since all others are there.
    @Test func theOneTileThatIsMissingIsNotWaitedForAllDayEither() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let fields = fresh
        let isBroken = Locked(false)
        lab.transport.script { request in
            if request.head.path == "/2/1/1.png" {
                if isBroken.withLock({ $0 }) { throw TransportError(.timeout, "no answer in time") }
                return .answer(403)
            }
            return .answer(200, fields)
        }
        _ = try await lab.cache.download(source, world(source)).report()
        isBroken.withLock { $0 = true }
        let start = lab.clock.manual.ticks
        lab.cache.forgetFailures()
        let download = try await lab.cache.download(source, world(source))
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.unchanged == 84 && report.progress.failed == 1 && report.stoppedBy == nil)
        #expect(lab.clock.manual.ticks - start < 300_000_000_000)
    }

    @Test func anOutageWhenOnlyAFewTilesAreLeftIsWaitedForAndFailsNone() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let clock = lab.clock.manual
        let back = clock.ticks + 3_600_000_000_000
        let served = Locked(0)
        let fields = fresh
        lab.transport.script { _ in
            let number = served.withLock { count in
                count += 1
                return count
            }
            guard number <= 80 || clock.ticks >= back else { throw TransportError(.timeout, "no answer in time") }
            return .answer(200, fields)
        }
        let download = try await lab.cache.download(source, world(source))
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 85 && report.progress.failed == 0 && report.stoppedBy == nil)
    }

    @Test func aServerThatAsksForPausesForOneTileIsGivenUpAfterThePatience() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let fields = fresh
        lab.transport.script { request in
            request.head.path == "/2/1/1.png" ? .answer(503, [.retryAfter: "5"]) : .answer(200, fields)
        }
        var options = DownloadOptions()
        options.patience = .seconds(600)
        let start = lab.clock.manual.ticks
        let download = try await lab.cache.download(source, world(source), options: options)
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 84 && report.progress.pending == 1 && report.stoppedBy != nil)
        #expect(lab.clock.manual.ticks - start < 900_000_000_000)
    }

    /// It was asked for every second or two for a day.
    @Test func aTileForWhichAServerAlwaysAsksForASecondIsNotAskedForAllDay() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let fields = fresh
        lab.transport.script { request in
            request.head.path == "/2/1/1.png" ? .answer(429, [.retryAfter: "1"]) : .answer(200, fields)
        }
        let download = try await lab.cache.download(source, world(source))
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.fetched == 84 && report.progress.failed == 1 && report.stoppedBy == nil)
        #expect(report.failures.first?.error.status == 429)
        #expect(lab.transport.count < 85 + 2 * TileDownload.mostPauses + 32)
    }

    @Test func tilesThatTheServerNeverGivesDoNotKeepTheOthersFromBeingAskedFor() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let fields = fresh
        // More in a row than are kept for another try.
        lab.transport.script { request in
            let parts = (request.head.path ?? "").split(separator: "/")
            let row = parts.last.flatMap { Int($0.prefix { $0 != "." }) } ?? 0
            return parts.first == "6" && row < 18 ? .answer(503) : .answer(200, fields)
        }
        var options = DownloadOptions()
        options.attempts = 1
        options.patience = .seconds(7200)
        let download = try await lab.cache.download(source, world(source, 0...6), options: options)
        let report = await lab.clock.running { await download.report() }
        #expect(report.progress.failed == 18 * 64 && report.progress.fetched == 5461 - 18 * 64)
        #expect(report.stoppedBy == nil)
    }

    // MARK: Tiles that are not kept

    @Test func tilesThatMayNotBeStoredDoNotEndADownloadOfOthersThatMay() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let fields = fresh
        lab.transport.script { request in
            let path = request.head.path ?? ""
            let isSea = path.hasPrefix("/4/") && ["/0.png", "/1.png", "/2.png"].contains { path.hasSuffix($0) }
            return .answer(200, isSea ? [.cacheControl: "no-store"] : fields)
        }
        let download = try await lab.cache.download(source, world(source, 0...4))
        let report = await download.report()
        #expect(report.progress.fetched == 293 && report.progress.failed == 48 && report.stoppedBy == nil)
        // Again: what is there shows that not all is forbidden.
        let again = try await lab.cache.download(source, world(source, 0...4)).report()
        #expect(again.progress.unchanged == 293 && again.progress.pending == 0)
    }

    @Test func aServerThatForbidsStoringAnythingIsNotAskedForEverything() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "no-store"]))
        let source = try lab.source()
        let report = try await lab.cache.download(source, world(source, 0...4)).report()
        #expect(report.stoppedBy?.code == .notStored && lab.transport.count < 40)
    }

    @Test(arguments: [HTTPFields([.init(name: .cacheControl, value: "no-store")]), [.vary: "*"]])
    func aTileThatMayNotBeStoredIsNotCountedAsFetched(fields: HTTPFields) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fields))
        let source = try lab.source()
        let report = try await lab.cache.download(source, world(source, 0...1), named: "world").report()
        #expect(report.progress.fetched == 0 && report.progress.failed == 5)
        #expect(try lab.store.statistics().entries == 0)
    }

    @Test func aFullDiskIsNoSuccess() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        let source = try lab.source()
        let coverage = try world(source)
        _ = try await lab.cache.download(source, world(source, 0...0), named: "world").report()
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        let report = try await lab.cache.download(source, coverage).report()
        #expect(report.progress.fetched == 0 && report.progress.fraction < 0.1)
        #expect(lab.transport.count < 60, "a full disk is noticed before the whole region has been asked for in vain")
        lab.files.fail(nil)
        #expect(try await lab.cache.download(source, coverage).report().progress.fetched == 84)
    }

    @Test func a304WithNoStoreLeavesAPinnedTileWhereItIs() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""]))
        let source = try lab.source()
        let coverage = try world(source, 0...1)
        _ = try await lab.cache.download(source, coverage, named: "world").report()
        lab.clock.advance(seconds: 3600)
        lab.transport.answer(.answer(304, [.cacheControl: "no-store", .eTag: "\"a\""]))
        let report = try await lab.cache.download(source, coverage, named: "world").report()
        #expect(try lab.store.regionStatistics().first?.present == 5)
        #expect(report.progress.revalidated == 5)
    }

    @Test func a304WithNoStoreIsNoSuccessForATileThatNobodyPins() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=60", .eTag: "\"a\""]))
        let source = try lab.source()
        let coverage = try world(source, 0...1)
        _ = try await lab.cache.download(source, coverage).report()
        lab.clock.advance(seconds: 3600)
        lab.transport.answer(.answer(304, [.cacheControl: "no-store", .eTag: "\"a\""]))
        let report = try await lab.cache.download(source, coverage).report()
        #expect(try lab.store.statistics().entries == 0)
        #expect(report.progress.revalidated == 0 && report.progress.failed == 5)
    }

    @Test func aRegionThatEvictionEatsIsNotComplete() async throws {
        let lab = try CacheLab { $0.store.capacity = 40_000 }
        lab.transport.script { request in
            let number = (request.head.path?.hashValue ?? 0) & 0xFFFF_FFFF
            return .answer(200, [.cacheControl: "max-age=60"], body: Picture.png(number, size: 5000))
        }
        let source = try lab.source()
        let report = try await lab.cache.download(source, world(source, 0...2)).report()
        #expect(report.progress.fraction < 1)
    }

    // MARK: Budgets

    @Test func triesThatFailCountAgainstTheBudget() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(500))
        let source = try lab.source()
        var options = DownloadOptions()
        options.requestBudget = 7
        options.attempts = 100
        let download = try await lab.cache.download(source, world(source, 0...1), options: options)
        let report = await lab.clock.running { await download.report() }
        #expect(lab.transport.count == 7 && report.reachedBudget)
    }

    @Test func severalAtOnceStayWithinTheBudgetOfRequests() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        let source = try lab.source()
        var options = DownloadOptions()
        options.requestBudget = 7
        options.concurrency = 6
        let report = try await lab.cache.download(source, world(source), options: options).report()
        #expect(lab.transport.count == 7 && report.progress.fetched == 7 && report.reachedBudget)
    }

    @Test func aBodyThatIsRefusedCountsAgainstTheBudgetOfBytes() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.contentType: "text/html"], body: Picture.png(1, size: 1000)))
        let source = try lab.source()
        var options = DownloadOptions()
        options.byteBudget = 3000
        options.concurrency = 1
        let report = try await lab.cache.download(source, world(source), options: options).report()
        #expect(lab.transport.count == 3 && report.progress.bytes == 3000 && report.reachedBudget)
    }

    @Test(arguments: [0, -1, .nan, .infinity])
    func aRateThatIsNoneIsRefused(rate: Double) async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        var options = DownloadOptions()
        options.requestsPerSecond = rate
        await #expect(throws: TileCacheError.self) {
            _ = try await lab.cache.download(source, world(source), named: "world", options: options).report()
        }
        #expect(lab.transport.count == 0)
        #expect(try lab.store.regions().isEmpty)
    }

    /// Looking up every tile of a large region would take hours for a handful of requests.
    @Test func theEndOfADownloadOfTheWholeWorldOnABudgetComesAtOnce() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        let source = try lab.source()
        _ = try await lab.cache.tile(source, z: 12, x: 7, y: 2000)
        var options = DownloadOptions()
        options.requestBudget = 10
        // Else a tile whose turn comes later may be asked for earlier, and one of zoom 2 more be there.
        options.concurrency = 1
        let report = try await lab.cache.download(source, world(source, 0...16), options: options).report()
        #expect(report.reachedBudget && report.progress.fetched == 10)
        #expect(report.present == 11, "the one of zoom 12 counts too")
        let next = try await lab.cache.download(source, world(source, 2...16), options: options).report()
        #expect(next.present == 16, "\(next)")
    }

    // MARK: Closing

    @Test func closingEndsADownloadAndLeavesTheRestPending() async throws {
        let lab = try CacheLab()
        let source = try lab.source()
        let latch = Latch()
        let served = Locked(0)
        let fields = fresh
        lab.transport.script { _ in
            let number = served.withLock { count in
                count += 1
                return count
            }
            if number > 10 { try await latch.pass() }
            return .answer(200, fields)
        }
        let download = try await lab.cache.download(source, world(source))
        await until { latch.waiting > 0 && download.progress.done == 10 }
        try lab.cache.close()
        let report = await download.report()
        #expect(report.progress.fetched == 10 && report.progress.failed == 0 && report.failures.isEmpty)
        #expect(report.stoppedBy != nil)
    }

    @Test func aPausedDownloadEndsWhenTheCacheIsClosed() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        let source = try lab.source()
        var options = DownloadOptions()
        options.startsPaused = true
        let download = try await lab.cache.download(source, world(source), options: options)
        try lab.cache.close()
        let ended = Locked(false)
        let waiter = Task {
            _ = await download.report()
            ended.withLock { $0 = true }
        }
        for _ in 0..<200_000 where !ended.withLock({ $0 }) { await Task.yield() }
        #expect(ended.withLock { $0 })
        download.cancel()
        await waiter.value
    }

    @Test func whoWaitsForATileIsToldThatTheCacheWasClosed() async throws {
        let lab = try CacheLab()
        let latch = Latch()
        lab.transport.script { _ in
            try await latch.pass()
            return .answer(200)
        }
        let waiter = Task { await lab.failure() }
        await until { latch.waiting == 1 }
        try lab.cache.close()
        #expect(await waiter.value?.code.description == "closed")
    }
}
