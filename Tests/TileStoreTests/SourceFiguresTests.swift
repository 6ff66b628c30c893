import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// What a source holds alone and shares, and what a removal would free.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct SourceFiguresTests {
    private static let block = 4096

    private static func allocated(_ size: Int) -> Int { (size + block - 1) / block * block }

    /// On caches whose sources have few bodies among them, so that most are shared.
    private static func fill(_ lab: Lab, _ random: inout SplitMix64) throws {
        let sources = ["a", "b", "c", "d", "e"].prefix(1 + random.below(5))
        for _ in 0..<random.below(200) {
            let key = try TileKey(source: random.pick(Array(sources)), z: 8, x: random.below(40), y: 0)
            if random.oneIn(10) {
                _ = try lab.store.remove([key], includingPinned: true)
            } else {
                try lab.store.put(
                    lab.bytes(random.below(30), size: random.pick([100, 5000])), for: key, metadata: lab.metadata())
            }
        }
        if random.oneIn(3) {
            let span = try TileSpan(zoom: 8, columns: 0...random.below(40), rows: 0...0)
            try lab.store.pin(PinnedRegion(name: "r", source: SourceName(random.pick(Array(sources))), spans: [span]))
        }
    }

    @Test(arguments: Seeds.list(60))
    func exclusiveAndSharedBytesAreThoseOfTheBlobs(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let lab = try Lab()
        try Self.fill(lab, &random)
        var owners: [BlobDigest: Set<SourceName>] = [:]
        var sizes: [BlobDigest: Int] = [:]
        try lab.store.forEachEntry { entry in
            guard let blob = entry.blob else { return }
            owners[blob, default: []].insert(entry.key.source)
            sizes[blob] = entry.size
        }
        let statistics = try lab.store.statistics()
        for source in statistics.sources {
            let own = owners.filter { $0.value.contains(source.name) }.keys
            let exclusive = own.filter { owners[$0]?.count == 1 }
            #expect(
                source.exclusiveBytes == exclusive.reduce(0) { $0 + Self.allocated(sizes[$1] ?? 0) }, "seed \(seed)")
            #expect(
                source.exclusiveBytes + source.sharedBytes == own.reduce(0) { $0 + Self.allocated(sizes[$1] ?? 0) },
                "seed \(seed)")
            // The exclusive bytes are what one would get back.
            var selection = EntrySelection()
            selection.source = source.name
            #expect(try lab.store.removal(of: selection, includingPinned: true).freedBytes == source.exclusiveBytes)
        }
    }

    @Test(arguments: Seeds.list(60))
    func aRemovalFreesWhatItsDryRunSaid(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let lab = try Lab()
        try Self.fill(lab, &random)
        for _ in 0..<6 {
            var selection = EntrySelection()
            if random.oneIn(2) { selection.source = try SourceName(random.pick(["a", "b", "nobody"])) }
            if random.oneIn(3) {
                selection.keys = try Set((0..<random.below(40)).map { try TileKey(source: "a", z: 8, x: $0, y: 0) })
            }
            if random.oneIn(4) {
                var builder = TileSetBuilder()
                try builder.insert((0..<random.below(40)).map { PackedTile(z: 8, x: $0, y: 0) })
                selection.tiles = try builder.set().widened(parentsTo: nil, childrenTo: random.oneIn(2) ? 9 : nil)
            }
            let includingPinned = random.oneIn(2)
            let promised = try lab.store.removal(of: selection, includingPinned: includingPinned)
            let before = try lab.store.statistics()
            let report = try lab.store.remove(selection, includingPinned: includingPinned)
            let after = try lab.store.statistics()
            #expect(promised == report, "seed \(seed)")
            #expect(before.allocatedBytes - after.allocatedBytes == promised.freedBytes, "seed \(seed)")
            #expect(before.entries - after.entries == promised.removedEntries, "seed \(seed)")
        }
    }
}
