import CacheEngine
import TileStore

/// Sleeps that news ends early.
final class Bell: Sendable {
    private struct State {
        var rings: UInt64 = 0
        var last: UInt64 = 0
        var sleepers: [UInt64: Race<Void>] = [:]
    }
    private let state = Locked(State())

    /// How often it has rung.
    var rings: UInt64 { state.withLock { $0.rings } }

    /// Wakes all who sleep.
    func ring() {
        let sleepers = state.withLock { state in
            state.rings += 1
            defer { state.sleepers = [:] }
            return Array(state.sleepers.values)
        }
        for sleeper in sleepers { sleeper.end(.success(())) }
    }

    /// Sleeps for so long, or until it rings.
    ///
    /// - Parameter rings: What ``rings`` was when the sleeper decided to sleep: one that has missed a ring does not.
    /// - Throws: `CancellationError`.
    func sleep(_ duration: Duration, since rings: UInt64, _ clock: CacheClock) async throws {
        let race = Race<Void>()
        try await race.outcome {
            let number = state.withLock { state -> UInt64? in
                guard state.rings == rings else { return nil }
                state.last += 1
                state.sleepers[state.last] = race
                return state.last
            }
            guard let number else {
                race.end(.success(()))
                return
            }
            race.whenOver { [state] in state.withLock { _ = $0.sleepers.removeValue(forKey: number) } }
            let timer = Task {
                do { try await clock.sleep(duration) } catch { return }
                race.end(.success(()))
            }
            race.whenOver { timer.cancel() }
        }
    }
}
