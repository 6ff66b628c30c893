import Foundation
import TileStoreTesting

/// Made-up tiles of which many are equal.
struct Pyramid {
    private(set) var tiles: [Place: Data] = [:]

    static let magic = Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
    static let ocean = magic + Data("ocean".utf8)

    init(seed: UInt64, zooms: ClosedRange<Int>, share: Int = 1) {
        var random = SplitMix64(seed: seed)
        for z in zooms {
            for x in 0..<(1 << z) {
                for y in 0..<(1 << z) where random.oneIn(share) {
                    tiles[Place(z, x, y)] = random.oneIn(2) ? Self.ocean : Self.land(&random)
                }
            }
        }
    }

    private static func land(_ random: inout SplitMix64) -> Data {
        var data = magic
        for _ in 0...random.below(20) { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data
    }

    var unique: Int { Set(tiles.values).count }
    var bytes: Int { tiles.values.reduce(0) { $0 + $1.count } }

    /// Writes it as a z/x/y folder.
    func write(to scratch: Scratch, _ folder: String) throws {
        for (place, data) in tiles { try scratch.write(data, to: "\(folder)/\(place).png") }
    }
}
