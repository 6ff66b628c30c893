import TileStore

/// What one fetch has cost: requests, redirections and repeated ones included, and bytes of bodies.
final class RequestMeter: Sendable {
    /// Requests, and bytes received.
    struct Cost: Sendable {
        var requests = 0
        var bytes = 0
    }
    private let state = Locked(Cost())

    var cost: Cost { state.withLock { $0 } }

    func sent() { state.withLock { $0.requests += 1 } }
    func received(_ bytes: Int) { state.withLock { $0.bytes += bytes } }
}
