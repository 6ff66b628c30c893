#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A value behind a lock.
///
/// Over `pthread_mutex` (an unfair lock on Apple platforms) rather than `Synchronization.Mutex`, which needs newer systems
/// and confuses the thread sanitizer on Linux.
@usableFromInline package final class Locked<State>: @unchecked Sendable {
    // `state` is touched only while `lock` is held.
    private let lock: UnsafeMutablePointer<RawLock>
    @exclusivity(unchecked) @usableFromInline var state: State

    package init(_ state: consuming sending State) {
        self.state = state
        lock = .allocate(capacity: 1)
        rawLockInitialize(lock)
    }

    deinit {
        rawLockDestroy(lock)
        lock.deallocate()
    }

    // Inlinable: where it is not specialised, the detour over metadata costs more than the lock.
    @inlinable @inline(__always)
    package func withLock<R, E: Error>(_ body: (inout State) throws(E) -> R) throws(E) -> R {
        acquire()
        defer { release() }
        return try body(&state)
    }

    @usableFromInline func acquire() { rawLockLock(lock) }

    @usableFromInline func release() { rawLockUnlock(lock) }

    /// Runs the body if nobody holds the lock; else returns `nil` at once.
    @inline(__always)
    func tryWithLock<R, E: Error>(_ body: (inout State) throws(E) -> R) throws(E) -> R? {
        guard rawLockTry(lock) else { return nil }
        defer { rawLockUnlock(lock) }
        return try body(&state)
    }
}

#if canImport(Darwin)
typealias RawLock = os_unfair_lock_s
@inline(__always) func rawLockInitialize(_ lock: UnsafeMutablePointer<RawLock>) {
    lock.initialize(to: os_unfair_lock_s())
}
@inline(__always) func rawLockDestroy(_ lock: UnsafeMutablePointer<RawLock>) { lock.deinitialize(count: 1) }
@inline(__always) func rawLockLock(_ lock: UnsafeMutablePointer<RawLock>) { os_unfair_lock_lock(lock) }
@inline(__always) func rawLockUnlock(_ lock: UnsafeMutablePointer<RawLock>) { os_unfair_lock_unlock(lock) }
@inline(__always) func rawLockTry(_ lock: UnsafeMutablePointer<RawLock>) -> Bool { os_unfair_lock_trylock(lock) }
#else
typealias RawLock = pthread_mutex_t
@inline(__always) func rawLockInitialize(_ lock: UnsafeMutablePointer<RawLock>) {
    lock.initialize(to: pthread_mutex_t())
    pthread_mutex_init(lock, nil)
}
@inline(__always) func rawLockDestroy(_ lock: UnsafeMutablePointer<RawLock>) { pthread_mutex_destroy(lock) }
@inline(__always) func rawLockLock(_ lock: UnsafeMutablePointer<RawLock>) { pthread_mutex_lock(lock) }
@inline(__always) func rawLockUnlock(_ lock: UnsafeMutablePointer<RawLock>) { pthread_mutex_unlock(lock) }
@inline(__always) func rawLockTry(_ lock: UnsafeMutablePointer<RawLock>) -> Bool { pthread_mutex_trylock(lock) == 0 }
#endif

/// A mutex with a condition: a queue that threads wait on.
@usableFromInline package final class Monitor<State>: @unchecked Sendable {
    // `state` is touched only while `mutex` is held.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>
    @exclusivity(unchecked) @usableFromInline var state: State

    package init(_ state: consuming sending State) {
        self.state = state
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        pthread_mutex_init(mutex, nil)
        condition = .allocate(capacity: 1)
        condition.initialize(to: pthread_cond_t())
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        condition.deallocate()
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    @inlinable
    package func withLock<R, E: Error>(_ body: (inout State) throws(E) -> R) throws(E) -> R {
        acquire()
        defer { release() }
        return try body(&state)
    }

    @usableFromInline func acquire() { pthread_mutex_lock(mutex) }

    @usableFromInline func release() { pthread_mutex_unlock(mutex) }

    /// Waits until the body returns a value; it is called again after each ``wakeAll()``.
    package func wait<R>(until body: (inout State) -> R?) -> R {
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while true {
            if let result = body(&state) { return result }
            pthread_cond_wait(condition, mutex)
        }
    }

    package func wakeAll() { pthread_cond_broadcast(condition) }

    /// Wakes one of those that wait, for a queue where any of them will do.
    package func wakeOne() { pthread_cond_signal(condition) }
}
