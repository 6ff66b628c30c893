import Foundation
import TileStore

/// Tiles to measure with: addresses, and for each the index of its bytes among the distinct ones.
struct TileSet {
    /// One tile.
    struct Tile {
        var z: Int
        var x: Int
        var y: Int
        var blob: Int
    }
    /// In the order of zoom, column, row.
    var tiles: [Tile]
    /// The distinct contents.
    var blobs: [Data]
    /// Where the tiles came from, for people.
    var origin: String
    /// The z/x/y folder.
    var folder: String

    /// The bytes of all tiles, repeated ones counted each time.
    var logicalBytes: Int { tiles.reduce(0) { $0 + blobs[$1.blob].count } }

    /// Reads a z/x/y folder.
    init(folder: String) throws {
        var tiles: [(z: Int, x: Int, y: Int, path: String)] = []
        guard let all = FileManager.default.enumerator(atPath: folder) else {
            throw BenchError("cannot read the folder \(folder)")
        }
        for case let name as String in all {
            let parts = name.split(separator: "/")
            guard parts.count == 3, let z = Int(parts[0]), let x = Int(parts[1]),
                let y = Int(parts[2].prefix { $0 != "." })
            else { continue }
            tiles.append((z, x, y, folder + "/" + name))
        }
        guard !tiles.isEmpty else { throw BenchError("no z/x/y tiles in \(folder)") }
        tiles.sort { ($0.z, $0.x, $0.y) < ($1.z, $1.x, $1.y) }
        var blobs: [Data] = []
        var indices: [Data: Int] = [:]
        self.tiles = try tiles.map { tile in
            let data = try Data(contentsOf: URL(fileURLWithPath: tile.path))
            if let index = indices[data] { return Tile(z: tile.z, x: tile.x, y: tile.y, blob: index) }
            indices[data] = blobs.count
            blobs.append(data)
            return Tile(z: tile.z, x: tile.x, y: tile.y, blob: blobs.count - 1)
        }
        self.blobs = blobs
        self.folder = folder
        origin = "the given folder"
    }

    /// Makes a pyramid of zooms 0 to 6 in a folder: 58 % of its tiles are one of 103 bytes, the others have sizes like
    /// those of real tiles, about 5 KB on average.
    init(makingIn folder: String, seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        tiles = []
        blobs = [TileSet.ocean]
        self.folder = folder
        origin = "made up"
        for z in 0...6 {
            for x in 0..<(1 << z) {
                try FileManager.default.createDirectory(
                    atPath: "\(folder)/\(z)/\(x)", withIntermediateDirectories: true)
                for y in 0..<(1 << z) {
                    let isOcean = Double.random(in: 0..<1, using: &random) < 0.58
                    if !isOcean {
                        // Exponentially distributed sizes: many small tiles and few large ones.
                        let size = 200 - 4800 * log(Double.random(in: 0.0001..<1, using: &random))
                        blobs.append(random.data(count: Int(size)))
                    }
                    let blob = isOcean ? 0 : blobs.count - 1
                    tiles.append(Tile(z: z, x: x, y: y, blob: blob))
                    try blobs[blob].write(to: URL(fileURLWithPath: "\(folder)/\(z)/\(x)/\(y).png"))
                }
            }
        }
    }

    /// A tile of 103 bytes, the size of a palette picture of nothing but sea.
    static let ocean: Data = {
        var random = SplitMix64(seed: 103)
        return random.data(count: 103)
    }()

    /// Distinct tiles of one size.
    static func distinct(count: Int, bytes: Int, seed: UInt64) -> [Data] {
        var random = SplitMix64(seed: seed)
        return (0..<count).map { _ in random.data(count: bytes) }
    }
}

/// Keys of distinct tiles of one source at zoom 20, row after row.
func keys(source: String, count: Int, from first: Int = 0) throws -> [TileKey] {
    let source = try SourceName(source)
    return try (first..<(first + count)).map {
        TileKey(source: source, tile: try TileAddress(z: 20, x: $0 & 0xFFFF, y: $0 >> 16))
    }
}

/// What a server says about a tile: a typical entity tag and a week's life.
func metadata(_ number: UInt64) -> TileMetadata {
    var random = SplitMix64(seed: number)
    let digits = hexadecimal(random.next()) + hexadecimal(random.next())
    return TileMetadata(
        response: png, etag: "\"\(digits)\"", storedAt: Timestamp(seconds: 1_760_000_000),
        expires: Timestamp(seconds: 1_760_604_800))
}

private let png = ResponseFields(mediaType: "image/png")

private func hexadecimal(_ value: UInt64) -> String {
    let digits = String(value, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
}
