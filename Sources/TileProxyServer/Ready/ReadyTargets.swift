import NIOCore
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A target of the generic route with the key that it leads to: one allocation of some 100 bytes.
struct ReadyTarget {
    struct Header {
        let key: KnownKey
        /// Which requests it is for, if not for all.
        let selection: ReadySelection?
        let head: ReadyHead
        let hash: UInt32
        let count: Int32
        /// Whether it was used since the table last looked for something to drop.
        var isUsed = true
    }

    private let storage: ManagedBuffer<Header, UInt8>

    init(_ target: UnsafeRawBufferPointer, _ key: KnownKey, _ selection: ReadySelection?, _ head: ReadyHead) {
        let header = Header(
            key: key, selection: selection, head: head, hash: Self.hash(target), count: Int32(clamping: target.count))
        storage = .create(minimumCapacity: target.count) { _ in header }
        storage.withUnsafeMutablePointerToElements {
            UnsafeMutableRawBufferPointer(start: $0, count: target.count).copyMemory(from: target)
        }
    }

    /// A hash that clients cannot foresee, and never 0.
    @inline(__always)
    static func hash(_ target: UnsafeRawBufferPointer) -> UInt32 {
        var hasher = Hasher()
        hasher.combine(bytes: target)
        return UInt32(truncatingIfNeeded: hasher.finalize()) | 1
    }

    @inline(__always) var key: KnownKey { storage.withUnsafeMutablePointerToHeader { $0.pointee.key } }
    @inline(__always) var hash: UInt32 { storage.withUnsafeMutablePointerToHeader { $0.pointee.hash } }
    @inline(__always) var selection: ReadySelection? {
        storage.withUnsafeMutablePointerToHeader { $0.pointee.selection }
    }
    @inline(__always) var head: ReadyHead { storage.withUnsafeMutablePointerToHeader { $0.pointee.head } }
    @inline(__always) var isUsed: Bool {
        get { storage.withUnsafeMutablePointerToHeader { $0.pointee.isUsed } }
        nonmutating set { storage.withUnsafeMutablePointerToHeader { $0.pointee.isUsed = newValue } }
    }

    /// Whether it is for a target.
    @inline(__always)
    func isFor(_ target: UnsafeRawBufferPointer) -> Bool {
        storage.withUnsafeMutablePointers { header, bytes in
            guard Int(header.pointee.count) == target.count, let other = target.baseAddress else { return false }
            return memcmp(bytes, other, target.count) == 0
        }
    }

    /// Whether it is for the same target as another one.
    func hasTarget(of other: ReadyTarget) -> Bool {
        storage.withUnsafeMutablePointers { header, bytes in
            other.isFor(UnsafeRawBufferPointer(start: bytes, count: Int(header.pointee.count)))
        }
    }

    /// About how much memory it takes, its places in the table included.
    var cost: Int {
        storage.withUnsafeMutablePointerToHeader { Int($0.pointee.count) + 120 + ($0.pointee.selection?.cost ?? 0) }
    }
}

/// A hash table of targets by their bytes.
///
/// It grows; the caller drops entries with ``dropOne()`` when they take too many bytes. Eviction is random with a second
/// chance: when slightly more is requested than fits, only slightly more is missed, in whatever order.
struct ReadyTargets {
    // Open addressing with linear probing, at most five eighths full; a hash of 0 is an empty place.
    private var hashes: [UInt32] = Array(repeating: 0, count: 256)
    private var targets: [ReadyTarget?] = Array(repeating: nil, count: 256)
    private(set) var count = 0
    private var random = UInt64.random(in: 1...UInt64.max)

    /// The most variants of one target: clients choose the fields that select them.
    static let variants = 8

    private var mask: Int { hashes.count - 1 }

    /// The first target that a body takes.
    @inline(__always)
    func find(_ hash: UInt32, _ body: (ReadyTarget) -> Bool) -> ReadyTarget? {
        var at = Int(hash) & mask
        while hashes[at] != 0 {
            if hashes[at] == hash, let target = targets[at], body(target) { return target }
            at = (at &+ 1) & mask
        }
        return nil
    }

    /// Adds a target; the caller has removed those that it replaces.
    mutating func insert(_ target: ReadyTarget) {
        if (count + 1) * 8 > hashes.count * 5 { grow() }
        place(target)
        count += 1
    }

    /// Takes out a target that a body takes.
    mutating func remove(_ hash: UInt32, where body: (ReadyTarget) -> Bool) -> ReadyTarget? {
        var at = Int(hash) & mask
        while hashes[at] != 0 {
            if hashes[at] == hash, let target = targets[at], body(target) {
                empty(at)
                return target
            }
            at = (at + 1) & mask
        }
        return nil
    }

    /// How many targets have a hash.
    func count(of hash: UInt32) -> Int {
        var (at, found) = (Int(hash) & mask, 0)
        while hashes[at] != 0 {
            if hashes[at] == hash { found += 1 }
            at = (at + 1) & mask
        }
        return found
    }

    /// Removes a random target that was not used since this function last passed it, or after eight used ones the next.
    mutating func dropOne() -> ReadyTarget? {
        guard count > 0 else { return nil }
        random ^= random << 13
        random ^= random >> 7
        random ^= random << 17
        var at = Int(truncatingIfNeeded: random >> 16) & mask
        var passed = 0
        while true {
            if let target = targets[at] {
                guard target.isUsed, passed < 8 else {
                    empty(at)
                    return target
                }
                target.isUsed = false
                passed += 1
            }
            at = (at + 1) & mask
        }
    }

    private mutating func place(_ target: ReadyTarget) {
        var at = Int(target.hash) & mask
        while hashes[at] != 0 { at = (at + 1) & mask }
        (hashes[at], targets[at]) = (target.hash, target)
    }

    private mutating func grow() {
        let former = targets
        hashes = Array(repeating: 0, count: former.count * 2)
        targets = Array(repeating: nil, count: former.count * 2)
        for case .some(let target) in former { place(target) }
    }

    /// Empties a place; those behind it move up, so that no tombstones are needed.
    private mutating func empty(_ place: Int) {
        var (hole, at) = (place, (place + 1) & mask)
        while hashes[at] != 0 {
            let home = Int(hashes[at]) & mask
            if (at - home) & mask >= (at - hole) & mask {
                (hashes[hole], targets[hole]) = (hashes[at], targets[at])
                hole = at
            }
            at = (at + 1) & mask
        }
        (hashes[hole], targets[hole]) = (0, nil)
        count -= 1
    }
}
