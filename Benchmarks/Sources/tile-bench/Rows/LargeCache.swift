import Foundation
import TileStore

/// The cache of a million entries that the rows "resident" and "open" share: the tile set's addresses under as many
/// sources as it takes, a fifth of the blobs distinct, every entry with an entity tag of its own.
struct LargeCache {
    let store: String
    private let workspace: Workspace
    let entries: Int

    /// Makes it, if it is not there yet.
    ///
    /// Distinct blobs have 64 bytes, which keeps this short: neither row reads more than one.
    init(in bench: Bench) throws {
        store = bench.workspace.path("large")
        workspace = bench.workspace
        entries = bench.entries
        if FileManager.default.fileExists(atPath: store) { return }

        let tileStore = try TileStore(at: store)
        let peers = try Peer.installed.map { try $0.open(at: path(of: $0)) }
        var random = SplitMix64(seed: 9)
        var latest = TileSet.ocean
        var batch: [TilePut] = []
        let tiles = bench.tiles.tiles
        var source = try SourceName("s0")
        for number in 0..<entries {
            let tile = tiles[number % tiles.count]
            if number % tiles.count == 0 { source = try SourceName("source-\(number / tiles.count)") }
            var data = TileSet.ocean
            if number % 5 == 0 {
                latest = random.data(count: 64)
                data = latest
            } else if number % 5 == 1 {
                data = latest
            }
            batch.append(
                TilePut(
                    key: TileKey(source: source, tile: try TileAddress(z: tile.z, x: tile.x, y: tile.y)), data: data,
                    metadata: metadata(UInt64(number))))
            if batch.count == 1_024 || number == entries - 1 {
                try tileStore.put(batch)
                for peer in peers { try peer.put(batch[...], use: number + 1 - batch.count) }
                batch.removeAll(keepingCapacity: true)
            }
        }
        _ = try tileStore.compact()
        let statistics = try tileStore.statistics()
        try require(
            statistics.entries == entries && statistics.blobs == (entries + 4) / 5 + 1,
            "the large cache has \(statistics.entries) entries and \(statistics.blobs) blobs")
        try tileStore.close()
        for peer in peers {
            try peer.checkpoint()
            try peer.close()
        }
        settle()
    }

    /// Where a peer keeps the same tiles.
    func path(of peer: Peer) -> String { workspace.path("large.\(peer.rawValue)") }

    /// A key that is in it, for the first hit.
    static func someKey(of tiles: TileSet) throws -> TileKey {
        let tile = try tiles.tiles.first.orThrow()
        return TileKey(source: try SourceName("source-0"), tile: try TileAddress(z: tile.z, x: tile.x, y: tile.y))
    }

    /// The files from which the manifest is read.
    func manifestFiles(prefix: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: store + "/manifest").filter { $0.hasPrefix(prefix) }
            .map { store + "/manifest/" + $0 }
    }

    /// Deletes the derived index, so that the next open has the JSON alone.
    func removeIndex() throws {
        for path in try manifestFiles(prefix: "index-") { try FileManager.default.removeItem(atPath: path) }
    }

    /// Whether there is a derived index.
    func hasIndex() throws -> Bool { try !manifestFiles(prefix: "index-").isEmpty }
}
