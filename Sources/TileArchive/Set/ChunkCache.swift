package import TileSets
package import TileStore

/// Chunks of sets' lists in memory, of whatever set and version: a chunk is named by what it says.
package final class ChunkCache: Sendable {
    /// That of all sets that are open: memory is bounded however many versions are asked for.
    package static let shared = ChunkCache(mostTiles: 256 << 10)

    private let chunks: Locked<RecentlyUsed<BlobDigest, [SetTile]>>

    /// - Parameter mostTiles: So many tiles are kept, of about a hundred bytes each.
    package init(mostTiles: Int) { chunks = Locked(RecentlyUsed(mostWeight: mostTiles, mostCount: 1024)) }

    /// The tiles of a chunk; `nil` if they are not in memory.
    package func find(_ name: BlobDigest) -> [SetTile]? { chunks.withLock { $0.find(name) } }

    /// Keeps a chunk, in the place of those that were used least recently.
    package func insert(_ tiles: [SetTile], _ name: BlobDigest) {
        chunks.withLock { $0.insert(tiles, name, weight: tiles.count) }
    }
}
