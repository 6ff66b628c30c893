import CacheEngine
import TileStore

/// The fills of the tile routes, over all event loops.
typealias TileFlights = Flights<TileFlight, FillEnd>

/// What requests for a tile share a fill by: the tile, and the configuration of its source.
///
/// Without the latter a request that comes after a reload would wait for an answer of the server that was configured before.
struct TileFlight: Hashable, Sendable {
    let key: TileKey
    /// The number of the source's configuration.
    let generation: UInt64
}
