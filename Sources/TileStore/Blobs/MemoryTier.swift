#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Hot blobs by digest, bounded in bytes: ten thousand equal ocean tiles take the room of one.
///
/// In shards by digest, so that threads rarely meet. Each shard drops what has waited longest in it without having been
/// used meanwhile ("second chance"): nearly the order of use, and a hit writes nothing but one mark.
final class MemoryTier: @unchecked Sendable {
    // A shard is touched only under its own lock, which is its first member.
    private let memory: UnsafeMutableRawPointer
    private let count: Int
    /// What a shard may hold.
    private let bound: Int
    /// What a blob costs beside its bytes.
    static let overhead = 160
    // Two cache lines, so that neighbours do not disturb each other.
    private static var spacing: Int { (MemoryLayout<Shard>.size + 127) / 128 * 128 }

    init(bytes: Int) {
        // A shard holds at least a megabyte, so that ordinary tiles fit whatever the bound.
        let most = min(16, max(1, bytes >> 20))
        var power = 1
        while power * 2 <= most { power *= 2 }
        count = bytes <= 0 ? 0 : power
        bound = bytes <= 0 ? 0 : bytes / power
        memory = .allocate(byteCount: max(1, count) * Self.spacing, alignment: 128)
        for i in 0..<count {
            (memory + i * Self.spacing).bindMemory(to: Shard.self, capacity: 1)
                .initialize(to: Shard(bound: bound))
            rawLockInitialize(lock(i))
        }
    }

    deinit {
        for i in 0..<count {
            rawLockDestroy(lock(i))
            shard(i).pointee.free()
            shard(i).deinitialize(count: 1)
        }
        memory.deallocate()
    }

    @inline(__always)
    private func shard(_ i: Int) -> UnsafeMutablePointer<Shard> {
        (memory + i &* Self.spacing).assumingMemoryBound(to: Shard.self)
    }

    @inline(__always)
    private func lock(_ i: Int) -> UnsafeMutablePointer<RawLock> {
        (memory + i &* Self.spacing).assumingMemoryBound(to: RawLock.self)
    }

    @inline(__always)
    private func withShard<R>(of digest: BlobDigest, _ body: (inout Shard) -> R) -> R? {
        guard count > 0 else { return nil }
        let i = Int(truncatingIfNeeded: digest.d) & (count &- 1)
        rawLockLock(lock(i))
        defer { rawLockUnlock(lock(i)) }
        return body(&shard(i).pointee)
    }

    @inline(__always)
    func data(for digest: BlobDigest) -> Data? { withShard(of: digest) { $0.use(digest) } ?? nil }

    /// Whether a blob of so many bytes can be kept at all.
    @inline(__always)
    func takes(_ size: Int) -> Bool { size + Self.overhead <= bound }

    func insert(_ data: Data, for digest: BlobDigest) { withShard(of: digest) { $0.insert(data, digest) } }

    func remove(_ digest: BlobDigest) { withShard(of: digest) { $0.remove(digest) } }

    /// What it holds now, in bytes, as its bound counts them.
    var bytes: Int {
        var sum = 0
        for i in 0..<count {
            rawLockLock(lock(i))
            sum += shard(i).pointee.bytes
            rawLockUnlock(lock(i))
        }
        return sum
    }

    /// Gives up all blobs, and the memory of its own tables.
    func removeAll() {
        for i in 0..<count {
            rawLockLock(lock(i))
            shard(i).pointee.removeAll()
            rawLockUnlock(lock(i))
        }
    }

    private struct Node {
        var digest: BlobDigest
        var data: Data
        /// Neighbours in the queue, `none` at its ends; `after` of a free node leads to the next free one.
        var before: UInt32
        var after: UInt32
        /// Whether it was used since it came to the queue's end.
        var isUsed = false
    }

    private struct Shard {
        private var lock = RawLock()
        private let bound: Int
        private(set) var bytes = 0
        private var nodes: UnsafeMutablePointer<Node>
        private var used: UInt32 = 0
        private var capacity = Self.firstCapacity
        private var freeNode = Self.none
        private var first = Self.none
        private var last = Self.none
        // Open addressing, at most half full; a digest's own bits are spread well enough.
        private var cells: UnsafeMutablePointer<UInt32>
        private var cellMask = 2 * Self.firstCapacity - 1
        private static var none: UInt32 { .max }
        private static var firstCapacity: UInt32 { 16 }

        init(bound: Int) {
            self.bound = bound
            nodes = .allocate(capacity: Int(capacity))
            cells = .allocate(capacity: Int(cellMask) + 1)
            cells.initialize(repeating: Self.none, count: Int(cellMask) + 1)
        }

        /// As it was at first, with the same lock.
        mutating func removeAll() {
            free()
            (bytes, used, capacity, cellMask) = (0, 0, Self.firstCapacity, 2 * Self.firstCapacity - 1)
            (freeNode, first, last) = (Self.none, Self.none, Self.none)
            nodes = .allocate(capacity: Int(capacity))
            cells = .allocate(capacity: Int(cellMask) + 1)
            cells.initialize(repeating: Self.none, count: Int(cellMask) + 1)
        }

        func free() {
            nodes.deinitialize(count: Int(used))
            nodes.deallocate()
            cells.deallocate()
        }

        @inline(__always)
        private func home(_ digest: BlobDigest) -> UInt32 { UInt32(truncatingIfNeeded: digest.c) & cellMask }

        /// The cell that leads to a digest's node.
        @inline(__always)
        private func find(_ digest: BlobDigest) -> UInt32? {
            var at = home(digest)
            while cells[Int(at)] != Self.none {
                if nodes[Int(cells[Int(at)])].digest == digest { return at }
                at = (at &+ 1) & cellMask
            }
            return nil
        }

        @inline(__always)
        mutating func use(_ digest: BlobDigest) -> Data? {
            guard let cell = find(digest) else { return nil }
            let node = nodes + Int(cells[Int(cell)])
            if !node.pointee.isUsed { node.pointee.isUsed = true }
            return node.pointee.data
        }

        mutating func insert(_ data: Data, _ digest: BlobDigest) {
            let cost = data.count + MemoryTier.overhead
            guard cost <= bound, find(digest) == nil else { return }
            while bytes + cost > bound, first != Self.none { passOrDrop(first) }
            let node = freeNode
            if node != Self.none {
                freeNode = nodes[Int(node)].after
                nodes[Int(node)].digest = digest
                nodes[Int(node)].data = data
                nodes[Int(node)].isUsed = false
                enter(node)
            } else {
                if used == capacity { grow() }
                (nodes + Int(used)).initialize(
                    to: Node(digest: digest, data: data, before: Self.none, after: Self.none))
                used += 1
                enter(used - 1)
            }
            bytes += cost
        }

        /// The first of the queue goes to its end if it was used, else away.
        private mutating func passOrDrop(_ node: UInt32) {
            guard nodes[Int(node)].isUsed else {
                remove(nodes[Int(node)].digest)
                return
            }
            nodes[Int(node)].isUsed = false
            unlink(node)
            append(node)
        }

        private mutating func enter(_ node: UInt32) {
            place(node)
            append(node)
        }

        private func place(_ node: UInt32) {
            var at = home(nodes[Int(node)].digest)
            while cells[Int(at)] != Self.none { at = (at &+ 1) & cellMask }
            cells[Int(at)] = node
        }

        private mutating func grow() {
            capacity *= 2
            let more = UnsafeMutablePointer<Node>.allocate(capacity: Int(capacity))
            more.moveInitialize(from: nodes, count: Int(used))
            nodes.deallocate()
            nodes = more
            cells.deallocate()
            cellMask = capacity * 2 - 1
            cells = .allocate(capacity: Int(cellMask) + 1)
            cells.initialize(repeating: Self.none, count: Int(cellMask) + 1)
            // All nodes are in use: else there would have been a free one.
            for node in 0..<used { place(node) }
        }

        mutating func remove(_ digest: BlobDigest) {
            guard let cell = find(digest) else { return }
            let node = cells[Int(cell)]
            unlink(node)
            bytes -= nodes[Int(node)].data.count + MemoryTier.overhead
            nodes[Int(node)].data = Data()
            nodes[Int(node)].after = freeNode
            freeNode = node
            // Those behind it move up, so that no tombstones are needed.
            var hole = cell
            var at = (hole &+ 1) & cellMask
            while cells[Int(at)] != Self.none {
                let home = home(nodes[Int(cells[Int(at)])].digest)
                if (at &- home) & cellMask >= (at &- hole) & cellMask {
                    cells[Int(hole)] = cells[Int(at)]
                    hole = at
                }
                at = (at &+ 1) & cellMask
            }
            cells[Int(hole)] = Self.none
        }

        @inline(__always)
        private mutating func unlink(_ node: UInt32) {
            let (before, after) = (nodes[Int(node)].before, nodes[Int(node)].after)
            if before == Self.none { first = after } else { nodes[Int(before)].after = after }
            if after == Self.none { last = before } else { nodes[Int(after)].before = before }
        }

        @inline(__always)
        private mutating func append(_ node: UInt32) {
            nodes[Int(node)].before = last
            nodes[Int(node)].after = Self.none
            if last == Self.none { first = node } else { nodes[Int(last)].after = node }
            last = node
        }
    }
}
