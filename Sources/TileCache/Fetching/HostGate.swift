import TileStore

/// Lets at most so many fetches at once go to one host; who waits goes by priority, then by time of arrival.
final class HostGate: Sendable {
    private struct Waiter {
        var continuation: CheckedContinuation<Bool, Never>
    }

    private struct Host {
        var active = 0
        var waiting: [UInt64: Waiter] = [:]
        /// Numbers of waiters by priority; one that is no longer in `waiting` is passed over.
        var lines: [Queue<UInt64>] = FetchPriority.allCases.map { _ in Queue() }

        mutating func next() -> Waiter? {
            for i in lines.indices.reversed() {
                while let number = lines[i].popFirst() {
                    if let waiter = waiting.removeValue(forKey: number) { return waiter }
                }
            }
            return nil
        }
    }

    private struct State {
        var hosts: [String: Host] = [:]
        var last: UInt64 = 0

        mutating func dropIfIdle(_ host: String) {
            if let left = hosts[host], left.active <= 0, left.waiting.isEmpty { hosts[host] = nil }
        }
    }

    private let most: Int
    private let state = Locked(State())

    /// A gate for so many at once on each host.
    init(perHost: Int) { most = max(1, perHost) }

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
        try await enter(host, ticket)
        defer { leave(host) }
        return try await body()
    }

    private func enter(_ host: String, _ ticket: FetchTicket) async throws {
        let number = state.withLock { state -> UInt64? in
            if state.hosts[host, default: Host()].active < most {
                state.hosts[host, default: Host()].active += 1
                return nil
            }
            state.last += 1
            return state.last
        }
        guard let number else { return }
        let entered = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                // A slot may have come free since, or the task been cancelled: decided here, in one step with queueing.
                let decided = state.withLock { state -> Bool? in
                    if Task.isCancelled { return false }
                    if state.hosts[host, default: Host()].active < most {
                        state.hosts[host, default: Host()].active += 1
                        return true
                    }
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
            waiter?.continuation.resume(returning: false)
        }
        _ = ticket.watch(nil)
        if !entered { throw CancellationError() }
    }

    /// Puts a waiter into the line of a priority; it may stand in a lower one too.
    private func line(_ number: UInt64, _ host: String, _ priority: FetchPriority) {
        // Between queueing and lining up a slot may have come free without finding this one.
        let waiter = state.withLock { state -> Waiter? in
            guard state.hosts[host]?.waiting[number] != nil else { return nil }
            state.hosts[host, default: Host()].lines[priority.rawValue].append(number)
            guard state.hosts[host, default: Host()].active < most,
                let waiter = state.hosts[host, default: Host()].next()
            else { return nil }
            state.hosts[host, default: Host()].active += 1
            return waiter
        }
        waiter?.continuation.resume(returning: true)
    }

    private func leave(_ host: String) {
        let waiter = state.withLock { state -> Waiter? in
            // The slot goes over to the next one, or is given back.
            if let waiter = state.hosts[host, default: Host()].next() { return waiter }
            state.hosts[host, default: Host()].active -= 1
            state.dropIfIdle(host)
            return nil
        }
        waiter?.continuation.resume(returning: true)
    }
}

/// First in, first out, at a constant cost; what was taken out is let go at once.
struct Queue<Element> {
    private var items: [Element?] = []
    private var head = 0

    var count: Int { items.count - head }

    mutating func append(_ item: Element) { items.append(item) }

    mutating func popFirst() -> Element? {
        guard head < items.count else { return nil }
        defer {
            items[head] = nil
            head += 1
            if head == items.count {
                items.removeAll(keepingCapacity: true)
                head = 0
            } else if head >= 1024, head * 2 >= items.count {
                items.removeFirst(head)
                head = 0
            }
        }
        return items[head]
    }
}
