import TileStore
import TileStoreTesting

@testable import TileCache

/// A ``CacheClock`` that stands still: who sleeps wakes when the test moves the time on.
final class TestClock: Sendable {
    private struct State {
        var last: UInt64 = 0
        var sleepers: [UInt64: (until: UInt64, continuation: CheckedContinuation<Void, any Error>)] = [:]
        var random: SplitMix64
    }

    let manual = ManualClock()
    private let state: Locked<State>

    init(seed: UInt64 = 1) { state = Locked(State(random: SplitMix64(seed: seed))) }

    var now: Timestamp { manual.now }
    /// How many sleep now.
    var sleepers: Int { state.withLock { $0.sleepers.count } }

    var cacheClock: CacheClock {
        CacheClock(
            now: { self.manual.now }, ticks: { self.manual.ticks }, sleep: { try await self.sleep($0) },
            random: { self.state.withLock { $0.random.next() } })
    }

    /// Moves both clocks on, or the time of day back.
    func advance(seconds: Int64) {
        manual.advance(seconds: seconds)
        wake()
    }

    private func wake() {
        let now = manual.ticks
        let due = state.withLock { state in
            let due = state.sleepers.filter { $0.value.until <= now }
            for number in due.keys { state.sleepers[number] = nil }
            return due.values.map(\.continuation)
        }
        for continuation in due { continuation.resume() }
    }

    private func sleep(_ duration: Duration) async throws {
        let until = manual.ticks &+ duration.nanoseconds
        let number = state.withLock { state -> UInt64 in
            state.last += 1
            return state.last
        }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let outcome = state.withLock { state -> Result<Void, any Error>? in
                    if Task.isCancelled { return .failure(CancellationError()) }
                    if manual.ticks >= until { return .success(()) }
                    state.sleepers[number] = (until, continuation)
                    return nil
                }
                if let outcome { continuation.resume(with: outcome) }
            }
        } onCancel: {
            state.withLock { $0.sleepers.removeValue(forKey: number) }?.continuation
                .resume(throwing: CancellationError())
        }
    }
}
