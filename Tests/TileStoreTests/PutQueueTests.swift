import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Callers that wait for one right.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct PutQueueTests {
    /// What was carried out.
    private final class Log {
        var alone: [Int] = []
        var together: [[Int]] = []
        var isBusy = false

        func work(_ body: () -> Void) {
            #expect(!isBusy, "two at a time")
            isBusy = true
            body()
            isBusy = false
        }
    }

    private struct Refusal: Error, Equatable { var batch: Int }

    private static func submit(_ batch: Int, to queue: PutQueue<Int, Log>, refused: Set<Int> = []) -> (any Error)? {
        func failure(_ batch: Int) -> (any Error)? { refused.contains(batch) ? Refusal(batch: batch) : nil }
        return queue.submit(
            batch,
            alone: { batch, log in
                log.work { log.alone.append(batch) }
                return failure(batch)
            },
            together: { batches, log in
                log.work { log.together.append(batches) }
                return batches.map(failure)
            })
    }

    @Test func whoIsAloneWaitsForNobody() {
        let right = Locked(Log())
        let queue = PutQueue<Int, Log>(right)
        #expect(Self.submit(1, to: queue) == nil)
        #expect(Self.submit(2, to: queue, refused: [2]) as? Refusal == Refusal(batch: 2))
        #expect(right.withLock { $0.alone } == [1, 2])
        #expect(right.withLock { $0.together } == [])
    }

    @Test func thoseWhoWaitAreCarriedOutTogetherAndEachHasItsOwnFailure() {
        let right = Locked(Log())
        let queue = PutQueue<Int, Log>(right)
        let waiting = [1, 2].map { queue.enqueue($0) }
        #expect(queue.count == 2)
        #expect(Self.submit(3, to: queue, refused: [2]) == nil)
        #expect(right.withLock { $0.together } == [[1, 2, 3]])
        #expect(waiting.map { $0.failure as? Refusal } == [nil, Refusal(batch: 2)])
        #expect(queue.count == 0)
    }

    @Test func eachIsCarriedOutOnce() {
        let right = Locked(Log())
        let queue = PutQueue<Int, Log>(right)
        let (threads, each) = (6, 300)
        let wrong = Locked(0)
        let group = DispatchGroup()
        for thread in 0..<threads {
            group.enter()
            Thread.detachNewThread {
                for i in 0..<each {
                    let batch = thread * each + i
                    let failure = Self.submit(batch, to: queue, refused: batch % 7 == 0 ? [batch] : [])
                    // Its leader may be another thread, which refuses only its own.
                    if let failure, failure as? Refusal != Refusal(batch: batch) { wrong.withLock { $0 += 1 } }
                }
                group.leave()
            }
        }
        group.wait()
        #expect(wrong.withLock { $0 } == 0)
        let done = right.withLock { $0.alone + $0.together.flatMap { $0 } }
        #expect(done.sorted() == Array(0..<(threads * each)))
    }
}
