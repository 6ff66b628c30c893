import CacheEngine
import TileStore

/// Lets at most so many fetches at once go to one host; who waits goes by priority, then by time of arrival.
///
/// Some slots are kept free for visible tiles: a download that has its requests under way must not make a person wait
/// for one of them to end.
final class HostGate: Sendable {
    /// What kind of slot a fetch has.
    private enum Slot { case visible, background }

    private struct Waiter {
        /// Resumed with `nil` if its task is cancelled.
        var continuation: CheckedContinuation<Slot?, Never>
    }

    private struct Host {
        var active = 0
        /// Those of them that were not visible when they got their slot.
        var background = 0
        var waiting: [UInt64: Waiter] = [:]
        /// Numbers of waiters by priority; one that is no longer in `waiting` is passed over.
        var lines: [Queue<UInt64>] = FetchPriority.allCases.map { _ in Queue() }

        /// The slot that is free for a fetch of a priority.
        private func free(for priority: FetchPriority, _ limits: Limits) -> Slot? {
            guard active < limits.all else { return nil }
            if priority == .visible { return .visible }
            return background < limits.background ? .background : nil
        }

        private mutating func occupy(_ slot: Slot) {
            active += 1
            if slot == .background { background += 1 }
        }

        /// Gives a slot to a fetch of a priority, if there is one for it.
        mutating func admit(_ priority: FetchPriority, _ limits: Limits) -> Slot? {
            guard let slot = free(for: priority, limits) else { return nil }
            occupy(slot)
            return slot
        }

        /// Gives a slot to the first waiter for whom there is one.
        mutating func admitNext(_ limits: Limits) -> (waiter: Waiter, slot: Slot)? {
            for priority in FetchPriority.allCases.reversed() {
                guard let slot = free(for: priority, limits) else { continue }
                while let number = lines[priority.rawValue].popFirst() {
                    guard let waiter = waiting.removeValue(forKey: number) else { continue }
                    occupy(slot)
                    return (waiter, slot)
                }
            }
            return nil
        }
    }

    private struct Limits {
        var all: Int
        /// For what is not visible.
        var background: Int
    }

    private struct State {
        var hosts: [String: Host] = [:]
        var last: UInt64 = 0

        mutating func dropIfIdle(_ host: String) {
            if let left = hosts[host], left.active <= 0, left.waiting.isEmpty { hosts[host] = nil }
        }
    }

    private let limits: Limits
    private let state = Locked(State())

    /// A gate for so many at once on each host.
    ///
    /// - Parameter forVisible: So many of them only for visible tiles; `nil` for a third. One is always left for the rest.
    init(perHost: Int, forVisible: Int? = nil) {
        let all = max(1, perHost)
        let reserved = forVisible ?? (all > 1 ? max(1, all / 3) : 0)
        limits = Limits(all: all, background: all - min(max(0, reserved), all - 1))
    }

    /// How many wait for a slot of a host.
    func waiting(_ host: String) -> Int { state.withLock { $0.hosts[host]?.waiting.count ?? 0 } }
    /// For how many hosts there is anything to know.
    var hostCount: Int { state.withLock { $0.hosts.count } }

    /// Runs a body in one of the host's slots.
    ///
    /// - Throws: `CancellationError` if the task is cancelled while it waits; what the body throws.
    func withSlot<R: Sendable>(
        _ host: String, _ ticket: FetchTicket, _ body: () async throws -> R
    ) async throws -> R {
        let slot = try await enter(host, ticket)
        defer { leave(host, slot) }
        return try await body()
    }

    private func enter(_ host: String, _ ticket: FetchTicket) async throws -> Slot {
        let priority = ticket.priority
        let (slot, number) = state.withLock { state -> (Slot?, UInt64) in
            if let slot = state.hosts[host, default: Host()].admit(priority, limits) { return (slot, 0) }
            state.last += 1
            return (nil, state.last)
        }
        if let slot { return slot }
        let given: Slot? = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                // A slot may have come free since, or the task been cancelled: decided here, in one step with queueing.
                let decided = state.withLock { state -> Slot?? in
                    if Task.isCancelled { return .some(nil) }
                    if let slot = state.hosts[host, default: Host()].admit(priority, limits) { return slot }
                    state.hosts[host, default: Host()].waiting[number] = Waiter(continuation: continuation)
                    return nil
                }
                if let decided { return continuation.resume(returning: decided) }
                let priority = ticket.watch { [weak self] in self?.line(number, host, $0) }
                line(number, host, priority)
            }
        } onCancel: {
            let waiter = state.withLock { state -> Waiter? in
                let waiter = state.hosts[host]?.waiting.removeValue(forKey: number)
                state.dropIfIdle(host)
                return waiter
            }
            waiter?.continuation.resume(returning: nil)
        }
        _ = ticket.watch(nil)
        guard let given else { throw CancellationError() }
        return given
    }

    /// Puts a waiter into the line of a priority; it may stand in a lower one too.
    private func line(_ number: UInt64, _ host: String, _ priority: FetchPriority) {
        // Between queueing and lining up a slot may have come free without finding this one.
        let next = state.withLock { state -> (waiter: Waiter, slot: Slot)? in
            guard state.hosts[host]?.waiting[number] != nil else { return nil }
            state.hosts[host, default: Host()].lines[priority.rawValue].append(number)
            return state.hosts[host, default: Host()].admitNext(limits)
        }
        if let next { next.waiter.continuation.resume(returning: next.slot) }
    }

    private func leave(_ host: String, _ slot: Slot) {
        let next = state.withLock { state -> (waiter: Waiter, slot: Slot)? in
            state.hosts[host, default: Host()].active -= 1
            if slot == .background { state.hosts[host, default: Host()].background -= 1 }
            if let next = state.hosts[host, default: Host()].admitNext(limits) { return next }
            state.dropIfIdle(host)
            return nil
        }
        if let next { next.waiter.continuation.resume(returning: next.slot) }
    }
}
