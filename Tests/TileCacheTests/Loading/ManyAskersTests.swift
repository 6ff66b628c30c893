import CacheEngine
import Foundation
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct ManyAskersTests {
    @Test func aThousandAskersOfAMissingTileCostOneRequest() async throws {
        let lab = try CacheLab()
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let tasks = (0..<1000).map { _ in Task { try await lab.load()?.data } }
        let flight = FlightKey(key: try lab.key(), isStored: true)
        await until { lab.cache.flights.waiters(for: flight) == 1000 }
        door.open()
        for task in tasks { #expect(try await task.value == Picture.png(1)) }
        #expect(lab.transport.count == 1)
    }

    /// Nothing holds the flight open: some askers look before it lands and ask after.
    ///
    /// They find what it has brought.
    @Test func nobodyAsksAgainForWhatHasLandedMeanwhile() async throws {
        for _ in 0..<20 {
            let lab = try CacheLab()
            lab.transport.answer(.answer(200, [.cacheControl: "max-age=60"]))
            try await withThrowingTaskGroup(of: Data?.self) { group in
                for _ in 0..<200 { group.addTask { try await lab.load()?.data } }
                for try await data in group { #expect(data == Picture.png(1)) }
            }
            #expect(lab.transport.count == 1)
        }
    }

    @Test func theSameHoldsForAStaleTile() async throws {
        let lab = try CacheLab()
        for x in 1...20 {
            try await lab.prime(x)
            lab.clock.advance(seconds: 100)
            let before = lab.transport.count
            lab.transport.answer(.answer(304, [.eTag: "\"a\""]))
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<100 { group.addTask { _ = try await lab.load(x) } }
                try await group.waitForAll()
            }
            #expect(lab.transport.count == before + 1)
        }
    }

    /// The same as a matter of order, not of luck: the look of the flight itself finds the tile.
    @Test func aFlightLooksAgainBeforeItAsks() async throws {
        let lab = try CacheLab()
        try await lab.prime()
        let order = FetchOrder(source: try lab.source(), key: try lab.key(), stored: nil, mode: .standard)
        #expect(try await lab.cache.fetch(order, FetchTicket(.visible)).origin.isCached)
        #expect(lab.transport.count == 1)
    }

    @Test func aCallerWhoLeavesCancelsNothingAndTheLastOneTheRequest() async throws {
        let lab = try CacheLab()
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let flight = FlightKey(key: try lab.key(), isStored: true)
        let first = Task { try await lab.load() }
        let second = Task { try await lab.load() }
        await until { lab.cache.flights.waiters(for: flight) == 2 && door.waiting == 1 }
        first.cancel()
        await #expect(throws: CancellationError.self) { try await first.value }
        #expect(lab.transport.cancelled == 0)
        second.cancel()
        await #expect(throws: CancellationError.self) { try await second.value }
        await until { lab.transport.cancelled == 1 && lab.transport.active == 0 }
        door.open()
        // Nobody's fault: it is asked for again at once.
        #expect(try await lab.load()?.origin == .network)
    }

    @Test func noMoreRequestsThanAllowedGoToOneHost() async throws {
        let lab = try CacheLab { $0.requestsPerHost = 3 }
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        let other = try lab.source("other", "https://other.example/{z}/{x}/{y}.png")
        let tasks = (1...40).map { x in Task { try await lab.load(x) } }
        let others = (1...5).map { x in Task { try await lab.cache.tile(other, z: 12, x: x, y: 2) } }
        await until { door.waiting == 6 }
        door.open()
        for task in tasks + others { _ = try await task.value }
        #expect(lab.transport.mostActive("tiles.example") == 3)
        #expect(lab.transport.mostActive("other.example") == 3)
        #expect(lab.transport.count == 45)
        #expect(lab.cache.slots.originCount == 0)
    }

    @Test func whatIsLookedAtOvertakesPrefetchingAndAJoinedFlightRises() async throws {
        let lab = try CacheLab { $0.requestsPerHost = 1 }
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200, [.cacheControl: "max-age=60"])
        }
        var tasks: [Task<CachedTile?, any Error>] = [Task { try await lab.load(1) }]
        await until { door.waiting == 1 }
        func ask(_ x: Int, _ priority: FetchPriority) async {
            let before = lab.cache.slots.waiting("tiles.example")
            tasks.append(Task { try await lab.load(x, priority: priority) })
            await until { lab.cache.slots.waiting("tiles.example") == before + 1 }
        }
        await ask(2, .refresh)
        await ask(3, .prefetch)
        await ask(4, .prefetch)
        await ask(5, .visible)
        let flight = FlightKey(key: try lab.key(4), isStored: true)
        tasks.append(Task { try await lab.load(4, priority: .visible) })
        await until { lab.cache.flights.waiters(for: flight) == 2 }
        door.open()
        for task in tasks { _ = try await task.value }
        #expect(lab.transport.paths.map { $0.split(separator: "/")[1] } == ["1", "5", "4", "3", "2"])
    }

    @Test func closingSendsThoseWhoWaitAway() async throws {
        let lab = try CacheLab { $0.requestsPerHost = 2 }
        let door = Latch()
        lab.transport.script { _ in
            try await door.pass()
            return .answer(200)
        }
        let tasks = (1...10).map { x in Task { await lab.failure(x)?.code } }
        await until { door.waiting == 2 && lab.cache.slots.waiting("tiles.example") == 8 }
        try lab.cache.close()
        for task in tasks { #expect(await task.value == .closed) }
        await until { lab.transport.active == 0 && lab.cache.slots.originCount == 0 }
        #expect(lab.transport.count == 2)
        await #expect(throws: StoreError.self) { try await lab.load(1) }
        // Not even a mode that needs no cache sends anything any more.
        #expect(await lab.failure(1, .serverOnly)?.code == .closed)
        #expect(lab.transport.count == 2)
    }

    /// Random modes, tiles, answers and cancellations: everybody gets a tile or an error, and nothing is left behind.
    @Test(arguments: 0..<4)
    func noCrowdLeavesAnythingBehind(part: Int) async throws {
        for seed in Seeds.share(part, of: 4, count: 80) {
            var random = SplitMix64(seed: seed)
            let lab = try CacheLab { $0.requestsPerHost = 2 }
            let chance = Locked(SplitMix64(seed: seed &+ 1000))
            lab.transport.script { _ in
                let draw = chance.withLock { $0.below(12) }
                for _ in 0..<(draw % 4) { await Task.yield() }
                if Task.isCancelled { throw CancellationError() }
                switch draw {
                case 0: throw TransportError(.connection, "gone")
                case 1: return .answer(503)
                case 2: return .answer(404, [.cacheControl: "max-age=1"])
                case 3: return .answer(304)
                case 4: return .answer(200, [.cacheControl: "no-store"])
                default:
                    return .answer(
                        200, [.cacheControl: "max-age=1, stale-while-revalidate=3", .eTag: "\"a\""],
                        body: Picture.png(draw))
                }
            }
            let source = try lab.source { $0.attempts = 1 }
            for _ in 0..<3 {
                await withTaskGroup(of: Void.self) { group in
                    for _ in 0..<20 {
                        let x = random.below(4)
                        let mode = random.pick(LoadMode.allCases), priority = random.pick(FetchPriority.allCases)
                        let isCancelled = random.oneIn(4), pauses = random.below(5)
                        group.addTask {
                            let task = Task { try await lab.load(x, mode, priority: priority, from: source) }
                            for _ in 0..<pauses { await Task.yield() }
                            if isCancelled { task.cancel() }
                            if case .failure(let error) = await task.result {
                                let isExpected = error is TileCacheError || (isCancelled && error is CancellationError)
                                if !isExpected { Issue.record("seed \(seed): \(error)") }
                            }
                        }
                    }
                }
                lab.clock.advance(seconds: Int64(random.below(4)))
            }
            await until { lab.cache.flights.count == 0 }
            await until { lab.cache.slots.originCount == 0 && lab.transport.active == 0 }
            try lab.cache.close()
        }
    }
}
