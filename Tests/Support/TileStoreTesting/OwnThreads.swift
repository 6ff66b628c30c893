import Foundation

/// Threads for tests that compute or wait for long without a pause.
///
/// Swift's own pool has one thread a core. Tests that keep those busy for minutes starve the tests that talk to servers
/// meanwhile, and these then fail for want of time. Here they have threads of their own, among which the system shares the
/// cores out fairly.
@available(macOS 15, iOS 18, tvOS 18, visionOS 2, *)
package final class OwnThreads: TaskExecutor {
    /// For tests that compute: a thread for each core.
    package static let computing = OwnThreads(ProcessInfo.processInfo.activeProcessorCount)
    /// For tests that mostly wait, for a socket or a process; none of them waits behind one that computes.
    package static let waiting = OwnThreads(8)

    private let queue: OperationQueue

    private init(_ threads: Int) {
        queue = OperationQueue()
        queue.maxConcurrentOperationCount = threads
    }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.addOperation { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
