import Foundation
import TileStore

/// Threads for what may block: puts, the cache's lock, reads that are not in the page cache.
///
/// They are started when they are needed, up to a number, and end with the pool. Nothing here runs on the cooperative
/// pool, so a slow disk delays tiles and never other tasks.
final class BlockingPool: Sendable {
    private struct State {
        var work = Queue<@Sendable () -> Void>()
        var threads = 0
        var idle = 0
        var isClosed = false
    }

    private let state = Monitor(State())
    private let most: Int

    /// A pool of at most so many threads.
    init(threads: Int) { most = max(1, threads) }

    deinit { close() }

    /// Lets the threads end once all work is done.
    func close() {
        state.withLock { $0.isClosed = true }
        state.wakeAll()
    }

    /// Runs a body on one of the threads.
    func run<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
        try await withCheckedThrowingContinuation { continuation in
            submit { continuation.resume(with: Result { try body() }) }
        }
    }

    private func submit(_ work: @escaping @Sendable () -> Void) {
        let startsThread = state.withLock { state -> Bool in
            state.work.append(work)
            guard state.idle < state.work.count, state.threads < most else { return false }
            state.threads += 1
            return true
        }
        guard startsThread else { return state.wakeOne() }
        let state = self.state
        let thread = Thread { Self.serve(state) }
        thread.name = "tile-cache-files"
        thread.start()
    }

    private static func serve(_ state: Monitor<State>) {
        while true {
            state.withLock { $0.idle += 1 }
            let work = state.wait { state -> (@Sendable () -> Void)?? in
                if let work = state.work.popFirst() {
                    state.idle -= 1
                    return work
                }
                guard state.isClosed else { return nil }
                state.idle -= 1
                state.threads -= 1
                return .some(nil)
            }
            guard let work else { return }
            work()
        }
    }
}
