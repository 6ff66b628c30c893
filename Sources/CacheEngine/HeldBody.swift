import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// The bytes that bodies may have together, in memory and in `staging/`, until they are stored; over all event loops.
package final class StagingBudget: Sendable {
    private let limit: Int
    private let used = Locked(0)

    package init(limit: Int) { self.limit = limit }

    /// Takes a part; `false` if there is not so much left.
    package func take(_ bytes: Int) -> Bool {
        used.withLock { used in
            guard used + bytes <= limit else { return false }
            used += bytes
            return true
        }
    }

    /// Gives a part back.
    package func give(_ bytes: Int) { used.withLock { $0 -= bytes } }

    /// How much has been taken.
    package var inUse: Int { used.withLock { $0 } }

    /// Whether nobody has taken anything.
    package var isUnused: Bool { inUse == 0 }
}

/// A body in memory, with its part of a budget if there is one, which it gives back at its end.
package final class HeldBody: Sendable {
    /// All of it.
    package let data: Data
    private let taken: Int
    private let budget: StagingBudget?

    /// - Parameter taken: What has been taken from the budget for it.
    package init(_ data: Data, _ taken: Int, _ budget: StagingBudget) {
        self.data = data
        self.taken = taken
        self.budget = budget
    }

    /// A body that somebody has in memory anyway, and that no budget accounts for.
    package init(_ data: Data) {
        self.data = data
        taken = 0
        budget = nil
    }

    /// A body that is accounted for from now on; `nil` if the budget has no room for it.
    package init?(_ data: Data, within budget: StagingBudget) {
        guard budget.take(data.count) else { return nil }
        self.data = data
        taken = data.count
        self.budget = budget
    }

    deinit { budget?.give(taken) }
}
