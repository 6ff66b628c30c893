import Foundation
import TileStore

extension Bench {
    /// What the tile set takes on disk, in blocks: as a plain folder, in the store, in SQLite.
    func bytesOnDisk() throws -> [Figure] {
        let path = workspace.path("bytes")
        let store = try TileStore(at: path)
        let peers = try openPeers(at: workspace.path("bytes"))
        let source = try SourceName("world")
        let puts = try tiles.tiles.enumerated().map { number, tile in
            TilePut(
                key: TileKey(source: source, tile: try TileAddress(z: tile.z, x: tile.x, y: tile.y)),
                data: tiles.blobs[tile.blob], metadata: metadata(UInt64(tile.blob)))
        }
        for start in stride(from: 0, to: puts.count, by: 256) {
            let batch = puts[start..<min(start + 256, puts.count)]
            try store.put(Array(batch))
            for (_, peer) in peers { try peer.put(batch, use: start) }
        }
        _ = try store.compact()
        let blobs = try store.statistics().blobs
        try store.close()
        for (_, peer) in peers {
            try peer.checkpoint()
            try peer.close()
        }
        try require(blobs == tiles.blobs.count, "the store has \(blobs) blobs for \(tiles.blobs.count) contents")
        // Blocks are given out when they are written back.
        settle()

        let folder = Double(try allocatedBytes(at: tiles.folder))
        let ours = Double(try allocatedBytes(at: path))
        let objects = Double(try allocatedBytes(at: path + "/objects"))
        var values: [String: Figure.PeerValue] = [:]
        for (name, _) in peers {
            let bytes = Double(try allocatedBytes(at: workspace.path("bytes.\(name)")))
            values[name] = Figure.PeerValue(value: bytes, ratio: bytes / ours)
        }
        let count = tiles.tiles.count
        return [
            Figure(
                row: "bytes", what: "disk blocks, \(count) tiles, \(blobs) distinct", unit: .bytes, ours: ours,
                floor: folder, floorIs: "the plain z/x/y folder", ratio: ours / folder,
                peers: values),
            Figure(
                row: "bytes", what: "the same, objects alone", unit: .bytes, ours: objects, floor: folder,
                floorIs: "the plain z/x/y folder", ratio: objects / folder),
        ]
    }
}
