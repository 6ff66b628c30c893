import Foundation
import TileStore

/// Does one thing so many times and nothing that depends on the time or on chance.
///
/// Run twice with different numbers under an instruction counter, the difference is what the thing itself costs: the
/// start of the program, opening and the first touch of everything cancel out.
enum InstructionCount {
    /// Makes a cache: every fifth tile has bytes of its own, the others share theirs.
    static func fill(_ folder: String, count: Int) throws {
        let store = try TileStore(at: folder)
        for start in stride(from: 0, to: count, by: 256) {
            try store.put(
                (start..<min(start + 256, count)).map { number in
                    TilePut(
                        key: try key(number), data: number % 5 == 0 ? blob(number) : sea, metadata: metadata(number))
                })
        }
        _ = try store.compact()
        try store.close()
    }

    static func run(_ what: String, _ folder: String, count: Int) throws {
        var configuration = StoreConfiguration()
        if what == "disk-hit" { configuration.memoryTierBytes = 0 }
        // What is opened for writing writes its index image when it is closed, which is another thing to count.
        if what == "open" { configuration.readOnly = true }
        let store = try TileStore(at: folder, configuration: configuration)
        switch what {
        case "open": break
        case "memory-hit", "disk-hit":
            let keys = try (0..<1_000).map { try key($0 * 5) }
            for _ in 0..<3 { for key in keys { try expect(try store.read(key) != nil) } }
            for number in 0..<count { try expect(try store.read(keys[number * 7 % 1_000])?.data?.count == 5_120) }
        case "put-duplicate":
            // The same keys every time, so that no table grows.
            for number in 0..<count {
                try store.put(sea, for: try key(number % 500 * 5 + 1), metadata: metadata(number))
            }
        case "put-new":
            for number in 0..<count {
                try store.put(blob(1_000_000 + number), for: try key(100_000 + number), metadata: metadata(number))
            }
        default: throw BenchChild.Failure(description: "nothing is called \(what)")
        }
        withExtendedLifetime(store) {}
    }

    private static func expect(_ condition: Bool) throws {
        if !condition { throw BenchChild.Failure(description: "a tile is missing or wrong") }
    }

    private static func key(_ number: Int) throws -> TileKey {
        TileKey(source: try SourceName("world"), tile: try TileAddress(z: 20, x: number & 0xFFFF, y: number >> 16))
    }

    private static let sea = Data(repeating: 0x5E, count: 103)

    private static func blob(_ number: Int) -> Data {
        var data = Data(repeating: 0x42, count: 5_120)
        withUnsafeBytes(of: UInt64(number)) { data.replaceSubrange(0..<8, with: $0) }
        return data
    }

    private static func metadata(_ number: Int) -> TileMetadata {
        let digits = String(UInt64(number) &* 0x9E37_79B9_7F4A_7C15 | 1 << 63, radix: 16)
        return TileMetadata(
            response: ResponseFields(mediaType: "image/png"), etag: "\"\(digits)\"",
            storedAt: Timestamp(seconds: 1_760_000_000), expires: Timestamp(seconds: 4_000_000_000))
    }
}
