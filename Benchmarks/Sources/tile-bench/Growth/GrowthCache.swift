import Foundation
import TileStore

/// A cache of any number of entries, a fifth of whose blobs are distinct: of five tiles one has bytes of its own, the next
/// one the same, and three are the sea.
///
/// Whatever its size, the same 10,000 tiles in it are hot. They lie evenly among the others, as the tiles of a town lie
/// among those of a country, and have blobs of 5 KB; the others have blobs of the size that is asked for.
struct GrowthCache {
    static let hotCount = 10_000
    static let hotBytes = 5_120

    let path: String
    let entries: Int
    let blobBytes: Int
    private let source: SourceName

    init(at path: String, entries: Int, blobBytes: Int) throws {
        self.path = path
        self.entries = entries
        self.blobBytes = blobBytes
        source = try SourceName("world")
        try require(
            entries >= GrowthCache.hotCount && entries % GrowthCache.hotCount == 0,
            "the number of entries must be a multiple of \(GrowthCache.hotCount)")
    }

    /// The key of one of its tiles, row after row of zoom 20.
    func key(_ number: Int) throws -> TileKey {
        TileKey(source: source, tile: try TileAddress(z: 20, x: number & 0xFFFF, y: number >> 16))
    }

    private var stride: Int { entries / GrowthCache.hotCount }

    /// The hot tiles' keys.
    func hotKeys() throws -> [TileKey] { try (0..<GrowthCache.hotCount).map { try key($0 * stride) } }

    /// The bytes of one of the hot tiles.
    func hotBlob(_ number: Int) -> Data {
        guard number % 5 < 2 else { return TileSet.ocean }
        var random = SplitMix64(seed: 0x4_0000_0000 + UInt64(number / 5))
        return random.data(count: GrowthCache.hotBytes)
    }

    /// How many distinct blobs it has.
    var blobs: Int { (GrowthCache.hotCount + 4) / 5 + (entries - GrowthCache.hotCount + 4) / 5 + 1 }

    /// Fills it; returns the seconds that the puts took.
    func build(progress: (String) -> Void) throws -> Double {
        let store = try TileStore(at: path)
        var random = SplitMix64(seed: 9)
        var latest = TileSet.ocean
        var cold = 0
        var batch: [TilePut] = []
        let batchSize = 4_096
        var time = 0.0
        for number in 0..<entries {
            var data = TileSet.ocean
            if number % stride == 0 {
                data = hotBlob(number / stride)
            } else {
                if cold % 5 == 0 { latest = random.data(count: blobBytes) }
                if cold % 5 < 2 { data = latest }
                cold += 1
            }
            batch.append(TilePut(key: try key(number), data: data, metadata: metadata(UInt64(number))))
            if batch.count == batchSize || number == entries - 1 {
                time += try seconds { try store.put(batch) }
                batch.removeAll(keepingCapacity: true)
                if number & 0xF_FFFF < batchSize { progress("\(number + 1) of \(entries) put in \(Int(time)) s") }
            }
        }
        let statistics = try store.statistics()
        try require(
            statistics.entries == entries && statistics.blobs == blobs,
            "the cache has \(statistics.entries) entries and \(statistics.blobs) blobs")
        try store.close()
        return time
    }

    /// The files of its manifest whose names begin so.
    func manifestFiles(prefix: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: path + "/manifest").filter { $0.hasPrefix(prefix) }
            .map { path + "/manifest/" + $0 }
    }

    /// Opens it without a memory tier.
    func open() throws -> TileStore {
        var configuration = StoreConfiguration()
        configuration.memoryTierBytes = 0
        return try TileStore(at: path, configuration: configuration)
    }
}
