import Foundation

/// A thread that does what it is handed, one thing at a time, while the one that hands it over waits.
///
/// Stores keep some things for each thread; with lanes, a script can have several of them and is still the same each time.
package final class Lane: @unchecked Sendable {
    // `job` belongs to the thread that was signalled last.
    private var job: (() -> Void)?
    private let begins = DispatchSemaphore(value: 0)
    private let ends = DispatchSemaphore(value: 0)

    package init() {
        Thread.detachNewThread { [self] in
            while true {
                begins.wait()
                guard let job else { return }
                job()
                ends.signal()
            }
        }
    }

    /// Does something on the thread and waits for it.
    package func run<R>(_ body: @escaping () throws -> R) throws -> R {
        var result: Result<R, any Error>?
        job = { result = Result { try body() } }
        begins.signal()
        ends.wait()
        job = nil
        guard let result else { preconditionFailure("a job ended without a result") }
        return try result.get()
    }

    /// Ends the thread.
    package func end() { begins.signal() }
}
