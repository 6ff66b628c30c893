import NIOCore
import NIOPosix
import TileStore

/// Runs tasks on the event loop where they were started, so that a fetch goes from client to origin and back on one thread.
///
/// Waking another thread costs more than most of what a task does between two waits. Where the system knows no
/// executors of tasks they run on Swift's own threads.
final class LoopTasks: Sendable {
    private let executors = Locked<[ObjectIdentifier: any Sendable]>([:])

    /// Lets tasks that are started on a loop stay there.
    func add(_ loop: any EventLoop) {
        if #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) {
            executors.withLock { $0[ObjectIdentifier(loop)] = LoopExecutor(loop) }
        }
    }

    /// Starts a task here, if this is one of the loops.
    @discardableResult
    func start(_ priority: TaskPriority?, _ work: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
        if #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *),
            let loop = MultiThreadedEventLoopGroup.currentEventLoop,
            let executor = executors.withLock({ $0[ObjectIdentifier(loop)] }) as? LoopExecutor
        {
            return Task(executorPreference: executor, priority: priority, operation: work)
        }
        return Task(priority: priority, operation: work)
    }
}

/// An event loop as an executor of tasks.
@available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
private final class LoopExecutor: TaskExecutor {
    private let loop: any EventLoop

    init(_ loop: any EventLoop) { self.loop = loop }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        loop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
