import TileStore

@testable import TileCache

/// A network that is what a test says; at first one that anything may use.
final class ScriptedNetwork: NetworkMonitor {
    private struct State {
        var conditions: NetworkConditions?
        var last: UInt64 = 0
        var watchers: [UInt64: AsyncStream<NetworkConditions>.Continuation] = [:]
    }
    private let state: Locked<State>

    /// - Parameter conditions: At first; `nil` for what the system does not know yet.
    init(_ conditions: NetworkConditions? = NetworkConditions()) { state = Locked(State(conditions: conditions)) }

    /// How many watch it.
    var watchers: Int { state.withLock { $0.watchers.count } }

    /// The network becomes another one.
    func become(_ conditions: NetworkConditions) {
        let watchers = state.withLock { state in
            state.conditions = conditions
            return Array(state.watchers.values)
        }
        for watcher in watchers { watcher.yield(conditions) }
    }

    func conditions() -> AsyncStream<NetworkConditions> {
        AsyncStream { continuation in
            let number = state.withLock { state -> UInt64 in
                state.last += 1
                state.watchers[state.last] = continuation
                if let conditions = state.conditions { continuation.yield(conditions) }
                return state.last
            }
            continuation.onTermination = { [state] _ in
                state.withLock { _ = $0.watchers.removeValue(forKey: number) }
            }
        }
    }
}

extension NetworkConditions {
    static let cellular = NetworkConditions(isExpensive: true)
    static let lowData = NetworkConditions(isConstrained: true)
    static let none = NetworkConditions(isReachable: false)
    static let wifi = NetworkConditions()
}
