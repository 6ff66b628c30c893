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
/// for it (about 0.15 µs), which is little beside its file operations.
final class Striped<State: AnyObject, Local>: @unchecked Sendable {
    // `state` is read under one stripe's lock and changed under all of them; a stripe's `local` belongs to its lock.
    private static var count: Int { 8 }
    private static var spacing: Int { 256 }
    private let memory: UnsafeMutableRawPointer
    private let locals: UnsafeMutablePointer<Local>
    @exclusivity(unchecked) private var state: State

    init(_ state: State, local: () -> Local) {
        self.state = state
        memory = .allocate(byteCount: Self.count * Self.spacing, alignment: Self.spacing)
        locals = .allocate(capacity: Self.count)
        for i in 0..<Self.count {
            rawLockInitialize((memory + i * Self.spacing).bindMemory(to: RawLock.self, capacity: 1))
            (locals + i).initialize(to: local())
        }
    }

    deinit {
        for i in 0..<Self.count { rawLockDestroy(lock(i)) }
        locals.deinitialize(count: Self.count)
        locals.deallocate()
        memory.deallocate()
    }

    @inline(__always)
    private func lock(_ i: Int) -> UnsafeMutablePointer<RawLock> {
        (memory + i * Self.spacing).assumingMemoryBound(to: RawLock.self)
    }

    /// Reads the state; other readers may do so at the same time.
    ///
    /// The local part is this stripe's own.
    @inline(__always)
    func read<R, E: Error>(_ body: (State, inout Local) throws(E) -> R) throws(E) -> R {
        let i = threadNumber() & (Self.count - 1)
        rawLockLock(lock(i))
        defer { rawLockUnlock(lock(i)) }
        return try body(state, &locals[i])
    }

    /// Changes the state, alone.
    func write<R, E: Error>(_ body: (inout State) throws(E) -> R) throws(E) -> R {
        for i in 0..<Self.count { rawLockLock(lock(i)) }
        defer { for i in 0..<Self.count { rawLockUnlock(lock(i)) } }
        return try body(&state)
    }

    /// Changes the state and all local parts, alone.
    func writeAll<R, E: Error>(
        _ body: (inout State, UnsafeMutableBufferPointer<Local>) throws(E) -> R
    ) throws(E) -> R {
        for i in 0..<Self.count { rawLockLock(lock(i)) }
        defer { for i in 0..<Self.count { rawLockUnlock(lock(i)) } }
        return try body(&state, UnsafeMutableBufferPointer(start: locals, count: Self.count))
    }

    /// Visits each stripe's local part under its own lock.
    func forEachLocal(_ body: (inout Local) -> Void) {
        for i in 0..<Self.count {
            rawLockLock(lock(i))
            body(&locals[i])
            rawLockUnlock(lock(i))
        }
    }
}

/// A small number for the calling thread, given out in turn.
@inline(__always)
private func threadNumber() -> Int {
    let known = Int(bitPattern: pthread_getspecific(threadNumberKey))
    if known != 0 { return known }
    let number = nextThreadNumber.withLock {
        $0 = ($0 & 0xFFFF) + 1
        return $0
    }
    pthread_setspecific(threadNumberKey, UnsafeRawPointer(bitPattern: number))
    return number
}

private let nextThreadNumber = Locked(0)
private let threadNumberKey: pthread_key_t = {
    var key = pthread_key_t()
    precondition(pthread_key_create(&key, nil) == 0, "no thread-specific storage is left")
    return key
}()
