import TileStore

/// Decoded pictures, the ones used last, within a bound of bytes.
///
/// A value; who owns it holds a lock. All operations take constant time.
struct PictureCache<Picture> {
    /// A picture with the bytes that it was made from.
    struct Entry {
        /// `nil` for bytes that are no picture, so that they are not decoded again with every drawing.
        var picture: Picture?
        /// Which bytes.
        var version: Int
    }

    private struct Node {
        var tile: TileAddress
        var entry: Entry
        var cost: Int
        var newer: Int?
        var older: Int?
    }

    let capacity: Int
    private(set) var cost = 0
    private var slots: [TileAddress: Int] = [:]
    private var nodes: [Node?] = []
    private var free: [Int] = []
    private var newest: Int?
    private var oldest: Int?

    init(capacity: Int) { self.capacity = max(0, capacity) }

    var count: Int { slots.count }

    /// A picture that is there, and the note that it was used.
    mutating func use(_ tile: TileAddress) -> Entry? {
        guard let slot = slots[tile], let entry = nodes[slot]?.entry else { return nil }
        unlink(slot)
        linkAsNewest(slot)
        return entry
    }

    /// What is there, without a note of use.
    func peek(_ tile: TileAddress) -> Entry? { slots[tile].flatMap { nodes[$0]?.entry } }

    /// Takes a picture in; one that is larger than the bound is not kept.
    mutating func insert(_ entry: Entry, for tile: TileAddress, cost: Int) {
        remove(tile)
        let cost = max(cost, 64)
        guard cost <= capacity else { return }
        while self.cost + cost > capacity, let oldest, let victim = nodes[oldest]?.tile { remove(victim) }
        let node = Node(tile: tile, entry: entry, cost: cost)
        let slot: Int
        if let reused = free.popLast() {
            slot = reused
            nodes[slot] = node
        } else {
            slot = nodes.count
            nodes.append(node)
        }
        slots[tile] = slot
        self.cost += cost
        linkAsNewest(slot)
    }

    mutating func remove(_ tile: TileAddress) {
        guard let slot = slots.removeValue(forKey: tile) else { return }
        unlink(slot)
        cost -= nodes[slot]?.cost ?? 0
        nodes[slot] = nil
        free.append(slot)
    }

    mutating func removeAll() { self = PictureCache(capacity: capacity) }

    private mutating func unlink(_ slot: Int) {
        guard let node = nodes[slot] else { return }
        if let newer = node.newer { nodes[newer]?.older = node.older } else { newest = node.older }
        if let older = node.older { nodes[older]?.newer = node.newer } else { oldest = node.newer }
    }

    private mutating func linkAsNewest(_ slot: Int) {
        nodes[slot]?.newer = nil
        nodes[slot]?.older = newest
        if let newest { nodes[newest]?.newer = slot } else { oldest = slot }
        newest = slot
    }
}
