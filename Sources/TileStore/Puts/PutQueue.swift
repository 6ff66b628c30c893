/// Callers that wait for one right, such as that to write: whoever comes first carries out what all of them want.
///
/// It knows neither what is carried out nor what the right is good for.
final class PutQueue<Batch, Right>: Sendable {
    /// What one caller wants, while it waits.
    final class Waiting: @unchecked Sendable {
        // Written by the caller until it is queued, and by the leader afterwards, until it is done; the queue's lock orders the two.
        fileprivate let batch: Batch
        fileprivate var isDone = false
        /// Why not all of it was carried out.
        fileprivate(set) var failure: (any Error)?

        fileprivate init(_ batch: Batch) { self.batch = batch }
    }

    private struct State {
        var waiting: [Waiting] = []
        var isLed = false
    }
    private let state = Monitor(State())
    private let right: Locked<Right>

    init(_ right: Locked<Right>) { self.right = right }

    /// How many wait, the leader aside.
    var count: Int { state.withLock { $0.waiting.count } }

    /// Has a batch carried out: by this thread together with those that wait, or by the thread that is at it.
    ///
    /// - Parameters:
    ///   - alone: Carries out one batch; returns why not all of it was.
    ///   - together: Carries out several, in their order; returns the same of each.
    /// - Returns: Why not all of it was carried out.
    func submit(
        _ batch: Batch, alone: (Batch, Right) -> (any Error)?, together: ([Batch], Right) -> [(any Error)?]
    ) -> (any Error)? {
        // Mostly nobody else is at it, and then there is nothing to wait for and nobody to wake.
        if state.withLock({ !$0.isLed && $0.waiting.isEmpty }) {
            if let failure = right.tryWithLock({ right -> (any Error)? in alone(batch, right) }) { return failure }
        }
        let mine = enqueue(batch)
        while true {
            let leads = state.wait { state -> Bool? in
                if mine.isDone { return false }
                guard !state.isLed else { return nil }
                state.isLed = true
                return true
            }
            guard leads else { return mine.failure }
            right.withLock { right in
                let all = state.withLock { state in
                    defer { state.waiting = [] }
                    return state.waiting
                }
                for (one, failure) in zip(all, together(all.map(\.batch), right)) { one.failure = failure }
                state.withLock { state in
                    for one in all { one.isDone = true }
                    state.isLed = false
                }
            }
            state.wakeAll()
        }
    }

    /// Puts a batch among those that wait: the next leader carries it out.
    func enqueue(_ batch: Batch) -> Waiting {
        let mine = Waiting(batch)
        state.withLock { $0.waiting.append(mine) }
        return mine
    }
}
