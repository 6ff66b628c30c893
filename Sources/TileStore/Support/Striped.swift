#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A state that many threads read at once and one changes: each reader takes one of a few locks, a writer takes all.
///
/// Threads are given locks in turn, so that readers on different threads rarely touch the same cache line. A writer pays
/// for it (about 0.02 µs for each lock that readers have used so far), which is little beside its file operations.
final class Striped<State: AnyObject, Local>: @unchecked Sendable {
    // `state` is read under one stripe's lock and changed under those of all stripes in use; a stripe's `local` and its
    // `isKnown` belong to its lock. `inUse` belongs to the first stripe's lock, which every writer takes before all
    // others: a stripe comes into use under it, so no writer is at work then, and the next one takes the new stripe's too.
    private static var count: Int { 8 }
    private struct Stripe {
        var lock: RawLock
        var local: Local
        var isKnown: Bool
    }
    private let memory: UnsafeMutableRawPointer
    private let spacing: Int
    @exclusivity(unchecked) private var inUse = 1
    @exclusivity(unchecked) private var state: State

    init(_ state: State, local: () -> Local) {
        self.state = state
        // Two cache lines at least, so that neighbours do not disturb each other.
        spacing = (MemoryLayout<Stripe>.size + 255) / 256 * 256
        memory = .allocate(byteCount: Self.count * spacing, alignment: 256)
        for i in 0..<Self.count {
            let stripe = (memory + i * spacing).bindMemory(to: Stripe.self, capacity: 1)
            stripe.initialize(to: Stripe(lock: RawLock(), local: local(), isKnown: i == 0))
            rawLockInitialize(lock(i))
        }
    }

    deinit {
        for i in 0..<Self.count {
            rawLockDestroy(lock(i))
            stripe(i).deinitialize(count: 1)
        }
        memory.deallocate()
    }

    @inline(__always)
    private func stripe(_ i: Int) -> UnsafeMutablePointer<Stripe> {
        (memory + i &* spacing).assumingMemoryBound(to: Stripe.self)
    }

    // The lock is the stripe's first member.
    @inline(__always)
    private func lock(_ i: Int) -> UnsafeMutablePointer<RawLock> {
        (memory + i &* spacing).assumingMemoryBound(to: RawLock.self)
    }

    /// Reads the state; other readers may do so at the same time.
    ///
    /// The local part is this stripe's own.
    @inline(__always)
    func read<R, E: Error>(_ body: (State, inout Local) throws(E) -> R) throws(E) -> R {
        let i = threadNumber() & (Self.count - 1)
        rawLockLock(lock(i))
        if !stripe(i).pointee.isKnown { introduce(i) }
        defer { rawLockUnlock(lock(i)) }
        return try body(state, &stripe(i).pointee.local)
    }

    /// Has writers take a stripe's lock too from now on.
    ///
    /// The stripe's lock is held before and afterwards, but not meanwhile: writers take the first one before it.
    @inline(never)
    private func introduce(_ i: Int) {
        rawLockUnlock(lock(i))
        rawLockLock(lock(0))
        inUse = max(inUse, i + 1)
        rawLockUnlock(lock(0))
        rawLockLock(lock(i))
        stripe(i).pointee.isKnown = true
    }

    @inline(__always)
    private func lockAll() -> Int {
        rawLockLock(lock(0))
        let count = inUse
        for i in 1..<max(1, count) { rawLockLock(lock(i)) }
        return count
    }

    @inline(__always)
    private func unlockAll(_ count: Int) { for i in 0..<count { rawLockUnlock(lock(i)) } }

    /// Changes the state, alone.
    @inline(__always)
    func write<R, E: Error>(_ body: (inout State) throws(E) -> R) throws(E) -> R {
        let count = lockAll()
        defer { unlockAll(count) }
        return try body(&state)
    }

    /// Visits all local parts and then changes the state, alone.
    func write(visiting visit: (State, inout Local) -> Void, then body: (inout State) -> Void) {
        let count = lockAll()
        defer { unlockAll(count) }
        for i in 0..<count { visit(state, &stripe(i).pointee.local) }
        body(&state)
    }

    /// Visits each stripe's local part under its own lock.
    func forEachLocal(_ body: (inout Local) -> Void) {
        for i in 0..<Self.count {
            rawLockLock(lock(i))
            body(&stripe(i).pointee.local)
            rawLockUnlock(lock(i))
        }
    }
}

/// A small number for the calling thread, given out in turn.
@inline(__always)
private func threadNumber() -> Int {
    let known = Int(bitPattern: pthread_getspecific(threadNumberKey))
    if known != 0 { return known &- 1 }
    let number = nextThreadNumber.withLock {
        $0 = ($0 & 0xFFFF) + 1
        return $0
    }
    pthread_setspecific(threadNumberKey, UnsafeRawPointer(bitPattern: number))
    return number - 1
}

private let nextThreadNumber = Locked(0)
private let threadNumberKey: pthread_key_t = {
    var key = pthread_key_t()
    precondition(pthread_key_create(&key, nil) == 0, "no thread-specific storage is left")
    return key
}()
