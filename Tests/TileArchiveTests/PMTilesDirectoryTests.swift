import ContentCoding
import Foundation
import Testing
import TileArchive
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct PMTilesDirectoryTests {
    private func parse(_ bytes: Data, tiles: Range<UInt64> = 0..<1000, data: UInt64 = 10_000) throws -> [PMTilesEntry] {
        try PMTilesDirectory(bytes, tiles: tiles, dataLength: data, leavesLength: 500, name: "d").entries
    }

    @Test(arguments: Seeds.list(60))
    func directoriesComeBackAsTheyWere(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        var entries: [PMTilesEntry] = []
        var (tile, offset): (UInt64, UInt64) = (0, 0)
        for _ in 0...random.below(300) {
            tile += UInt64(random.below(5)) + (entries.isEmpty ? 0 : 1)
            let run = random.oneIn(9) ? 0 : UInt32(1 + random.below(3))
            let length = UInt32(1 + random.below(200))
            if random.oneIn(3) { offset = UInt64(random.below(5000)) }
            entries.append(PMTilesEntry(tile: tile, offset: offset, length: length, run: run))
            offset += UInt64(length)
            tile += UInt64(max(run, 1)) - 1
        }
        let parsed = try PMTilesDirectory(
            PMTilesDirectory.encode(entries), tiles: 0..<TileID.formatEnd, dataLength: 1 << 40, leavesLength: 1 << 40,
            name: "d")
        #expect(parsed.entries == entries)
        for (i, entry) in entries.enumerated() { #expect(parsed.index(for: entry.tile) == i) }
    }

    /// The bytes of a directory by columns: number of entries, steps, runs, lengths, offsets.
    struct Broken: Sendable, CustomTestStringConvertible {
        var columns: [UInt64]
        var says: String
        var testDescription: String { says }
    }

    @Test(arguments: [
        Broken(columns: [], says: "empty or cut short"),
        Broken(columns: [0], says: "no entries"),
        Broken(columns: [2, 0, 1, 1], says: "claims 2 entries in 4 bytes"),
        Broken(columns: [1 << 40, 0, 1, 1, 1], says: "claims 1099511627776 entries"),
        Broken(columns: [2, 0, 0, 1, 1, 5, 5, 1, 0], says: "does not come after"),
        Broken(columns: [1, 1000, 1, 5, 1], says: "outside of 0..<1000"),
        Broken(columns: [2, 0, 3, 4, 1, 5, 5, 1, 0], says: "covers 4 tiles"),
        Broken(columns: [1, 999, 2, 5, 1], says: "covers 2 tiles"),
        Broken(columns: [1, 0, 1, 0, 1], says: "has 0 bytes"),
        Broken(columns: [1, 0, 1, 1 << 32, 1], says: "has 4294967296 bytes"),
        Broken(columns: [1, 0, 1, 5, 0], says: "after one that does not exist"),
        Broken(columns: [1, 0, 1, 5, 9997], says: "points to 5 bytes at 9996, outside of the tiles"),
        Broken(columns: [1, 0, 0, 5, 497], says: "points to 5 bytes at 496, outside of the directories"),
        Broken(columns: [1, 0, 1, 5, .max], says: "outside of the tiles"),
        Broken(columns: [2, 0, .max, 1, 1, 5, 5, 1, 0], says: "outside of 0..<1000"),
    ])
    func brokenDirectoriesSayWhatIsWrong(_ broken: Broken) {
        let bytes = broken.columns.reduce(into: Data()) { $0.append(varint($1)) }
        let said = message { _ = try parse(bytes) }
        #expect(said.contains(broken.says) && said.hasSuffix("[damaged]"), "\(said)")
    }

    @Test func numbersOfMoreThan64BitsAreDamage() {
        for tail in [UInt8(2), 0x7F] {
            let bytes = Data([1]) + Data(repeating: 0xFF, count: 9) + Data([tail, 1, 1, 1])
            #expect(message { _ = try parse(bytes) }.contains("cut short"))
        }
        #expect(message { _ = try parse(Data([1]) + Data(repeating: 0x80, count: 40)) }.contains("cut short"))
    }

    /// Runs are joined, and leaves are made only where the root would not fit.
    @Test(arguments: [(300, 16_257, false), (40_000, 16_257, true), (3000, 200, true)])
    func directoriesAreLaidOut(_ row: (tiles: Int, root: Int, hasLeaves: Bool)) throws {
        var random = SplitMix64(seed: 7)
        var builder = try DirectoryBuilder()
        var expected: [UInt64: (UInt64, UInt32)] = [:]
        var tile: UInt64 = 0
        for i in 0..<row.tiles {
            tile += UInt64(random.below(3)) + 1
            let content = random.oneIn(3) ? (0, 9) : (UInt64(100 + random.below(1 << 30)), UInt32(1 + i % 50_000))
            expected[tile] = content
            try builder.add(tile, offset: content.0, length: content.1)
        }
        #expect(builder.tileCount == UInt64(row.tiles))
        let layout = try builder.finish(longestRoot: row.root, smallestLeaf: 64)
        #expect(layout.root.count <= row.root)
        #expect((layout.leaves != nil) == row.hasLeaves)

        let leaves = try layout.leaves.map { file in
            var bytes = Data(count: Int(file.size))
            _ = try bytes.withUnsafeMutableBytes { try file.read(into: $0, at: 0) }
            return bytes
        }
        let root = try PMTilesDirectory(
            try #require(Gzip.decode(layout.root, limit: 1 << 20)), tiles: 0..<TileID.formatEnd, dataLength: 1 << 40,
            leavesLength: UInt64(leaves?.count ?? 0), name: "root")
        var found: [UInt64: (UInt64, UInt32)] = [:]
        func collect(_ entries: [PMTilesEntry]) throws {
            for entry in entries {
                if entry.run == 0 {
                    let bytes = try #require(leaves)[Int(entry.offset)..<Int(entry.offset) + Int(entry.length)]
                    let plain = try #require(Gzip.decode(Data(bytes), limit: 1 << 20))
                    try collect(
                        PMTilesDirectory(
                            plain, tiles: entry.tile..<TileID.formatEnd, dataLength: 1 << 40, leavesLength: 0,
                            name: "leaf"
                        ).entries)
                } else {
                    for tile in entry.tile..<entry.end { found[tile] = (entry.offset, entry.length) }
                }
            }
        }
        try collect(root.entries)
        #expect(found.count == expected.count)
        for (tile, content) in expected { #expect(found[tile].map { $0 == content } ?? false) }
    }
}
