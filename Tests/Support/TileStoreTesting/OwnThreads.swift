import Foundation
import TileStore

/// Threads for tests that compute or wait for long without a pause.
///
/// Swift's own pool has one thread a core. Tests that keep those busy for minutes starve the tests that talk to servers
/// meanwhile, and these then fail for want of time. Here they have threads of their own, among which the system shares the
/// cores out fairly. They are threads of the system, and not those of a dispatch queue: on Linux all queues share one pool
/// with Swift's, which starts no further thread while as many as there are cores compute, so that two tests that compute
/// for minutes held up all others.
@available(macOS 15, iOS 18, tvOS 18, visionOS 2, *)
package final class OwnThreads: TaskExecutor {
    /// For tests that compute: a thread for each core.
    package static let computing = OwnThreads(ProcessInfo.processInfo.activeProcessorCount)
    /// For tests that mostly wait, for a socket or a process; none of them waits behind one that computes.
    package static let waiting = OwnThreads(8)

    /// Jobs in the order in which they came.
    private let jobs = Monitor<[UnownedJob]>([])

    private init(_ threads: Int) {
        let executor = asUnownedTaskExecutor()
        for _ in 0..<threads {
            Thread.detachNewThread { [jobs] in
                while true {
                    let job = jobs.wait { $0.isEmpty ? nil : $0.removeFirst() }
                    job.runSynchronously(on: executor)
                }
            }
        }
    }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        jobs.withLock { $0.append(job) }
        jobs.wakeOne()
    }
}
