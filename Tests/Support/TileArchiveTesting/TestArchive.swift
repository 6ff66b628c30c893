import ContentCoding
package import Foundation
package import TileArchive

/// A PMTiles file that a test lays out as it likes.
package enum TestArchive {
    /// The bytes of an archive.
    ///
    /// - Parameters:
    ///   - tiles: By their numbers.
    ///   - leafOf: How many tiles a leaf directory has; `nil` for all of them in the root.
    ///   - type: What the header says that tiles are: 1 for vector tiles, 2 for PNG.
    ///   - change: Changes the header at last.
    package static func bytes(
        _ tiles: [UInt64: Data], leafOf: Int? = nil, packs: Bool = true, type: UInt8 = 2, metadata: String = "{}",
        change: (inout PMTilesHeader) -> Void = { _ in }
    ) throws -> Data {
        func pack(_ data: Data) throws -> Data { packs ? try Gzip.encode(data) : data }
        var data = Data()
        var entries: [PMTilesEntry] = []
        for (tile, bytes) in tiles.sorted(by: { $0.key < $1.key }) {
            entries.append(
                PMTilesEntry(tile: tile, offset: UInt64(data.count), length: UInt32(bytes.count), run: 1))
            data.append(bytes)
        }
        var leaves = Data()
        var root = entries
        if let leafOf {
            root = []
            for start in stride(from: 0, to: entries.count, by: leafOf) {
                let part = entries[start..<min(start + leafOf, entries.count)]
                let leaf = try pack(PMTilesDirectory.encode(part))
                root.append(
                    PMTilesEntry(
                        tile: part[start].tile, offset: UInt64(leaves.count), length: UInt32(leaf.count), run: 0))
                leaves.append(leaf)
            }
        }
        return try file(root: pack(PMTilesDirectory.encode(root)), leaves, data, pack(Data(metadata.utf8))) {
            $0.internalCompression = packs ? .gzip : .none
            $0.tileType = type
            $0.maxZoom = 6
            change(&$0)
        }
    }

    /// Puts sections together.
    package static func file(
        root: Data, _ leaves: Data, _ data: Data, _ metadata: Data = Data(), change: (inout PMTilesHeader) -> Void
    ) throws -> Data {
        var header = PMTilesHeader()
        header.root = .init(offset: UInt64(PMTilesHeader.length), length: UInt64(root.count))
        header.metadata = .init(offset: header.root.offset + header.root.length, length: UInt64(metadata.count))
        header.leaves = .init(offset: header.metadata.offset + header.metadata.length, length: UInt64(leaves.count))
        header.data = .init(offset: header.leaves.offset + header.leaves.length, length: UInt64(data.count))
        change(&header)
        return header.bytes + root + metadata + leaves + data
    }

    /// Pictures for all tiles of some zooms, each with a text of its own.
    package static func pictures(_ zooms: ClosedRange<Int>, _ text: String) -> [UInt64: Data] {
        var tiles: [UInt64: Data] = [:]
        for z in zooms {
            for x in 0..<(1 << z) {
                for y in 0..<(1 << z) {
                    tiles[TileID.number(z: z, x: x, y: y)] = TestPicture.png("\(text) \(z)/\(x)/\(y)")
                }
            }
        }
        return tiles
    }
}
