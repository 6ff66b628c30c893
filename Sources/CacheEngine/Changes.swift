package import TileStore

/// Knows which resources change while responses for them are on their way, over all event loops.
///
/// A response that was asked for before a change may show the state from before it, so it must not be stored after it
/// (RFC 9111 §4.4). Every request that may end in storing takes a permit for its resource before it is sent; a change
/// voids the permits that are out, and waits for what is being written by virtue of one.
package final class Changes: Sendable {
    private struct Resource {
        /// How many permits are out.
        var permits = 0
        /// How often it has changed since the first of them.
        var changes: UInt64 = 0
        /// How many responses are being written.
        var writes = 0
        /// Whom to call once there are none.
        var waiters: [@Sendable () -> Void] = []
    }

    /// The right to store a response for a resource, unless that changes.
    package struct Permit: Sendable {
        package let resource: TileKey
        fileprivate let changes: UInt64
    }

    // Only resources with a permit that is out have a place here.
    private let resources = Locked<[TileKey: Resource]>([:])

    package init() {}

    /// Takes a permit; ``giveBack(_:)`` must follow.
    package func takePermit(for resource: TileKey) -> Permit {
        resources.withLock { resources in
            resources[resource, default: Resource()].permits += 1
            return Permit(resource: resource, changes: resources[resource]?.changes ?? 0)
        }
    }

    /// Gives a permit back.
    package func giveBack(_ permit: Permit) {
        resources.withLock { resources in
            resources[permit.resource]?.permits -= 1
            if resources[permit.resource]?.permits == 0 { resources[permit.resource] = nil }
        }
    }

    /// Begins to write a response; `false` if the resource has changed since the permit was taken.
    ///
    /// If it is `true`, ``endWriting(_:)`` must follow, before the permit is given back.
    package func beginWriting(_ permit: Permit) -> Bool {
        resources.withLock { resources in
            guard resources[permit.resource]?.changes == permit.changes else { return false }
            resources[permit.resource]?.writes += 1
            return true
        }
    }

    /// The response is written, or could not be.
    package func endWriting(_ permit: Permit) {
        let waiters = resources.withLock { resources -> [@Sendable () -> Void] in
            resources[permit.resource]?.writes -= 1
            guard let resource = resources[permit.resource], resource.writes == 0 else { return [] }
            resources[permit.resource]?.waiters = []
            return resource.waiters
        }
        for waiter in waiters { waiter() }
    }

    /// Waits for what is being written for a resource; `false` if nothing is.
    ///
    /// - Parameter written: Called once, on any thread, if it is `true`.
    package func waitForWriting(_ resource: TileKey, written: @escaping @Sendable () -> Void) -> Bool {
        resources.withLock { resources in
            guard resources[resource]?.writes ?? 0 > 0 else { return false }
            resources[resource]?.waiters.append(written)
            return true
        }
    }

    /// A resource changes: voids all permits for it.
    ///
    /// - Parameter settled: Called on any thread once nothing that was asked for before is being written any more.
    /// - Returns: Whether nothing is, so that `settled` will not be called.
    package func change(_ resource: TileKey, settled: @escaping @Sendable () -> Void) -> Bool {
        resources.withLock { resources in
            guard let found = resources[resource] else { return true }
            resources[resource]?.changes += 1
            guard found.writes > 0 else { return true }
            resources[resource]?.waiters.append(settled)
            return false
        }
    }

    /// How many resources have a permit that is out.
    package var count: Int { resources.withLock { $0.count } }
}
