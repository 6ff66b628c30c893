import Foundation

/// SplitMix64: the same numbers for the same seed everywhere.
struct Seeded: RandomNumberGenerator {
    private var state: UInt64
    init(_ seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return value ^ (value >> 31)
    }
}

/// A whole pyramid of made-up tiles, about half of them one and the same piece of ocean.
struct Pyramid {
    /// `z/x/y.png` to bytes.
    private(set) var tiles: [String: Data] = [:]

    /// What every PNG file begins with.
    static let magic = Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
    /// The tile that most of the world consists of; the same in every pyramid.
    static let ocean = magic + Data("ocean".utf8)

    init(seed: UInt64, zooms: ClosedRange<Int>, sizes: ClosedRange<Int> = 40...600) {
        var random = Seeded(seed)
        for z in zooms {
            for x in 0..<(1 << z) {
                for y in 0..<(1 << z) {
                    let isOcean = z > 0 && Bool.random(using: &random)
                    tiles["\(z)/\(x)/\(y).png"] = isOcean ? Self.ocean : Self.land(sizes, &random)
                }
            }
        }
    }

    private static func land(_ sizes: ClosedRange<Int>, _ random: inout Seeded) -> Data {
        var data = magic
        let size = Int.random(in: sizes, using: &random)
        while data.count < size {
            withUnsafeBytes(of: random.next().littleEndian) { data.append(contentsOf: $0) }
        }
        return data
    }

    /// How many different tiles there are.
    var unique: Int { Set(tiles.values).count }
    /// The sum of their sizes.
    var bytes: Int { tiles.values.reduce(0) { $0 + $1.count } }

    /// Writes it as a z/x/y folder.
    func write(to folder: String) throws {
        var made: Set<String> = []
        for (name, data) in tiles {
            let url = URL(fileURLWithPath: "\(folder)/\(name)")
            let parent = url.deletingLastPathComponent()
            if made.insert(parent.path).inserted {
                try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
            }
            try writeFile(data, to: url.path)
        }
    }
}
