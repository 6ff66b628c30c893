import Foundation
import TileStore

/// Threads for what may block: puts, the cache's lock, reads that are not in the page cache.
///
/// They are started when they are needed, up to a number, and end with the pool. Nothing here runs on the cooperative
/// pool, so a slow disk delays tiles and never other tasks.
package final class BlockingPool: Sendable {
    private struct State {
        var work = Queue<@Sendable () -> Void>()
        var threads = 0
        var idle = 0
        /// A thread has been woken and has not looked at the work yet: the next piece of work need not wake another.
        var isWaking = false
        var isClosed = false
        /// Called when the last thread has ended.
        var ended: [@Sendable () -> Void] = []
    }

    private let state = Monitor(State())
    private let most: Int

    /// A pool of at most so many threads.
    package init(threads: Int) { most = max(1, threads) }

    deinit { close() }

    /// Lets the threads end once all work is done.
    package func close() {
        state.withLock { $0.isClosed = true }
        state.wakeAll()
    }

    /// Lets the threads end once all work is done, and waits for that.
    ///
    /// - Parameter limit: How long it waits at most; `nil` for as long as it takes.
    /// - Returns: How many pieces of work are not done by then. They are not taken back.
    @discardableResult
    package func finish(within limit: Duration? = nil) async -> Int {
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            let waiting = Locked<CheckedContinuation<Void, Never>?>(continuation)
            let resume: @Sendable () -> Void = {
                let first = waiting.withLock { waiting in
                    defer { waiting = nil }
                    return waiting
                }
                first?.resume()
            }
            let isOver = state.withLock { state in
                state.isClosed = true
                guard state.threads > 0 else { return true }
                state.ended.append(resume)
                return false
            }
            state.wakeAll()
            if isOver {
                resume()
            } else if let limit {
                Task {
                    // Nobody cancels it.
                    try? await Task.sleep(for: limit)
                    resume()
                }
            }
        }
        return state.withLock { $0.work.count + $0.threads - $0.idle }
    }

    /// Runs a body on one of the threads.
    package func run<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
        try await withCheckedThrowingContinuation { continuation in
            submit { continuation.resume(with: Result { try body() }) }
        }
    }

    /// Has something done on one of the threads.
    package func submit(_ work: @escaping @Sendable () -> Void) {
        let (startsThread, wakes) = state.withLock { state -> (Bool, Bool) in
            state.work.append(work)
            guard state.idle < state.work.count, state.threads < most else {
                let wakes = !state.isWaking
                state.isWaking = true
                return (false, wakes)
            }
            state.threads += 1
            return (true, false)
        }
        guard startsThread else {
            if wakes { state.wakeOne() }
            return
        }
        let state = self.state
        let thread = Thread { Self.serve(state) }
        thread.name = "tile-cache-work"
        thread.start()
    }

    private static func serve(_ state: Monitor<State>) {
        while true {
            state.withLock { $0.idle += 1 }
            var wakesNext = false
            let work = state.wait { state -> (@Sendable () -> Void)?? in
                state.isWaking = false
                if let work = state.work.popFirst() {
                    state.idle -= 1
                    // Each thread that takes work wakes the next for what is left: work that comes while a thread wakes up
                    // wakes no other, which would find the lock taken, or nothing to do.
                    wakesNext = state.work.count > 0 && state.idle > 0
                    state.isWaking = wakesNext
                    return work
                }
                guard state.isClosed else { return nil }
                state.idle -= 1
                state.threads -= 1
                return .some(nil)
            }
            guard let work else {
                let ended = state.withLock { state -> [@Sendable () -> Void] in
                    guard state.threads == 0 else { return [] }
                    defer { state.ended = [] }
                    return state.ended
                }
                for end in ended { end() }
                return
            }
            if wakesNext { state.wakeOne() }
            work()
        }
    }
}
