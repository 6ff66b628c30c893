import Testing
import TileStore

@testable import CacheEngine

@Suite(.timeLimit(.minutes(60)))
struct BlockingPoolTests {
    @Test func everythingRunsOnAtMostSoManyThreads() async throws {
        let pool = BlockingPool(threads: 3)
        let seen = Locked<(now: Int, most: Int)>((0, 0))
        let sum = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 0..<3000 {
                group.addTask {
                    try await pool.run {
                        seen.withLock {
                            $0.now += 1
                            $0.most = max($0.most, $0.now)
                        }
                        defer { seen.withLock { $0.now -= 1 } }
                        return number
                    }
                }
            }
            return try await group.reduce(0, +)
        }
        #expect(sum == 3000 * 2999 / 2)
        #expect(seen.withLock { $0.most } <= 3)
    }

    @Test func errorsComeBack() async {
        let pool = BlockingPool(threads: 1)
        await #expect(throws: NoSuchThingError.self) { try await pool.run { throw NoSuchThingError() } }
    }

    /// What is queued when the pool closes is still done, and what comes later too: no continuation is lost.
    @Test func closingLosesNothing() async throws {
        for round in 0..<200 {
            let pool = BlockingPool(threads: 1 + round % 3)
            let sum = try await withThrowingTaskGroup(of: Int.self) { group in
                for number in 0..<20 {
                    group.addTask {
                        if number == round % 20 { pool.close() }
                        return try await pool.run { number }
                    }
                }
                return try await group.reduce(0, +)
            }
            #expect(sum == 190)
            #expect(try await pool.run { 7 } == 7)
        }
    }

    @Test func finishingWaitsForWhatIsUnderWay() async {
        for threads in 1...3 {
            let pool = BlockingPool(threads: threads)
            let done = Locked(0)
            for _ in 0..<50 { pool.submit { done.withLock { $0 += 1 } } }
            await pool.finish()
            #expect(done.withLock { $0 } == 50)
            // Whoever comes later is told at once.
            await pool.finish()
        }
        await BlockingPool(threads: 1).finish()
    }

    /// A disk that hangs must not keep a process from ending.
    @Test func finishingWaitsNoLongerThanItMayAndSaysWhatIsLeft() async {
        let pool = BlockingPool(threads: 2)
        let gate = Monitor(false)
        let begun = Locked(0)
        for _ in 0..<5 {
            pool.submit {
                begun.withLock { $0 += 1 }
                _ = gate.wait { $0 ? true : nil }
            }
        }
        while begun.withLock({ $0 }) < 2 { await Task.yield() }
        #expect(await pool.finish(within: .milliseconds(20)) == 5)
        gate.withLock { $0 = true }
        gate.wakeAll()
        #expect(await pool.finish(within: .seconds(3600)) == 0)
        #expect(begun.withLock { $0 } == 5)
    }

    /// A closure holds a tile's bytes: done with, it must not be kept until the queue is empty for once.
    @Test func whatIsDoneIsLetGoWhileTheQueueIsNeverEmpty() {
        final class Load: Sendable {}
        var queue = Queue<Load>()
        queue.append(Load())
        weak var first: Load?
        do {
            let load = Load()
            first = load
            queue.append(load)
        }
        queue.append(Load())
        _ = queue.popFirst()
        _ = queue.popFirst()
        #expect(first == nil)
        #expect(queue.popFirst() != nil && queue.popFirst() == nil)
    }

    @Test func theQueueKeepsItsOrder() {
        var queue = Queue<Int>()
        var (next, expected) = (0, 0)
        for step in 0..<20_000 {
            if step % 3 != 2 || step > 15_000 && step % 2 == 0 {
                queue.append(next)
                next += 1
            } else if let item = queue.popFirst() {
                #expect(item == expected)
                expected += 1
            }
        }
        while let item = queue.popFirst() {
            #expect(item == expected)
            expected += 1
        }
        #expect(expected == next)
    }
}

private struct NoSuchThingError: Error {}
