import TileStore

/// Lets at most so many requests at once go to one origin; who waits goes by priority, then by time of arrival.
///
/// Some slots are kept free for what somebody waits for: a download that has its requests under way must not make a person
/// wait for one of them to end. For event loops by closures, for tasks by ``slot(_:_:)``.
package final class OriginSlots: Sendable {
    /// A slot, which must be given back by ``leave(_:)``.
    package struct Slot: Sendable {
        fileprivate let origin: String
        /// Whether it counts as one that nobody looks at.
        fileprivate let isBackground: Bool
    }

    /// What became of the wish for a slot.
    package enum Entered: Sendable {
        case slot(Slot)
        /// It waits, under this number.
        case waits(UInt64)
    }

    private struct Origin {
        var active = 0
        /// Those of them that were not visible when they got their slot.
        var background = 0
        var waiting: [UInt64: @Sendable (Slot) -> Void] = [:]
        /// Numbers of waiters by priority; one that is no longer in `waiting` is passed over.
        var lines: [Queue<UInt64>] = FetchPriority.allCases.map { _ in Queue() }

        /// Gives a slot to one of a priority, if there is one for it.
        mutating func admit(_ priority: FetchPriority, _ name: String, _ limits: Limits) -> Slot? {
            guard active < limits.all, priority == .visible || background < limits.background else {
                return nil
            }
            active += 1
            if priority != .visible { background += 1 }
            return Slot(origin: name, isBackground: priority != .visible)
        }

        /// Gives a slot to the first waiter for whom there is one.
        mutating func admitNext(_ name: String, _ limits: Limits) -> Admitted? {
            for priority in FetchPriority.allCases.reversed() {
                while let number = lines[priority.rawValue].first {
                    guard let granted = waiting[number] else {
                        _ = lines[priority.rawValue].popFirst()
                        continue
                    }
                    guard let slot = admit(priority, name, limits) else { break }
                    _ = lines[priority.rawValue].popFirst()
                    waiting[number] = nil
                    return Admitted(granted: granted, slot: slot)
                }
            }
            return nil
        }
    }

    /// A waiter that has a slot now, and is told outside of the lock.
    private struct Admitted {
        var granted: @Sendable (Slot) -> Void
        var slot: Slot
    }

    private struct Limits {
        var all: Int
        /// For what is not visible.
        var background: Int
    }

    private struct State {
        var origins: [String: Origin] = [:]
        var last: UInt64 = 0

        mutating func dropIfIdle(_ name: String) {
            if let left = origins[name], left.active <= 0, left.waiting.isEmpty { origins[name] = nil }
        }
    }

    private let limits: Limits
    private let state = Locked(State())

    /// So many slots at each origin.
    ///
    /// - Parameter forVisible: So many of them only for visible tiles; `nil` for a third. One is always left for the rest.
    package init(perOrigin: Int, forVisible: Int? = nil) {
        let all = max(1, perOrigin)
        let reserved = forVisible ?? (all > 1 ? max(1, all / 3) : 0)
        limits = Limits(all: all, background: all - min(max(0, reserved), all - 1))
    }

    /// How many wait for a slot of an origin.
    package func waiting(_ origin: String) -> Int {
        state.withLock { $0.origins[origin]?.waiting.count ?? 0 }
    }
    /// For how many origins there is anything to know.
    package var originCount: Int { state.withLock { $0.origins.count } }

    /// Asks for a slot.
    ///
    /// - Parameters:
    ///   - ticket: How urgent it is; it may become more urgent while it waits.
    ///   - granted: Called once, on any thread, with the slot that it waited for, unless it gives up.
    package func enter(
        _ origin: String, _ ticket: FetchTicket, granted: @escaping @Sendable (Slot) -> Void
    ) -> Entered {
        let priority = ticket.priority
        let entered = state.withLock { state -> Entered in
            if let slot = state.origins[origin, default: Origin()].admit(priority, origin, limits) {
                return .slot(slot)
            }
            state.last += 1
            state.origins[origin, default: Origin()].waiting[state.last] = granted
            return .waits(state.last)
        }
        guard case .waits(let number) = entered else { return entered }
        line(number, origin, ticket.watch { [weak self] in self?.line(number, origin, $0) })
        return entered
    }

    /// Waits no longer; nothing if it has its slot, or is about to be told.
    package func giveUp(_ origin: String, _ number: UInt64) {
        state.withLock { state in
            state.origins[origin]?.waiting[number] = nil
            state.dropIfIdle(origin)
        }
    }

    /// Gives a slot back.
    package func leave(_ slot: Slot) {
        let next = state.withLock { state -> Admitted? in
            state.origins[slot.origin, default: Origin()].active -= 1
            if slot.isBackground { state.origins[slot.origin, default: Origin()].background -= 1 }
            if let next = state.origins[slot.origin, default: Origin()].admitNext(slot.origin, limits) {
                return next
            }
            state.dropIfIdle(slot.origin)
            return nil
        }
        if let next { next.granted(next.slot) }
    }

    /// Puts a waiter into the line of a priority; it may stand in a lower one too.
    private func line(_ number: UInt64, _ origin: String, _ priority: FetchPriority) {
        // Between queueing and lining up a slot may have come free without finding this one.
        let next = state.withLock { state -> Admitted? in
            guard state.origins[origin]?.waiting[number] != nil else { return nil }
            state.origins[origin, default: Origin()].lines[priority.rawValue].append(number)
            return state.origins[origin, default: Origin()].admitNext(origin, limits)
        }
        if let next { next.granted(next.slot) }
    }

    /// Waits for a slot, which must be given back.
    ///
    /// - Throws: `CancellationError` if the task is cancelled while it waits.
    package func slot(_ origin: String, _ ticket: FetchTicket) async throws -> Slot {
        let race = Race<Slot>()
        // One that was cancelled just before it got its slot gives it back.
        let take: @Sendable (Slot) -> Void = { [self] slot in
            if !race.end(.success(slot)) { leave(slot) }
        }
        switch enter(origin, ticket, granted: take) {
        case .slot(let slot): return slot
        case .waits(let number):
            defer { _ = ticket.watch(nil) }
            race.whenOver { [self] in giveUp(origin, number) }
            return try await race.outcome {}
        }
    }
}
