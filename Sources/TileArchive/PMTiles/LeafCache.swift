/// Leaf directories in memory, at most so many entries together; the least recently used go.
package struct LeafCache: Sendable {
    private struct Slot {
        var directory: PMTilesDirectory
        var tiles: Range<UInt64>
        var use: UInt64
    }
    private var slots: [UInt64: Slot] = [:]
    private var entries = 0
    private var clock: UInt64 = 0
    /// 12 MiB of entries.
    private static let mostEntries = 512 << 10

    package init() {}

    /// A directory by its place in the section of leaves, if it was read for these tiles.
    package mutating func find(_ offset: UInt64, _ tiles: Range<UInt64>) -> PMTilesDirectory? {
        guard let slot = slots[offset], slot.tiles == tiles else { return nil }
        clock += 1
        slots[offset]?.use = clock
        return slot.directory
    }

    /// Keeps a directory.
    package mutating func insert(_ directory: PMTilesDirectory, _ offset: UInt64, _ tiles: Range<UInt64>) {
        clock += 1
        if let old = slots.removeValue(forKey: offset) { entries -= old.directory.entries.count }
        while entries + directory.entries.count > Self.mostEntries,
            let oldest = slots.min(by: { $0.value.use < $1.value.use })
        {
            entries -= oldest.value.directory.entries.count
            slots.removeValue(forKey: oldest.key)
        }
        entries += directory.entries.count
        slots[offset] = Slot(directory: directory, tiles: tiles, use: clock)
    }
}
