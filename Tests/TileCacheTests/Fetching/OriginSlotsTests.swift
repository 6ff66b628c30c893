import CacheEngine
import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

@Suite(.timeLimit(.minutes(60)))
struct OriginSlotsTests {
    /// Counts who is inside, and in which order they came.
    private final class Inside: Sendable {
        private let state = Locked<(now: Int, most: Int, order: [Int])>((0, 0, []))
        var most: Int { state.withLock { $0.most } }
        var order: [Int] { state.withLock { $0.order } }
        func enter(_ who: Int) {
            state.withLock {
                $0.now += 1
                $0.most = max($0.most, $0.now)
                $0.order.append(who)
            }
        }
        func leave() { state.withLock { $0.now -= 1 } }
    }

    @Test func theMoreUrgentGoFirstThenThoseWhoCameFirst() async throws {
        let slots = OriginSlots(perOrigin: 1)
        let (door, inside) = (Latch(), Inside())
        let blocker = Task { try await slots.withSlot("a", FetchTicket(.visible)) { try await door.pass() } }
        await until { door.waiting == 1 }
        let priorities: [FetchPriority] = [.refresh, .prefetch, .visible, .refresh, .visible, .prefetch]
        var tasks: [Task<Void, any Error>] = []
        for (number, priority) in priorities.enumerated() {
            tasks.append(
                Task { try await slots.withSlot("a", FetchTicket(priority)) { inside.enter(number) } })
            await until { slots.waiting("a") == number + 1 }
        }
        // Another host is not held up.
        try await slots.withSlot("b", FetchTicket(.refresh)) {}
        door.open()
        try await blocker.value
        for task in tasks { try await task.value }
        #expect(inside.order == [2, 4, 1, 5, 0, 3])
        #expect(slots.originCount == 0)
    }

    @Test func aTicketThatRisesOvertakes() async throws {
        let slots = OriginSlots(perOrigin: 1)
        let (door, inside) = (Latch(), Inside())
        let blocker = Task { try await slots.withSlot("a", FetchTicket(.visible)) { try await door.pass() } }
        await until { door.waiting == 1 }
        let tickets = (0..<3).map { _ in FetchTicket(.refresh) }
        var tasks: [Task<Void, any Error>] = []
        for (number, ticket) in tickets.enumerated() {
            tasks.append(Task { try await slots.withSlot("a", ticket) { inside.enter(number) } })
            await until { slots.waiting("a") == number + 1 }
        }
        tickets[2].raise(to: .visible)
        tickets[1].raise(to: .prefetch)
        tickets[2].raise(to: .prefetch)
        door.open()
        try await blocker.value
        for task in tasks { try await task.value }
        #expect(inside.order == [2, 1, 0])
    }

    @Test func whoIsCancelledWhileWaitingLeavesNoSlotBehind() async throws {
        let slots = OriginSlots(perOrigin: 2)
        let door = Latch()
        let blockers = (0..<2).map { _ in
            Task { try await slots.withSlot("a", FetchTicket(.visible)) { try await door.pass() } }
        }
        await until { door.waiting == 2 }
        let waiters = (0..<50).map { _ in Task { try await slots.withSlot("a", FetchTicket(.prefetch)) {} } }
        await until { slots.waiting("a") == 50 }
        for waiter in waiters { waiter.cancel() }
        for waiter in waiters {
            await #expect(throws: CancellationError.self) { try await waiter.value }
        }
        #expect(slots.waiting("a") == 0)
        door.open()
        for blocker in blockers { try await blocker.value }
        #expect(slots.originCount == 0)
        try await slots.withSlot("a", FetchTicket(.visible)) {}
        #expect(slots.originCount == 0)
    }

    @Test func whatTheBodyThrowsFreesTheSlot() async {
        let slots = OriginSlots(perOrigin: 1)
        for _ in 0..<3 {
            await #expect(throws: BoomError.self) {
                try await slots.withSlot("a", FetchTicket(.visible)) { throw BoomError() }
            }
        }
        #expect(slots.originCount == 0)
    }

    /// Random crowds: never more than allowed inside, everybody gets in or was cancelled, nothing is left behind.
    @Test(arguments: 0..<4)
    func noScheduleBreaksTheLimitOrLosesAnybody(part: Int) async {
        for seed in Seeds.share(part, of: 4, count: 2000) {
            var random = SplitMix64(seed: seed)
            let most = 1 + random.below(3)
            let slots = OriginSlots(perOrigin: most)
            let inside = Inside()
            await withTaskGroup(of: Void.self) { group in
                for number in 0..<(2 + random.below(10)) {
                    let ticket = FetchTicket(random.pick(FetchPriority.allCases))
                    let before = random.below(4), during = random.below(4), cancelAfter = random.below(6)
                    let isCancelled = random.oneIn(3), rises = random.oneIn(4)
                    group.addTask {
                        let task = Task {
                            for _ in 0..<before { await Task.yield() }
                            try await slots.withSlot("a", ticket) {
                                inside.enter(number)
                                for _ in 0..<during { await Task.yield() }
                                inside.leave()
                            }
                        }
                        for _ in 0..<cancelAfter { await Task.yield() }
                        if rises { ticket.raise(to: .visible) }
                        if isCancelled { task.cancel() }
                        let result = await task.result
                        if !isCancelled, case .failure = result { Issue.record("seed \(seed): turned away") }
                    }
                }
            }
            #expect(inside.most <= most, "seed \(seed)")
            #expect(slots.originCount == 0, "seed \(seed)")
        }
    }
}

struct BoomError: Error {}

extension OriginSlots {
    /// Runs a body in one of the origin's slots.
    fileprivate func withSlot<R: Sendable>(
        _ origin: String, _ ticket: FetchTicket, _ body: () async throws -> R
    ) async throws -> R {
        let slot = try await slot(origin, ticket)
        defer { leave(slot) }
        return try await body()
    }
}
