import Dispatch

/// Lets nobody through until it is opened; then everybody.
///
/// Waiting ends after ten seconds whatever happens.
final class Gate: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func open() { semaphore.signal() }

    func wait() {
        _ = semaphore.wait(timeout: .now() + 10)
        semaphore.signal()
    }
}
