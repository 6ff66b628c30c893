import Dispatch
import TileStore

/// Holds answers back until a test lets them go.
///
/// What a sleep would only make likely, a gate makes certain: as long as it is shut, the answer has not been sent.
package final class Gate: Sendable {
    private enum State {
        case shut([@Sendable () -> Void])
        case open
    }
    private let state = Locked<State>(.shut([]))

    package init() {}

    /// Lets go what waits, and what comes later; doing it twice changes nothing.
    package func open() {
        let waiting = state.withLock { state -> [@Sendable () -> Void] in
            guard case .shut(let waiting) = state else { return [] }
            state = .open
            return waiting
        }
        for action in waiting { action() }
    }

    /// Does something once the gate is open: now, or on the thread that opens it.
    package func whenOpen(_ action: @escaping @Sendable () -> Void) {
        let isOpen = state.withLock { state in
            guard case .shut(let waiting) = state else { return true }
            state = .shut(waiting + [action])
            return false
        }
        if isOpen { action() }
    }

    /// Waits until the gate is open.
    package func wait() async {
        await withCheckedContinuation { continuation in whenOpen { continuation.resume() } }
    }

    /// Has the calling thread wait until the gate is open, for half a minute at most: longer than any client waits.
    package func wait() {
        let opened = DispatchSemaphore(value: 0)
        whenOpen { opened.signal() }
        _ = opened.wait(timeout: .now() + 30)
    }
}
