import Foundation
import Testing
import TileArchive
import TileSets
import TileStore
import TileStoreTesting

/// Comparisons of caches, archives and sets.
@Suite("Comparisons", .timeLimit(.minutes(60)), .ownCores)
struct ComparisonTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private static let kinds = ["cache", "folder", "x.mbtiles", "x.pmtiles", "set"]

    /// A pyramid as a collection of some kind.
    private func digests(_ pyramid: Pyramid, _ name: String, _ kind: String) throws -> any TileDigests {
        let source = try SourceName("s")
        try pyramid.write(to: scratch, "\(name)/folder")
        let store = try TileStore(at: scratch("\(name)/cache"))
        try store.take(scratch("\(name)/folder"))
        switch kind {
        case "cache": return CacheDigests(store, source: source)
        case "set":
            try store.publish(scratch("\(name)/set"))
            return SetDigests(try SetReader(scratch("\(name)/set")), source: source)
        case "folder": return ArchiveDigests(try FolderReader(scratch("\(name)/folder")), source: source)
        default:
            let path = scratch("\(name)/\(kind)")
            try store.give(path)
            return ArchiveDigests(try ArchiveFormat(path: path).open(path), source: source)
        }
    }

    @Test(arguments: Seeds.list(12))
    func whatDiffersIsFoundInWhateverKindItIs(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let (a, b) = (random.below(5), random.below(5))
        let old = Pyramid(seed: seed, zooms: 0...4, share: 2)
        // The same seed begins alike and goes on differently.
        let new = Pyramid(
            seed: random.oneIn(3) ? seed : seed &+ 1, zooms: random.below(2)...4, share: 1 + random.below(2))
        let comparison = TileComparison(
            old: try digests(old, "a", Self.kinds[a]), new: try digests(new, "b", Self.kinds[b]), observer: Notes(),
            memory: random.oneIn(2) ? 4096 : 8 << 20)
        let report = try comparison.run(list: scratch("keys"))
        var expected = ComparisonReport()
        var keys: Set<String> = []
        for place in Set(old.tiles.keys).union(new.tiles.keys) {
            switch (old.tiles[place], new.tiles[place]) {
            case (nil, _?): expected.added += 1
            case (_?, nil): expected.removed += 1
            case (let x, let y):
                if x == y { expected.same += 1; continue }
                expected.changed += 1
            }
            keys.insert("s/\(place)")
        }
        let fresh = Set(new.tiles.values).subtracting(old.tiles.values)
        (expected.newBlobs, expected.newBytes) = (fresh.count, fresh.reduce(0) { $0 + $1.count })
        #expect(report == expected, "\(Self.kinds[a]) and \(Self.kinds[b])")
        let lines = try String(contentsOfFile: scratch("keys"), encoding: .utf8).split(separator: "\n").map(String.init)
        #expect(lines.count == keys.count && Set(lines.map { String($0.prefix { $0 != "." && $0 != "@" }) }) == keys)
    }

    /// Caches and sets are compared key by key; where an archive is one side, variants of a place count once.
    @Test func variantsAreDistinguishedAsFarAsBothSidesDo() throws {
        let (a, b) = (try TileStore(at: scratch("a")), try TileStore(at: scratch("b")))
        let source = try SourceName("s")
        func tile(_ scale: Int, _ format: String?) throws -> TileAddress {
            try TileAddress(z: 1, x: 0, y: 0, scale: scale, format: format)
        }
        for store in [a, b] {
            try store.put(Data("plain".utf8), tile(1, nil))
            try store.put(Data("png".utf8), tile(1, "png"))
        }
        try b.put(Data("large".utf8), tile(2, nil))
        try b.put(Data("other png".utf8), tile(1, "png"))
        try b.publish(scratch("set"))
        try b.give(scratch("b.pmtiles"))
        func compare(_ new: any TileDigests) throws -> ComparisonReport {
            try TileComparison(old: CacheDigests(a, source: source), new: new, observer: Notes()).run()
        }
        for new: any TileDigests in [
            CacheDigests(b, source: source), SetDigests(try SetReader(scratch("set")), source: source),
        ] {
            let report = try compare(new)
            #expect(report.added == 1 && report.changed == 1 && report.same == 1 && report.removed == 0)
        }
        let report = try compare(
            ArchiveDigests(try ArchiveFormat.pmtiles.open(scratch("b.pmtiles")), source: source))
        #expect(report.same == 1 && report.added == 0 && report.changed == 0 && report.removed == 0)
        #expect(report.skipped == 1)
    }

    @Test func aComparisonThatIsStoppedLeavesNoList() throws {
        let pyramid = Pyramid(seed: 1, zooms: 0...4)
        let notes = Notes()
        notes.stopAfter = 100
        let report = try TileComparison(
            old: try digests(pyramid, "a", "folder"), new: try digests(pyramid, "b", "cache"), observer: notes
        ).run(list: scratch("keys"))
        #expect(report.wasStopped)
        #expect(!FileManager.default.fileExists(atPath: scratch("keys")))
    }

    @Test func moreTilesThanAreAllowedAreAnError() throws {
        let pyramid = Pyramid(seed: 2, zooms: 0...3)
        for kind in ["folder", "x.pmtiles", "x.mbtiles"] {
            _ = try digests(pyramid, kind, kind)
            let path = scratch("\(kind)/\(kind)")
            let digests = ArchiveDigests(try ArchiveFormat(path: path).open(path), source: nil, mostTiles: 10)
            let text = message {
                _ = try TileComparison(old: digests, new: digests, observer: Notes()).run()
            }
            #expect(text.contains("[tooMany]"), "\(kind): \(text)")
        }
    }
}
