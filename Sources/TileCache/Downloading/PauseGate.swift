import TileStore

/// A door that can be closed and opened again; who comes while it is closed waits.
final class PauseGate: Sendable {
    private struct State {
        var isClosed = false
        var closings = 0
        var last: UInt64 = 0
        var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
    }
    private let state = Locked(State())

    /// Whether who comes now would wait.
    var isClosed: Bool { state.withLock { $0.isClosed } }

    /// How often it was closed.
    var closings: Int { state.withLock { $0.closings } }

    /// Closes it.
    ///
    /// - Returns: Whether it was open.
    @discardableResult
    func close() -> Bool {
        state.withLock { state in
            guard !state.isClosed else { return false }
            state.isClosed = true
            state.closings += 1
            return true
        }
    }

    func open() {
        let waiting = state.withLock { state -> [CheckedContinuation<Void, Never>] in
            state.isClosed = false
            defer { state.waiting = [:] }
            return Array(state.waiting.values)
        }
        for continuation in waiting { continuation.resume() }
    }

    /// Goes through at once, or when the door is opened, or when the task is cancelled.
    func pass() async {
        let number = state.withLock { state -> UInt64? in
            guard state.isClosed else { return nil }
            state.last += 1
            return state.last
        }
        guard let number else { return }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let mayPass = state.withLock { state in
                    if !state.isClosed || Task.isCancelled { return true }
                    state.waiting[number] = continuation
                    return false
                }
                if mayPass { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: number) }?.resume()
        }
    }
}
