/// Values in memory, at most so many and so heavy together; the least recently used go.
package struct RecentlyUsed<Key: Hashable & Sendable, Value: Sendable>: Sendable {
    private struct Slot {
        var value: Value
        var weight: Int
        var use: UInt64
    }

    private var slots: [Key: Slot] = [:]
    private var weight = 0
    private var clock: UInt64 = 0
    private let mostWeight: Int
    private let mostCount: Int

    /// - Parameter mostCount: Looking for the least recently used takes a step for each.
    package init(mostWeight: Int, mostCount: Int) { (self.mostWeight, self.mostCount) = (mostWeight, mostCount) }

    /// A value, which is used by that.
    package mutating func find(_ key: Key) -> Value? {
        guard let slot = slots[key] else { return nil }
        clock += 1
        slots[key]?.use = clock
        return slot.value
    }

    /// Keeps a value, in the place of those that were used least recently; not one that is too heavy by itself.
    package mutating func insert(_ value: Value, _ key: Key, weight own: Int) {
        remove(key)
        guard own <= mostWeight else { return }
        while weight + own > mostWeight || slots.count >= mostCount,
            let oldest = slots.min(by: { $0.value.use < $1.value.use })
        {
            remove(oldest.key)
        }
        clock += 1
        slots[key] = Slot(value: value, weight: own, use: clock)
        weight += own
    }

    private mutating func remove(_ key: Key) {
        if let old = slots.removeValue(forKey: key) { weight -= old.weight }
    }
}
