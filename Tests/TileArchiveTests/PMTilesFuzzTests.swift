import ContentCoding
import Foundation
import Testing
import TileArchive
import TileStoreTesting

/// Files that were changed at random are refused, or read within bounds; never is there a crash or an endless walk.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct PMTilesFuzzTests {
    /// A sound file with leaves, runs and gzip, small enough to be hit everywhere.
    private static let sound: Data = {
        var random = SplitMix64(seed: 1)
        var leaves = Data()
        var root: [PMTilesEntry] = []
        var data = Data()
        for first in stride(from: UInt64(0), to: 400, by: 100) {
            let entries = (0..<20).map { i in
                PMTilesEntry(
                    tile: first + UInt64(i) * 5, offset: UInt64(random.below(2000)),
                    length: UInt32(1 + random.below(40)),
                    run: UInt32(1 + random.below(4)))
            }
            let bytes = (try? Gzip.encode(PMTilesDirectory.encode(entries))) ?? Data()
            root.append(PMTilesEntry(tile: first, offset: UInt64(leaves.count), length: UInt32(bytes.count), run: 0))
            leaves += bytes
        }
        for _ in 0..<2100 { data.append(UInt8(truncatingIfNeeded: random.next())) }
        var raw = RawPMTiles()
        raw.header.internalCompression = .gzip
        raw.root = (try? Gzip.encode(PMTilesDirectory.encode(root))) ?? Data()
        raw.metadata = (try? Gzip.encode(Data(#"{"name":"fuzz"}"#.utf8))) ?? Data()
        raw.leaves = leaves
        raw.data = data
        return raw.bytes
    }()

    @Test func theFileItselfIsSound() throws {
        let scratch = try Scratch()
        #expect(try walk(Self.sound, scratch) > 80)
    }

    @Test(arguments: Seeds.list(150))
    func changedFilesAreRefusedOrReadWithinBounds(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let scratch = try Scratch()
        for _ in 0..<4 {
            var bytes = Self.sound
            for _ in 0...random.below(6) {
                switch random.below(6) {
                case 0: bytes = bytes.prefix(random.below(bytes.count))
                case 1 where bytes.count > 127: bytes[random.below(127)] = UInt8(truncatingIfNeeded: random.next())
                case 2 where bytes.count > 127:
                    // A number of the header, replaced by one that likes to overflow.
                    let at = 8 + 8 * random.below(11)
                    let value = random.pick([.max, .max - 1, 1 << 63, 1 << 40, 0, 1, UInt64(bytes.count)])
                    withUnsafeBytes(of: value.littleEndian) { bytes.replaceSubrange(at..<at + 8, with: $0) }
                case 3: bytes.append(Data(count: random.below(200)))
                default:
                    guard !bytes.isEmpty else { continue }
                    bytes[random.below(bytes.count)] ^= UInt8(1 << random.below(8))
                }
                bytes = Data(bytes)
            }
            _ = try walk(bytes, scratch)
        }
    }

    /// Directories without compression, so that changes reach the numbers in them.
    @Test(arguments: Seeds.list(150))
    func changedDirectoriesAreRefusedOrReadWithinBounds(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let scratch = try Scratch()
        for _ in 0..<4 {
            var raw = RawPMTiles()
            raw.data = Data(count: 500)
            func directory(_ leaves: Bool) -> Data {
                var tile: UInt64 = 0
                let entries = (0...random.below(12)).map { _ -> PMTilesEntry in
                    tile += UInt64(random.below(50)) + 1
                    return PMTilesEntry(
                        tile: tile, offset: UInt64(random.below(300)), length: UInt32(1 + random.below(60)),
                        run: leaves && random.oneIn(2) ? 0 : UInt32(random.below(30)))
                }
                var bytes = PMTilesDirectory.encode(entries)
                for _ in 0..<random.below(4) {
                    bytes[random.below(bytes.count)] = UInt8(truncatingIfNeeded: random.next())
                }
                return bytes
            }
            raw.root = directory(true)
            raw.leaves = (0..<6).reduce(into: Data()) { all, _ in all += directory(true) }
            _ = try walk(raw.bytes, scratch)
        }
    }

    /// Looks up and goes through; anything but one of our errors is a failure.
    ///
    /// Returns how many tiles were seen.
    private func walk(_ bytes: Data, _ scratch: Scratch) throws -> Int {
        try scratch.write(bytes, to: "f.pmtiles")
        do {
            let reader = try ArchiveFormat.pmtiles.open(scratch("f.pmtiles"))
            for z in 0..<4 {
                for x in 0..<(1 << z) {
                    do { _ = try reader.tile(z: z, x: x, y: x) } catch let error as ArchiveError {
                        #expect(error.message.contains("f.pmtiles"))
                    }
                }
            }
            var seen = 0
            try reader.forEachTile { step in
                if case .tile(_, _, _, _, _, let tile) = step { #expect(tile.data.count <= bytes.count) }
                seen += 1
                return seen < 5000
            }
            return seen
        } catch let error as ArchiveError {
            // Says which file.
            #expect(error.message.contains("f.pmtiles"), "\(error)")
            return 0
        }
    }
}
