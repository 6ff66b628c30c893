/// Leaf directories in memory, at most so many entries together; the least recently used go.
package struct LeafCache: Sendable {
    private struct Place: Hashable {
        var offset: UInt64
        var tiles: Range<UInt64>
    }

    /// 12 MiB of entries.
    private var leaves = RecentlyUsed<Place, PMTilesDirectory>(mostWeight: 512 << 10, mostCount: 4096)

    package init() {}

    /// A directory by its place in the section of leaves, if it was read for these tiles.
    package mutating func find(_ offset: UInt64, _ tiles: Range<UInt64>) -> PMTilesDirectory? {
        leaves.find(Place(offset: offset, tiles: tiles))
    }

    /// Keeps a directory.
    package mutating func insert(_ directory: PMTilesDirectory, _ offset: UInt64, _ tiles: Range<UInt64>) {
        leaves.insert(directory, Place(offset: offset, tiles: tiles), weight: directory.entries.count)
    }
}
