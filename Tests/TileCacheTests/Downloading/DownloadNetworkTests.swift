import CacheEngine
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

/// What a download does about the network, decided as a value.
@Suite struct NetworkPolicyTests {
    @Test func onlyWhatIsAllowedIsUsed() {
        let (cellular, lowData) = (NetworkConditions.cellular, NetworkConditions.lowData)
        let both = NetworkConditions(isExpensive: true, isConstrained: true)
        func decide(_ use: NetworkUse, _ conditions: NetworkConditions) -> NetworkPolicy.Decision {
            var policy = NetworkPolicy(use)
            return policy.on(conditions)
        }
        for conditions in [NetworkConditions.wifi, .none, cellular, lowData, both] {
            #expect(decide(.any, conditions) == .goOn(triesAgain: false))
        }
        #expect(decide(.unmetered, .wifi) == .goOn(triesAgain: false))
        #expect(decide(.unmetered, cellular) == .wait(.isExpensive))
        #expect(decide(.unmetered, lowData) == .wait(.isConstrained))
        #expect(decide(.unmetered, both) == .wait(.isExpensive))
        let notInLowData = NetworkUse(allowsExpensive: true, allowsConstrained: false)
        #expect(decide(notInLowData, cellular) == .goOn(triesAgain: false))
        #expect(decide(notInLowData, both) == .wait(.isConstrained))
    }

    @Test func serversAreTriedAgainWhenANetworkComes() {
        var policy = NetworkPolicy(.unmetered)
        #expect(policy.on(.none) == .goOn(triesAgain: false))
        #expect(policy.on(.wifi) == .goOn(triesAgain: true))
        #expect(policy.on(.none) == .goOn(triesAgain: false))
        #expect(policy.on(.cellular) == .wait(.isExpensive))
        #expect(policy.on(.wifi) == .goOn(triesAgain: true))
    }

    @Test func whoeverJoinsARequestAllowsItItsNetworks() {
        var terms = FetchTerms()
        #expect(terms.networks == .unmetered)
        terms.add(FetchTerms(networks: NetworkUse(allowsExpensive: false, allowsConstrained: true)))
        #expect(terms.networks == NetworkUse(allowsExpensive: false, allowsConstrained: true))
        terms.add(FetchTerms(networks: NetworkUse(allowsExpensive: true, allowsConstrained: false)))
        #expect(terms.networks == .any)
    }
}

/// Downloads on networks that cost something, and downloads whose network comes back.
@Suite(.timeLimit(.minutes(60)))
struct DownloadNetworkTests {
    /// Zooms 0 to 2 of the whole world: 21 tiles.
    private func world(_ source: TileSource) throws -> TileCoverage {
        try source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...2)
    }

    private let fresh: HTTPFields = [.cacheControl: "max-age=864000"]

    @Test(arguments: [NetworkConditions.cellular, .lowData])
    func onANetworkThatItMayNotUseItAsksForNothingAndSaysWhy(conditions: NetworkConditions) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        lab.network.become(conditions)
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source))
        for await progress in download.updates() where progress.isWaiting { break }
        let obstacle = try #require(download.obstacle)
        #expect(obstacle.code == .networkNotAllowed)
        #expect(obstacle.message.contains(conditions.isExpensive ? "cellular" : "Low Data Mode"))
        #expect(lab.transport.count == 0)
        // For far longer than its patience: that is for servers.
        lab.clock.advance(seconds: 30 * 86_400)
        lab.network.become(.wifi)
        let report = await download.report()
        #expect(report.verdict == .complete && report.progress.fetched == 21)
        #expect(!download.progress.isWaiting && download.obstacle == nil)
        #expect(lab.clock.sleepers == 0 && lab.network.watchers == 0)
    }

    @Test func itWaitsAsSoonAsTheNetworkBecomesSuchAndFinishesWhatIsUnderWay() async throws {
        let lab = try CacheLab()
        let (door, fields) = (Latch(), fresh)
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, fields)
        }
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source))
        await until { door.waiting == 4 }
        lab.network.become(.cellular)
        await until { download.obstacle?.code == .networkNotAllowed }
        door.open()
        await until { download.progress.fetched == 4 }
        #expect(lab.transport.count == 4 && download.progress.isWaiting)
        lab.network.become(.wifi)
        #expect(await download.report().progress.fetched == 21)
    }

    @Test func nothingIsSentBeforeItIsKnownWhichNetworkItIs() async throws {
        let network = ScriptedNetwork(nil)
        let lab = try CacheLab { $0.network = network }
        lab.transport.answer(.answer(200, fresh))
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source))
        await until { network.watchers == 1 }
        for _ in 0..<1000 { await Task.yield() }
        #expect(lab.transport.count == 0 && !download.progress.isWaiting)
        network.become(.wifi)
        #expect(await download.report().progress.fetched == 21)
    }

    @Test func oneThatMayUseAnyNetworkGoesOn() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        lab.network.become(NetworkConditions(isExpensive: true, isConstrained: true))
        let source = try lab.source()
        var options = DownloadOptions()
        options.networks = .any
        let report = try await lab.cache.download(source, world(source), options: options).report()
        #expect(report.verdict == .complete)
        #expect(lab.transport.requests.allSatisfy { $0.networks == .any })
    }

    @Test func itsRequestsSayWhichNetworksTheyMayUse() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        let source = try lab.source()
        _ = try await lab.cache.download(source, world(source)).report()
        #expect(lab.transport.requests.allSatisfy { $0.networks == .unmetered })
        try await lab.load()
        #expect(lab.transport.requests.last?.networks == .any)
    }

    /// It had slept on until its back-off ended, minutes after the network was there again.
    @Test func itGoesOnAtOnceWhenTheNetworkIsBack() async throws {
        let lab = try CacheLab()
        lab.transport.goOffline()
        lab.network.become(.none)
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source))
        let fields = fresh
        // Until it is left alone for long.
        let start = lab.clock.manual.ticks
        while lab.clock.manual.ticks - start < 600_000_000_000 {
            await until { lab.clock.sleepers > 0 }
            lab.clock.advance(seconds: 5)
        }
        await until { lab.clock.sleepers > 0 && download.progress.isWaiting }
        #expect(download.obstacle?.code == .noAnswer)
        let now = lab.clock.manual.ticks
        lab.transport.script { _ in .answer(200, fields) }
        lab.network.become(.wifi)
        let report = await download.report()
        #expect(report.verdict == .complete && report.progress.fetched == 21)
        #expect(lab.clock.manual.ticks == now, "no time has passed")
    }

    @Test func aPrefetchOrRefreshDoesNotWaitForAnotherNetwork() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, [.cacheControl: "max-age=1"]))
        let source = try lab.source()
        lab.network.become(.cellular)
        let middle = try TileAddress(z: 3, x: 1, y: 1)
        let prefetch = try lab.cache.prefetch(source, around: middle, plan: PrefetchPlan(rings: 0...0))
        #expect(await prefetch.report().progress.fetched > 0)
        let sent = lab.transport.count
        lab.clock.advance(seconds: 60)
        lab.network.become(.lowData)
        let second = await (try lab.cache.prefetch(source, around: middle)).report()
        #expect(second.stoppedBy?.code == .networkNotAllowed && second.progress.done == 0)
        let refresh = await (try await lab.cache.refreshStale(source)).report()
        #expect(refresh.stoppedBy?.code == .networkNotAllowed && refresh.progress.pending > 0)
        #expect(lab.transport.count == sent)
    }

    @Test func oneThatWaitsForANetworkIsCancelledAndClosedLikeOthers() async throws {
        let lab = try CacheLab()
        lab.network.become(.cellular)
        let source = try lab.source()
        let first = try await lab.cache.download(source, world(source))
        let second = try await lab.cache.download(source, world(source))
        await until { first.progress.isWaiting && second.progress.isWaiting }
        first.cancel()
        #expect(await first.report().wasCancelled)
        try lab.cache.close()
        #expect(await second.report().stoppedBy?.code == .closed)
        #expect(lab.network.watchers == 0)
    }

    @Test func aPauseLastsAlsoWhenAnotherNetworkComes() async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        lab.network.become(.cellular)
        let source = try lab.source()
        let download = try await lab.cache.download(source, world(source))
        download.pause()
        await until { download.progress.isWaiting }
        lab.network.become(.wifi)
        await until { !download.progress.isWaiting }
        for _ in 0..<1000 { await Task.yield() }
        #expect(lab.transport.count == 0)
        download.resume()
        #expect(await download.report().verdict == .complete)
    }

    #if !canImport(Network)
    @Test func theSystemTellsOfTheNetworkAtOnce() async {
        for await conditions in SystemNetworkMonitor().conditions() {
            #expect(!conditions.isExpensive && !conditions.isConstrained)
            #expect(conditions.isReachable == Routes.leadAnywhere())
            break
        }
    }
    #endif

    /// Who waited for its turn at the download's rate was sent all the same, hours later even.
    @Test(arguments: ["cellular", "suspended", "paused"])
    func whoWaitsForTheRateIsHeldUpToo(how: String) async throws {
        let lab = try CacheLab()
        lab.transport.answer(.answer(200, fresh))
        let source = try lab.source()
        var options = DownloadOptions()
        options.concurrency = 8
        options.requestsPerSecond = 0.1
        let download = try await lab.cache.download(source, world(source), options: options)
        // The first tile is stored: one that comes into a suspended cache is asked for again.
        await until { download.progress.fetched == 1 && lab.clock.sleepers >= 7 }
        switch how {
        case "cellular":
            lab.network.become(.cellular)
            await until { download.progress.isWaiting }
        case "paused": download.pause()
        default: lab.cache.suspend()
        }
        let before = lab.transport.count
        for _ in 0..<200 {
            lab.clock.advance(seconds: 1)
            for _ in 0..<20 { await Task.yield() }
        }
        #expect(lab.transport.count == before)
        switch how {
        case "cellular": lab.network.become(.wifi)
        case "paused": download.resume()
        default: lab.cache.resume()
        }
        while !download.isOver {
            lab.clock.advance(seconds: 1)
            await Task.yield()
        }
        #expect(await download.report().verdict == .complete)
        #expect(lab.transport.count == 21)
    }
}
