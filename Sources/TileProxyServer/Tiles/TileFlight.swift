import CacheEngine
import TileStore

/// The fills of the tile routes, over all event loops.
typealias TileFlights = Flights<TileFlight, FillEnd>

/// What requests for a tile share a fill by: the tile, the configuration of its source, and its version if the source has versions.
///
/// Without the configuration a request that comes after a reload would wait for an answer of the server that was configured before;
/// without the version one that comes after an archive has been replaced would be given a tile of the former one.
struct TileFlight: Hashable, Sendable {
    let key: TileKey
    /// The number of the source's configuration.
    let generation: UInt64
    /// Of which version of an archive at a server the tile has to be; `nil` for whatever is there.
    var version: String?
    /// Whether the server is asked whatever is stored: one under way may have been asked before what is looked for was there.
    var isReload = false
}
