import Foundation
import Synchronization

/// Runs a body on real threads that are let go together; returns the seconds until the last is done.
func onThreads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) -> Double {
    let gate = Gate()
    let done = DispatchSemaphore(value: 0)
    for index in 0..<count {
        let thread = Thread {
            gate.waiting.add(1, ordering: .acquiringAndReleasing)
            while !gate.isOpen.load(ordering: .acquiring) {}
            body(index)
            done.signal()
        }
        thread.start()
    }
    while gate.waiting.load(ordering: .acquiring) < count { sched_yield() }
    let start = nanoseconds()
    gate.isOpen.store(true, ordering: .releasing)
    for _ in 0..<count { done.wait() }
    return Double(nanoseconds() - start) / 1e9
}

/// Where threads wait until all are there.
private final class Gate: Sendable {
    let waiting = Atomic<Int>(0)
    let isOpen = Atomic<Bool>(false)
}

/// A flag that one thread sets and others watch.
final class Signal: Sendable {
    private let value = Atomic<Bool>(false)
    var isSet: Bool { value.load(ordering: .acquiring) }
    func set() { value.store(true, ordering: .releasing) }
}

/// A place for a thread's result, read after the thread is done.
final class Box<Value: Sendable>: Sendable {
    private let value: Mutex<Value>
    init(_ value: Value) { self.value = Mutex(value) }
    var content: Value {
        get { value.withLock { $0 } }
        set { value.withLock { $0 = newValue } }
    }
    func change(_ body: (inout sending Value) -> Void) { value.withLock { body(&$0) } }
}
