package import TileStore

import class Foundation.Thread

/// Puts batches into a store in their order: while one is recorded, the next is staged and the one after that is read.
///
/// Two threads of its own. What is staged is what the store does not write where it belongs: in durable mode everything,
/// which then is synced while the batch before it is recorded. At most 8 MiB of tiles are on the way (or one batch, where
/// that is larger).
package final class PutPipeline: Sendable {
    private struct State {
        var unstaged: [PutInSteps] = []
        /// With the reason why a batch could not be staged: those before it are recorded all the same.
        var staged: [(batch: PutInSteps, failure: (any Error)?)] = []
        var done: [PutInSteps.Summary] = []
        var failure: (any Error)?
        /// Bytes of all that is not recorded, and how many batches that is.
        var size = 0
        var count = 0
        var isClosed = false
        var threads = 0

        mutating func takeDone() -> [PutInSteps.Summary] {
            defer { done = [] }
            return done
        }
    }

    private static let mostBytes = 8 << 20
    private static let mostBatches = 4

    private let state = Monitor(State())

    package init() {}

    /// Hands a batch on; waits while others have to go first.
    ///
    /// - Returns: What was done meanwhile.
    /// - Throws: Why an earlier batch failed; this one is not put then.
    package func put(_ batch: PutInSteps) throws -> [PutInSteps.Summary] {
        start()
        let result = state.wait { state -> Result<[PutInSteps.Summary], any Error>? in
            if let failure = state.failure { return .failure(failure) }
            let hasRoom = state.count < Self.mostBatches && state.size + batch.size <= Self.mostBytes
            guard hasRoom || state.count == 0 else { return nil }
            state.unstaged.append(batch)
            state.count += 1
            state.size += batch.size
            return .success(state.takeDone())
        }
        state.wakeAll()
        return try result.get()
    }

    /// Waits until all that was handed on is in the store.
    ///
    /// - Parameter isStopped: Asked whenever a batch is done; from then on those that nobody has begun with are dropped.
    /// - Returns: What was done, and whether anything was dropped.
    package func drain(
        unless isStopped: () -> Bool = { false }
    ) throws -> (done: [PutInSteps.Summary], isComplete: Bool) {
        var isComplete = true
        let done = try state.wait { state -> Result<[PutInSteps.Summary], any Error>? in
            if let failure = state.failure { return .failure(failure) }
            let waiting = state.unstaged + state.staged.map(\.batch)
            if !waiting.isEmpty, isStopped() {
                isComplete = false
                state.count -= waiting.count
                state.size -= waiting.reduce(0) { $0 + $1.size }
                (state.unstaged, state.staged) = ([], [])
            }
            return state.count == 0 ? .success(state.takeDone()) : nil
        }.get()
        return (done, isComplete)
    }

    /// Ends the threads; what is being staged or recorded is waited for, and what waits is dropped.
    package func close() {
        state.withLock { state in
            state.isClosed = true
            state.unstaged = []
            state.staged = []
        }
        state.wakeAll()
        state.wait { $0.threads == 0 ? () : nil }
    }

    private func start() {
        let isFirst = state.withLock { state in
            guard state.threads == 0 else { return false }
            state.threads = 2
            return true
        }
        guard isFirst else { return }
        let state = self.state
        for (name, body) in [("archive-staging", Self.stage), ("archive-recording", Self.record)] {
            let thread = Thread { body(state) }
            thread.name = name
            thread.start()
        }
    }

    private static func stage(_ state: Monitor<State>) {
        // What the last batches bring need not be staged again, though not all of them are recorded yet.
        var known: [Set<BlobDigest>] = []
        while let batch = next(\.unstaged, state) {
            var failure: (any Error)?
            do {
                let brought = try batch.stage(known: known)
                if known.count >= mostBatches { known.removeFirst() }
                known.append(brought)
            } catch { failure = error }
            state.withLock { if !$0.isClosed { $0.staged.append((batch, failure)) } }
            state.wakeAll()
        }
    }

    private static func record(_ state: Monitor<State>) {
        // Of one store: a pipeline is filled by one import.
        var work: LongWork?
        while let (batch, failure) = next(\.staged, state) {
            work = work ?? batch.beginLongWork()
            work?.letOthersIn()
            let result = Result { () throws -> PutInSteps.Summary in
                if let failure { throw failure }
                return try batch.record()
            }
            state.withLock { state in
                state.count -= 1
                state.size -= batch.size
                switch result {
                case .success(let summary): state.done.append(summary)
                case .failure(let error): state.failure = error
                }
            }
            state.wakeAll()
        }
    }

    /// The next one of a queue; `nil`, once and for good, when there will be none.
    private static func next<Batch>(_ queue: WritableKeyPath<State, [Batch]>, _ state: Monitor<State>) -> Batch? {
        let batch = state.wait { state -> Batch?? in
            if state.isClosed || state.failure != nil {
                state.threads -= 1
                return .some(nil)
            }
            if state[keyPath: queue].isEmpty { return nil }
            return .some(state[keyPath: queue].removeFirst())
        }
        if batch == nil { state.wakeAll() }
        return batch
    }
}
