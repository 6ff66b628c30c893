package import TileSets
package import TileStore

/// Chunks of sets' lists in memory, of whatever set and version: a chunk is named by what it says.
///
/// The least recently used go.
package final class ChunkCache: Sendable {
    /// That of all sets that are open: memory is bounded however many versions are asked for.
    package static let shared = ChunkCache(mostTiles: 256 << 10)

    private struct Slot {
        var tiles: [SetTile]
        var use: UInt64
    }

    private struct State {
        var slots: [BlobDigest: Slot] = [:]
        var tiles = 0
        var clock: UInt64 = 0
    }

    private let state = Locked(State())
    private let mostTiles: Int
    /// Looking for the least recently used takes a step for each.
    private static let mostChunks = 1024

    /// - Parameter mostTiles: So many tiles are kept, of about a hundred bytes each.
    package init(mostTiles: Int) { self.mostTiles = mostTiles }

    /// The tiles of a chunk; `nil` if they are not in memory.
    package func find(_ name: BlobDigest) -> [SetTile]? {
        state.withLock { state in
            state.clock += 1
            state.slots[name]?.use = state.clock
            return state.slots[name]?.tiles
        }
    }

    /// Keeps a chunk, in the place of those that were used least recently.
    package func insert(_ tiles: [SetTile], _ name: BlobDigest) {
        state.withLock { state in
            guard state.slots[name] == nil, tiles.count <= mostTiles else { return }
            while state.tiles + tiles.count > mostTiles || state.slots.count >= Self.mostChunks,
                let oldest = state.slots.min(by: { $0.value.use < $1.value.use })
            {
                state.slots[oldest.key] = nil
                state.tiles -= oldest.value.tiles.count
            }
            state.clock += 1
            state.slots[name] = Slot(tiles: tiles, use: state.clock)
            state.tiles += tiles.count
        }
    }
}
