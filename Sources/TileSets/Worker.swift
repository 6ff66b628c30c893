import Dispatch

/// A thread for calls that block, which must not be made on the cooperative pool.
struct Worker: Sendable {
    private let queue: DispatchQueue

    init(_ name: String) { queue = DispatchQueue(label: name) }

    /// Runs a body there and waits for it.
    func run<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
        try await withCheckedThrowingContinuation { continuation in
            queue.async { continuation.resume(with: Result(catching: body)) }
        }
    }
}
