import Dispatch

/// Lets nobody through until it is opened; then everybody.
///
/// Waiting ends after half a minute, which is longer than any client here waits, whatever happens.
final class Gate: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func open() { semaphore.signal() }

    func wait() {
        _ = semaphore.wait(timeout: .now() + 30)
        semaphore.signal()
    }
}
