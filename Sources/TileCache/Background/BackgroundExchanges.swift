/// The requests of one background session, as decisions: which tasks the system is given, and who gets which answer.
///
/// The system carries out tasks while the process is suspended or gone, and tells their outcomes to whichever process opens the
/// session next. A request has a name that is the same in each process, so one that is asked for again takes what an earlier
/// process has begun: the answer that has come, or the task that is under way. Told events, it says what is to be done; it does
/// nothing itself.
struct BackgroundExchanges<Answer: Sendable>: Sendable {
    enum Event: Sendable {
        /// The names of the tasks that the system had when the session was opened. What is wanted before is not begun:
        /// it may be among them.
        case listed([String])
        /// Somebody waits for the answer to a request.
        case wanted(UInt64, String)
        /// Somebody waits no more.
        case unwanted(UInt64)
        /// A task has ended. An answer whose size is told is kept, and can be taken by one who asks later.
        case ended(String, Answer, bytes: Int?)
        /// The system has told all that happened while no process was there.
        case eventsDelivered
        /// Somebody works on what comes next: asks for a tile, stores one. Those who wait for an answer do not work.
        case workBegan(Int)
        case workEnded(Int)
        /// Somebody wants to know when all that has come is taken care of.
        case rest(UInt64)
        case restUnwanted(UInt64)
        /// What nobody waits for is not wanted any more.
        case over
    }

    enum Action: Sendable {
        /// Give the system a task for what this one has asked for.
        case start(String, for: UInt64)
        case cancel(String)
        case answer(UInt64, Answer)
        /// Tell one who gave up.
        case giveUp(UInt64)
        /// All that has come is taken care of.
        case rested(UInt64)
    }

    /// So many answers that nobody has asked for yet are kept; then the oldest is dropped, which costs a request.
    static var mostKept: Int { 1024 }
    /// They have so many bytes at most: they are in memory.
    static var mostKeptBytes: Int { 64 << 20 }

    private var isListed = false
    /// What those wait for who came before the tasks were listed, in their order.
    private var early: [(waiter: UInt64, name: String)] = []
    /// Tasks that ended before that: the list may name them still.
    private var endedEarly: Set<String> = []
    /// Who waits for which task; nobody for one of an earlier process that was not asked for yet.
    private var running: [String: [UInt64]] = [:]
    private var names: [UInt64: String] = [:]
    private var kept: [String: (answer: Answer, bytes: Int)] = [:]
    private var keptOrder: [String] = []
    private var keptBytes = 0
    private var working = 0
    private var hasEvents = false
    private var resting: [UInt64] = []

    /// How many tasks the system has.
    var taskCount: Int { running.count }

    /// How many work.
    var workers: Int { working }

    mutating func on(_ event: Event) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .listed(let names): actions = list(names)
        case .wanted(let waiter, let name):
            working -= 1
            names[waiter] = name
            if isListed { actions = want(waiter, name) } else { early.append((waiter, name)) }
        case .unwanted(let waiter): actions = leave(waiter)
        case .ended(let name, let answer, let bytes): actions = end(name, answer, bytes)
        case .eventsDelivered: hasEvents = true
        case .workBegan(let count): working += count
        case .workEnded(let count): working -= count
        case .rest(let number): resting.append(number)
        case .restUnwanted(let number): resting.removeAll { $0 == number }
        case .over:
            (kept, keptOrder, keptBytes) = ([:], [], 0)
            for (name, waiters) in running where waiters.isEmpty {
                running[name] = nil
                actions.append(.cancel(name))
            }
        }
        if hasEvents, isListed, working == 0, !resting.isEmpty {
            actions += resting.map { .rested($0) }
            (resting, hasEvents) = ([], false)
        }
        return actions
    }

    private mutating func list(_ names: [String]) -> [Action] {
        guard !isListed else { return [] }
        isListed = true
        for name in names where !endedEarly.contains(name) { running[name] = [] }
        endedEarly = []
        defer { early = [] }
        return early.flatMap { want($0.waiter, $0.name) }
    }

    private mutating func want(_ waiter: UInt64, _ name: String) -> [Action] {
        if let answer = take(name) {
            keptOrder.removeAll { $0 == name }
            return [deliver(waiter, answer)]
        }
        if running[name] != nil {
            running[name]?.append(waiter)
            return []
        }
        running[name] = [waiter]
        return [.start(name, for: waiter)]
    }

    private mutating func leave(_ waiter: UInt64) -> [Action] {
        guard let name = names.removeValue(forKey: waiter) else { return [] }
        working += 1
        early.removeAll { $0.waiter == waiter }
        guard let waiters = running[name], waiters.contains(waiter) else { return [.giveUp(waiter)] }
        let others = waiters.filter { $0 != waiter }
        running[name] = others.isEmpty ? nil : others
        return others.isEmpty ? [.giveUp(waiter), .cancel(name)] : [.giveUp(waiter)]
    }

    private mutating func end(_ name: String, _ answer: Answer, _ bytes: Int?) -> [Action] {
        if !isListed { endedEarly.insert(name) }
        let waiters = running.removeValue(forKey: name) ?? []
        if waiters.isEmpty, let bytes { keep(name, answer, bytes) }
        return waiters.map { deliver($0, answer) }
    }

    private mutating func deliver(_ waiter: UInt64, _ answer: Answer) -> Action {
        names[waiter] = nil
        working += 1
        return .answer(waiter, answer)
    }

    private mutating func keep(_ name: String, _ answer: Answer, _ bytes: Int) {
        guard bytes <= Self.mostKeptBytes else { return }
        if take(name) == nil { keptOrder.append(name) }
        kept[name] = (answer, bytes)
        keptBytes += bytes
        while keptOrder.count > Self.mostKept || keptBytes > Self.mostKeptBytes {
            _ = take(keptOrder.removeFirst())
        }
    }

    private mutating func take(_ name: String) -> Answer? {
        guard let found = kept.removeValue(forKey: name) else { return nil }
        keptBytes -= found.bytes
        return found.answer
    }
}
