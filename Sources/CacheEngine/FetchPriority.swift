import TileStore

/// How urgent a fetch is: where a host has more to do than it may do at once, the more urgent go first.
public enum FetchPriority: Int, Comparable, Sendable, CaseIterable {
    /// Nobody waits for it: a stale tile that was served is refreshed.
    case refresh = 0
    /// Somebody will want it: prefetching, regions.
    case prefetch = 1
    /// Somebody looks at the place where it belongs.
    case visible = 2

    /// Whether one is less urgent than another.
    public static func < (a: FetchPriority, b: FetchPriority) -> Bool { a.rawValue < b.rawValue }
}

/// What those who wait for a fetch allow it, besides what its own order says.
package struct FetchTerms: Sendable {
    /// So often the request may be sent.
    package var attempts = 0
    /// How long each attempt may take.
    package var timeout = Duration.zero
    /// Whether it is only part of a download, which some hosts' terms forbid.
    package var isBulk = true
    /// Which networks it may use.
    package var networks = NetworkUse.unmetered

    package init(
        attempts: Int = 0, timeout: Duration = .zero, isBulk: Bool = true, networks: NetworkUse = .unmetered
    ) {
        self.attempts = attempts
        self.timeout = timeout
        self.isBulk = isBulk
        self.networks = networks
    }

    /// Makes them as generous as the more generous of two.
    package mutating func add(_ other: FetchTerms) {
        attempts = max(attempts, other.attempts)
        timeout = max(timeout, other.timeout)
        isBulk = isBulk && other.isBulk
        networks = networks.union(other.networks)
    }
}

/// The priority and terms of one fetch, which rise when somebody more urgent joins it.
package final class FetchTicket: Sendable {
    private struct State {
        var priority: FetchPriority
        var terms = FetchTerms()
        var onRise: (@Sendable (FetchPriority) -> Void)?
    }
    private let state: Locked<State>

    package init(_ priority: FetchPriority) { state = Locked(State(priority: priority)) }

    package var priority: FetchPriority { state.withLock { $0.priority } }
    /// What those who wait allow it.
    package var terms: FetchTerms { state.withLock { $0.terms } }

    /// Takes in the terms of somebody who joins.
    package func add(_ terms: FetchTerms) { state.withLock { $0.terms.add(terms) } }

    /// Makes it at least so urgent.
    package func raise(to priority: FetchPriority) {
        let tell = state.withLock { state -> (@Sendable (FetchPriority) -> Void)? in
            guard priority > state.priority else { return nil }
            state.priority = priority
            return state.onRise
        }
        tell?(priority)
    }

    /// Who is told of a rise from now on; returns the priority of this moment.
    package func watch(_ onRise: (@Sendable (FetchPriority) -> Void)?) -> FetchPriority {
        state.withLock { state in
            state.onRise = onRise
            return state.priority
        }
    }
}
