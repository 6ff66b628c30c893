import CacheEngine
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct SingleFlightTests {
    private typealias Flights = SingleFlight<Int, Int>

    /// Numbers the runs and knows which were cancelled.
    private final class Runs: Sendable {
        private let state = Locked<(begun: Int, cancelled: Int)>((0, 0))
        var begun: Int { state.withLock { $0.begun } }
        var cancelled: Int { state.withLock { $0.cancelled } }
        func begin() -> Int {
            state.withLock {
                $0.begun += 1
                return $0.begun
            }
        }
        func cancel() { state.withLock { $0.cancelled += 1 } }
    }

    private func work(_ runs: Runs, _ door: Latch) -> @Sendable (FetchTicket) async throws -> Int {
        { _ in
            let run = runs.begin()
            do { try await door.pass() } catch {
                runs.cancel()
                throw error
            }
            return run
        }
    }

    @Test func aThousandAskersShareOneRun() async throws {
        let (flights, runs, door) = (Flights(), Runs(), Latch())
        let work = work(runs, door)
        let tasks = (0..<1000).map { _ in Task { try await flights.value(for: 1, priority: .visible, work: work) } }
        await until { flights.waiters(for: 1) == 1000 }
        door.open()
        for task in tasks { #expect(try await task.value == 1) }
        #expect(runs.begun == 1 && flights.count == 0)
    }

    @Test func aWaiterThatGivesUpCancelsNothingForOthers() async throws {
        let (flights, runs, door) = (Flights(), Runs(), Latch())
        let work = work(runs, door)
        let first = Task { try await flights.value(for: 1, priority: .visible, work: work) }
        let second = Task { try await flights.value(for: 1, priority: .visible, work: work) }
        await until { flights.waiters(for: 1) == 2 }
        first.cancel()
        await #expect(throws: CancellationError.self) { try await first.value }
        door.open()
        #expect(try await second.value == 1)
        #expect(runs.cancelled == 0)
    }

    @Test func theLastOneToLeaveCancelsTheWorkAndTheNextStartsAfresh() async throws {
        let (flights, runs, door) = (Flights(), Runs(), Latch())
        let work = work(runs, door)
        let tasks = (0..<3).map { _ in Task { try await flights.value(for: 1, priority: .visible, work: work) } }
        await until { flights.waiters(for: 1) == 3 && door.waiting == 1 }
        for task in tasks { task.cancel() }
        for task in tasks { await #expect(throws: CancellationError.self) { try await task.value } }
        #expect(flights.count == 0)
        let next = Task { try await flights.value(for: 1, priority: .visible, work: work) }
        await until { runs.begun == 2 && runs.cancelled == 1 }
        door.open()
        #expect(try await next.value == 2)
    }

    @Test func workInTheBackgroundGoesOnWithoutAWaiter() async throws {
        let (flights, runs, door) = (Flights(), Runs(), Latch())
        let work = work(runs, door)
        flights.start(1, priority: .refresh, work: work)
        let visitor = Task { try await flights.value(for: 1, priority: .visible, work: work) }
        await until { flights.waiters(for: 1) == 1 }
        visitor.cancel()
        await #expect(throws: CancellationError.self) { try await visitor.value }
        #expect(flights.count == 1)
        flights.start(1, priority: .refresh, work: work)
        door.open()
        await until { flights.count == 0 }
        #expect(runs.begun == 1 && runs.cancelled == 0)
    }

    @Test func whoJoinsMakesItMoreUrgent() async throws {
        let (flights, door) = (Flights(), Latch())
        let ticket = Locked<FetchTicket?>(nil)
        flights.start(1, priority: .refresh) { given in
            ticket.withLock { $0 = given }
            try await door.pass()
            return 0
        }
        await until { door.waiting == 1 }
        #expect(ticket.withLock { $0?.priority } == .refresh)
        let visitor = Task { try await flights.value(for: 1, priority: .visible) { _ in 1 } }
        await until { flights.waiters(for: 1) == 1 }
        await until { ticket.withLock { $0?.priority } == .visible }
        door.open()
        #expect(try await visitor.value == 0)
    }

    @Test func allWaitersGetTheError() async {
        let (flights, door) = (Flights(), Latch())
        let tasks = (0..<5).map { _ in
            Task {
                try await flights.value(for: 1, priority: .visible) { _ in
                    try await door.pass()
                    throw BoomError()
                }
            }
        }
        await until { flights.waiters(for: 1) == 5 }
        door.open()
        for task in tasks { await #expect(throws: BoomError.self) { try await task.value } }
        #expect(flights.count == 0)
    }

    @Test func whoIsCancelledAlreadyStartsNothing() async {
        let (flights, runs, door) = (Flights(), Runs(), Latch())
        let task = Task {
            try? await door.pass()
            return try await flights.value(for: 1, priority: .visible) { _ in runs.begin() }
        }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(runs.begun == 0 && flights.count == 0)
    }

    /// Nobody who waits is left hanging by the end of everything, and nobody starts anew after it.
    @Test func closingSendsEverybodyAway() async {
        let (flights, runs, door) = (Flights(), Runs(), Latch())
        let work = work(runs, door)
        let tasks = (0..<4).map { key in Task { try await flights.value(for: key, priority: .visible, work: work) } }
        flights.start(9, priority: .refresh, work: work)
        await until { door.waiting == 5 }
        flights.close()
        for task in tasks { await #expect(throws: CancellationError.self) { try await task.value } }
        await until { runs.cancelled == 5 }
        #expect(flights.count == 0)
        await #expect(throws: CancellationError.self) {
            try await flights.value(for: 1, priority: .visible, work: work)
        }
        flights.start(1, priority: .refresh, work: work)
        #expect(flights.count == 0 && runs.begun == 5)
    }

    /// Work that ends only when it is cancelled: were a cancellation lost between asking and waiting, this would hang.
    @Test(arguments: 0..<4)
    func everybodyLeavingAlwaysCancelsTheWork(part: Int) async {
        for seed in Seeds.share(part, of: 4, count: 4000) {
            var random = SplitMix64(seed: seed)
            let flights = Flights()
            let never = Latch()
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<(1 + random.below(3)) {
                    let pauses = random.below(3), spins = random.below(60)
                    group.addTask {
                        let task = Task {
                            try await flights.value(for: 1, priority: .visible) { _ in
                                try await never.pass()
                                return 1
                            }
                        }
                        for _ in 0..<pauses { await Task.yield() }
                        for _ in 0..<spins { _ = flights.count }
                        task.cancel()
                        _ = await task.result
                    }
                }
            }
            await until { flights.count == 0 && never.waiting == 0 }
        }
    }

    /// What ran at the same time for one key, and which runs somebody got the value of.
    private struct Ledger {
        var last = 0
        var running: [Int: Set<Int>] = [:]
        var overlaps: [(Int, Int)] = []
        var delivered: Set<Int> = []

        mutating func begin(_ key: Int) -> Int {
            last += 1
            for other in running[key] ?? [] { overlaps.append((other, last)) }
            running[key, default: []].insert(last)
            return last
        }
    }

    /// Random crowds: nobody hangs, who has not left gets a value, and of two runs of one key at the same time one had
    /// been given up: nobody got its value.
    @Test(arguments: 0..<4)
    func noScheduleLosesAWaiterOrDoublesARun(part: Int) async {
        for seed in Seeds.share(part, of: 4, count: 2000) {
            var random = SplitMix64(seed: seed)
            let flights = Flights()
            let ledger = Locked(Ledger())
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<(2 + random.below(8)) {
                    let key = random.below(2)
                    let before = random.below(4), during = random.below(4), cancelAfter = random.below(8)
                    let isCancelled = random.oneIn(2), isKept = random.oneIn(6)
                    let work: @Sendable (FetchTicket) async throws -> Int = { _ in
                        let run = ledger.withLock { $0.begin(key) }
                        for _ in 0..<during { await Task.yield() }
                        ledger.withLock { _ = $0.running[key]?.remove(run) }
                        return run
                    }
                    group.addTask {
                        for _ in 0..<before { await Task.yield() }
                        if isKept { return flights.start(key, priority: .refresh, work: work) }
                        let task = Task { try await flights.value(for: key, priority: .visible, work: work) }
                        for _ in 0..<cancelAfter { await Task.yield() }
                        if isCancelled { task.cancel() }
                        switch await task.result {
                        case .success(let run): ledger.withLock { _ = $0.delivered.insert(run) }
                        case .failure(let error):
                            if !isCancelled { Issue.record("seed \(seed): \(error)") }
                        }
                    }
                }
            }
            await until { flights.count == 0 }
            let doubled = ledger.withLock { ledger in
                ledger.overlaps.contains { ledger.delivered.contains($0.0) && ledger.delivered.contains($0.1) }
            }
            #expect(!doubled, "seed \(seed): two runs at once")
        }
    }
}
