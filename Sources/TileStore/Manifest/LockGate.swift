/// Says whether this store may take the cache's locks, and who holds one: none of them is held while the store is suspended.
///
/// `lock` and `compact.lock` go through it. Not those of files in `staging/` that are written piece by piece (``StagedFile``), which
/// only servers write.
final class LockGate: Sendable {
    private struct State {
        var isShut = false
        /// Whether who finds it shut does not wait for it.
        var isRefusing = false
        var isClosed = false
        /// Locks that are held, or being tried.
        var holders = 0
    }
    private let state = Monitor(State())

    /// Whether no lock may be taken for now.
    var isShut: Bool { state.withLock { $0.isShut } }
    /// Whether it is shut, and nobody is to wait until it opens.
    var isRefusing: Bool { state.withLock { $0.isShut && $0.isRefusing } }
    /// Whether no lock may be taken any more.
    var isClosed: Bool { state.withLock { $0.isClosed } }

    /// Asks for leave to take a lock; who gets it has to ``leave()``.
    ///
    /// - Parameter isWithin: Whether the caller holds another lock already: what has it wait would wait for it.
    func enter(isWithin: Bool = false) -> Bool {
        state.withLock { state in
            guard !state.isShut || isWithin else { return false }
            state.holders += 1
            return true
        }
    }

    /// A lock was given back, or could not be had.
    func leave() {
        let isLast = state.withLock { state in
            state.holders -= 1
            return state.isShut && state.holders == 0
        }
        if isLast { state.wakeAll() }
    }

    /// Lets no lock be taken, and waits until none is held.
    func shut(refusing: Bool) {
        state.withLock { state in
            state.isShut = true
            state.isRefusing = refusing
        }
        state.wait { $0.holders == 0 || !$0.isShut ? () : nil }
    }

    /// Lets locks be taken again.
    func open() {
        state.withLock { if !$0.isClosed { $0.isShut = false } }
        state.wakeAll()
    }

    /// If it is shut, it stays so for good.
    ///
    /// - Returns: Whether it was shut.
    func close() -> Bool {
        state.withLock { state in
            if state.isShut { state.isClosed = true }
            return state.isShut
        }
    }
}
