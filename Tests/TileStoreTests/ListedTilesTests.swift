import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Entries that a list of tiles selects.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ListedTilesTests {
    private static let sources = ["a", "b"]

    private static func key(_ random: inout SplitMix64) throws -> TileKey {
        if random.oneIn(20) {
            return TileKey(
                source: try SourceName(random.pick(sources)), resource: try ResourceAddress(path: "r\(random.below(9))")
            )
        }
        let z = random.below(6)
        return TileKey(
            source: try SourceName(random.pick(sources)),
            tile: try TileAddress(
                z: z, x: random.below(1 << min(z, 3)), y: random.below(1 << min(z, 3)), scale: random.pick([1, 1, 2]),
                format: random.pick([nil, nil, "png"])))
    }

    private static func set(_ tiles: [TileAddress]) throws -> TileSet {
        var builder = TileSetBuilder()
        try builder.insert(tiles.map { PackedTile(z: $0.z, x: $0.x, y: $0.y) })
        return try builder.set()
    }

    /// Whether a tile belongs to a list, by going through it.
    private static func belongs(_ tile: TileAddress, to list: [TileAddress], _ parents: Int?, _ children: Int?) -> Bool
    {
        list.contains { listed in
            if (listed.z, listed.x, listed.y) == (tile.z, tile.x, tile.y) { return true }
            let isAbove = listed.ancestor(zoom: tile.z).map { ($0.x, $0.y) == (tile.x, tile.y) } ?? false
            let isBelow = tile.ancestor(zoom: listed.z).map { ($0.x, $0.y) == (listed.x, listed.y) } ?? false
            return isAbove && tile.z >= parents ?? 29 || isBelow && tile.z <= children ?? -1
        }
    }

    /// Small lists are looked up, and for long ones all entries are looked through.
    @Test(arguments: Seeds.list(40))
    func theEntriesOfAListAreThoseOfItsTiles(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let folder = TemporaryFolder()
        let store = try TileStore(at: folder.path)
        let now = Timestamp(Date())
        var stored: [TileKey: Bool] = [:]
        for _ in 0..<(20 + random.below(200)) {
            let (key, isStale) = (try Self.key(&random), random.oneIn(3))
            let metadata = TileMetadata(storedAt: now, expires: now.adding(seconds: isStale ? 0 : 3600))
            try store.put(Data("x".utf8), for: key, metadata: metadata)
            stored[key] = isStale
        }
        for _ in 0..<12 {
            let list = try (0..<random.pick([0, 1, 3, 30, 300])).map { _ in
                let z = random.below(6)
                return try TileAddress(z: z, x: random.below(1 << min(z, 3)), y: random.below(1 << min(z, 3)))
            }
            let parents = random.oneIn(2) ? random.below(7) : nil
            let children = random.oneIn(2) ? random.below(7) : nil
            var selection = EntrySelection()
            selection.tiles = try Self.set(list).widened(parentsTo: parents, childrenTo: children)
            selection.source = random.oneIn(2) ? try SourceName(random.pick(Self.sources + ["nobody"])) : nil
            selection.stale = random.oneIn(3)
            selection.zooms = random.oneIn(3) ? 1...random.below(5) + 1 : nil
            if random.oneIn(6) { selection.keys = Set(stored.keys.prefix(5)) }
            let ofSource = stored.keys.filter { selection.source == nil || $0.source == selection.source }
            let expected = ofSource.filter { key in
                guard let tile = key.tile else { return false }
                return (!selection.stale || stored[key] == true) && selection.zooms?.contains(tile.z) ?? true
                    && selection.keys?.contains(key) ?? true && Self.belongs(tile, to: list, parents, children)
            }
            for order in [TileStore.EntryOrder.key, .recency] {
                var found: [TileKey] = []
                try store.forEachEntry(in: order, where: selection) { found.append($0.key) }
                #expect(Set(found) == Set(expected) && found.count == expected.count, "seed \(seed)")
                if order == .key { #expect(found == expected.sorted()) }
            }
            #expect(try store.removal(of: selection).removedEntries == expected.count)
            let tiles = try #require(selection.tiles)
            let unknown = list.count { line in
                !ofSource.contains { $0.tile.map { ($0.z, $0.x, $0.y) == (line.z, line.x, line.y) } ?? false }
            }
            #expect(try store.unknownLines(of: tiles, source: selection.source) == unknown, "seed \(seed)")
            if random.oneIn(3) {
                #expect(try store.expire(selection) == expected.count { stored[$0] == false })
                for key in expected { stored[key] = true }
            } else if random.oneIn(6) {
                #expect(try store.remove(selection).removedEntries == expected.count)
                for key in expected { stored[key] = nil }
            }
        }
        try store.close()
        // The lines that were written say the same to whoever reads them.
        let again = try TileStore(at: folder.path)
        var found: [TileKey: Bool] = [:]
        try again.forEachEntry { found[$0.key] = $0.metadata.isStale(at: now.adding(seconds: 600)) }
        #expect(found == stored, "seed \(seed)")
        try again.close()
    }

    /// What the fast reader does not take, the general one does.
    @Test func linesInAnotherLayoutDoTheSame() throws {
        let reader = LineReader()
        func read(_ text: String) -> (LineReader.KeysChange?, [String]) {
            Array(text.utf8).withUnsafeBytes { bytes in
                var keys: [UnsafeRawBufferPointer] = []
                let change = reader.readKeys(bytes, into: &keys)
                return (change, keys.map { String(decoding: $0, as: UTF8.self) })
            }
        }
        // As this program writes them, without the end that closes the object.
        #expect(read(#"{"gone":["a/1/0/0","b:x"]"#) == (.gone, ["a/1/0/0", "b:x"]))
        #expect(read(#"{"expire":["a/1/0/0@2x.png"],"exp":17"#) == (.expire(17), ["a/1/0/0@2x.png"]))
        for text in [
            #"{"gone":[]"#, #"{"gone":["a/1/0/0"],"x":1"#, #"{"gone": ["a/1/0/0"]"#, #"{"gone":["a/1/0/0","#,
            #"{"gone":["a\/1/0/0"]"#, #"{"expire":["a/1/0/0"]"#, #"{"expire":["a/1/0/0"],"exp":-1"#,
            #"{"expire":["a/1/0/0"],"exp":4294967295"#, #"{"expire":["a/1/0/0"],"exp":17,"c":1"#,
            #"{"uses":["a/1/0/0"]"#,
        ] { #expect(read(text).0 == nil, "\(text)") }
    }
}
