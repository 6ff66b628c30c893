import Testing
import TileStoreTesting

@testable import TileStore

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct RegionTests {
    @Test("What is no region is refused")
    func refusals() throws {
        let source = try SourceName("a")
        let span = try TileSpan(zoom: 0, columns: 0...0, rows: 0...0)
        #expect(throws: StoreError.self) { try PinnedRegion(name: "", source: source, spans: [span]) }
        #expect(throws: StoreError.self) { try PinnedRegion(name: "a b", source: source, spans: [span]) }
        #expect(throws: StoreError.self) { try PinnedRegion(name: "a", source: source, spans: []) }
        let tiles = SourceTiles(source: source, spans: [span])
        func expectRefusal(_ tiles: [SourceTiles], _ resources: [String]) {
            #expect(throws: StoreError.self) {
                try PinnedRegion(name: "a", tiles: tiles, resources: resources.map { try TileKey($0) })
            }
        }
        expectRefusal([], [])
        expectRefusal([tiles, tiles], [])
        expectRefusal([tiles, SourceTiles(source: try SourceName("b"), spans: [])], ["a:style.json"])
        expectRefusal([tiles], ["a/0/0/0"])
        expectRefusal([tiles], ["a:style.json#00112233445566778899aabbccddeeff"])
        expectRefusal([], (0...PinnedRegion.mostResources).map { "a:\($0)" })
        let long = String(repeating: "x", count: 1000)
        expectRefusal([], (0..<20_000).map { "a:\(long)\($0)" })
        expectRefusal(
            try (0...PinnedRegion.mostSources).map { SourceTiles(source: try SourceName("s\($0)"), spans: [span]) }, [])
    }

    @Test("A region of several sources and of resources pins all of them, and nothing else")
    func aWholeMapIsOneRegion() throws {
        let lab = try Lab(Lab.plain)
        let keys = try [
            "a/0/0/0", "b/1/0/0@2x", "c/0/0/0", "b/1/1/1", "a:style.json",
            "a:style.json#00112233445566778899aabbccddeeff",
            "a:font.pbf?00112233445566778899aabbccddeeff", "a:font.pbf", "b:style.json",
        ].map { try TileKey($0) }
        func put() throws {
            for (number, key) in keys.enumerated() {
                try lab.store.put(
                    lab.bytes(number), for: key,
                    metadata: TileMetadata(
                        response: ResponseFields(), storedAt: lab.clock.now, expires: lab.clock.now.adding(seconds: 60))
                )
            }
        }
        func tiles(_ source: String, _ zoom: Int) throws -> SourceTiles {
            SourceTiles(source: try SourceName(source), spans: [try TileSpan(zoom: zoom, columns: 0...0, rows: 0...0)])
        }
        let region = try PinnedRegion(
            name: "map", tiles: [tiles("a", 0), tiles("b", 1)], resources: [keys[4], keys[6], TileKey("d:gone.png")])
        try put()
        try lab.store.pin(region)
        let pinned = [0, 1, 4, 5, 6]
        func check(_ store: TileStore) throws {
            #expect(try store.regions() == [region])
            for (number, key) in keys.enumerated() {
                let isPinned = pinned.contains(number)
                #expect(region.contains(key) == isPinned, "\(key)")
                #expect(try store.entry(for: key)?.isPinned ?? isPinned == isPinned, "\(key)")
            }
            let figures = try #require(try store.regionStatistics().first)
            #expect(figures.tiles == 2 && figures.present == 2 && figures.presentResources == 2)
            #expect(try store.statistics().pinnedEntries == pinned.count)
            #expect(try store.invariantViolations() == [])
        }
        try check(lab.store)
        _ = try lab.store.compact()
        try check(lab.another(Lab.plain))
        _ = try lab.store.evict(toBytes: 0)
        #expect(try lab.store.statistics().entries == pinned.count)
        try check(lab.store)
        // What is put later is pinned as well, variants of a resource among it.
        try put()
        try check(lab.store)
        // Another region has the style, too.
        try lab.store.pin(PinnedRegion(name: "other", tiles: [], resources: [keys[4]]))
        #expect(try lab.store.regions().last?.source == SourceName("a"))
        #expect(try lab.store.removeRegion("map")?.removedEntries == pinned.count - 2)
        #expect(try lab.store.statistics().pinnedEntries == 2)
        _ = try lab.store.unpin("other")
        #expect(try lab.store.statistics().pinnedBytes == 0)
        #expect(try lab.store.invariantViolations() == [])
    }

    /// As it reads a line: further members are none for it.
    @Test("A program that knows only regions of one source reads the line of a whole map")
    func olderProgramsReadTheLine() throws {
        for tiles in [
            [], [SourceTiles(source: try SourceName("a"), spans: [try TileSpan(zoom: 3, columns: 1...2, rows: 3...4)])],
        ] {
            let region = try PinnedRegion(name: "map", tiles: tiles, resources: [TileKey("r:style.json")])
            var lines = LineBuffer()
            lines.region(region)
            let line = Array(lines.bytes.dropLast())
            let value = try #require(line.withUnsafeBytes { JSONValue($0) }?.object)
            #expect(value["region"]?.string == "map" && value["source"]?.string == (tiles.isEmpty ? "r" : "a"))
            #expect(value["spans"]?.array?.first?.array?.count == 5)
        }
    }

    @Test
    func theCountOfAnEnormousRegionIsCapped() throws {
        let world = try TileSpan(zoom: 28, columns: 0...((1 << 28) - 1), rows: 0...((1 << 28) - 1))
        let region = try PinnedRegion(
            name: "a", source: SourceName("a"), spans: Array(repeating: world, count: 65_536))
        #expect(region.tileCount == Int.max)
    }

    @Test("A look-up in a region costs the same whatever its rectangles are", arguments: 0..<6)
    func lookUpsDoNotScanTheRectangles(kind: Int) throws {
        var random = SplitMix64(seed: UInt64(kind))
        let (zoom, side, count) = (18, 1 << 18, 65_536)
        func span(_ i: Int) throws -> TileSpan {
            let (column, row) = (random.below(side), random.below(side))
            switch kind {
            // One that is as tall as the map, beside many of one row.
            case 0: return try TileSpan(zoom: zoom, columns: 9...9, rows: i == 0 ? 0...side - 1 : i * 2...i * 2)
            // All as tall as the map, with gaps between them.
            case 1: return try TileSpan(zoom: zoom, columns: i * 4...i * 4 + 1, rows: 0...side - 1)
            // Stairs: each begins below the one before and ends above it.
            case 2: return try TileSpan(zoom: zoom, columns: i * 4...i * 4, rows: i...side - 1 - i)
            case 3: return try TileSpan(zoom: zoom, columns: column...column, rows: row...row)
            case 4: return try TileSpan(zoom: zoom, columns: column...side - 1, rows: 0...row)
            default:
                return try TileSpan(
                    zoom: zoom, columns: column...min(side - 1, column + random.below(900)),
                    rows: row...min(side - 1, row + random.below(900)))
            }
        }
        let spans = try (0..<count).map(span)
        let index = RegionIndex(spans)
        var most = 0
        for i in 0..<100 {
            let near = random.pick(spans)
            let x = i % 2 == 0 ? random.below(side) : near.columns.upperBound
            let y = i % 3 == 0 ? random.below(side) : near.rows.lowerBound
            var probes = 0
            let isIn = index.contains(z: zoom, x: x, y: y, probes: &probes)
            #expect(isIn == spans.contains { $0.contains(z: zoom, x: x, y: y) }, "\(x), \(y)")
            most = max(most, probes)
        }
        #expect(most <= 18 * 18)
        #expect(!index.contains(z: zoom - 1, x: 9, y: 0))
    }

    @Test("Small regions cover exactly the tiles of their rectangles", arguments: 0..<40)
    func smallRegionsByTheTile(seed: Int) throws {
        var random = SplitMix64(seed: UInt64(seed))
        let spans = try (0..<1 + random.below(9)).map { _ in
            let (x, y) = (random.below(16), random.below(16))
            return try TileSpan(
                zoom: 4, columns: x...x + random.below(16 - x), rows: y...y + random.below(16 - y))
        }
        let index = RegionIndex(spans)
        for x in 0..<16 {
            for y in 0..<16 {
                #expect(index.contains(z: 4, x: x, y: y) == spans.contains { $0.contains(z: 4, x: x, y: y) })
            }
        }
    }

    // MARK: Plans and limits

    private func region(_ last: Int) throws -> PinnedRegion {
        try PinnedRegion(
            name: "r", source: SourceName("lab"), spans: [TileSpan(zoom: 12, columns: 0...last, rows: 0...0)])
    }

    private func limited() throws -> Lab {
        var configuration = Lab.plain
        configuration.capacity = 5 * 4096
        let lab = try Lab(configuration)
        try lab.store.pin(region(39))
        try lab.put(0..<40)
        #expect(try lab.store.invariantViolations() == [])
        return lab
    }

    private static func planFile(_ region: String) -> String {
        let digest = Array(region.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        return "downloads/\(digest.description.prefix(32)).json"
    }

    /// The region's record stood, its plan could not be put in place, and the limits were left as they were exceeded.
    @Test(arguments: [false, true])
    func aRegionWasReplacedThoughItsPlanHadNoPlace(isFile: Bool) throws {
        let lab = try limited()
        if isFile { lab.disk.plant("downloads", [1]) } else { lab.disk.plantFolder(Self.planFile("r")) }
        let error = #expect(throws: StoreError.self) { try lab.store.pin(region(1), plan: "{\"a\":1}") }
        #expect(error?.code == .damaged && error?.message.contains("downloads") == true)
        #expect(try lab.store.regions().first?.spans == region(39).spans)
        #expect(try lab.store.invariantViolations() == [])
        #expect(lab.disk.names("staging").isEmpty)
    }

    private func change(_ lab: Lab, _ what: Int) throws {
        switch what {
        case 0: try lab.store.pin(region(1), plan: "{\"a\":1}")
        case 1: _ = try lab.store.unpin("r")
        case 2: _ = try lab.store.removeRegion("r")
        default: try lab.store.setLimits(StoreLimits(capacity: 2 * 4096))
        }
    }

    /// Whatever fails of a change that has been recorded: what it no longer keeps goes.
    @Test(arguments: 0..<4)
    func aChangeThatThrewLeftTheLimitsExceeded(what: Int) throws {
        // The last hold of the lock is the one that evicts.
        var operations = 0
        for hold in 0..<10 {
            let lab = try limited()
            lab.files.fail(nil)
            var before: Int?
            lab.files.beforeLocking(after: hold) { before = lab.files.operations }
            try change(lab, what)
            lab.files.forgetIntruder()
            guard let before else { break }
            operations = before
        }
        #expect(operations > 0)
        for at in 0..<operations {
            let lab = try limited()
            lab.files.fail(.init(at: at, number: 5))
            do { try change(lab, what) } catch { #expect(error is StoreError) }
            lab.files.fail(nil)
            #expect(!lab.store.tables.read { t, _ in t.exceedsLimits }, "\(what) at \(at)")
        }
    }

    /// Neither pinning nor unpinning has to do with what somebody has put where a plan would be.
    @Test func aFolderInAPlansPlaceKeptTheRegionFromBeingChanged() throws {
        let lab = try Lab()
        try lab.store.pin(region(3))
        lab.disk.plant(Self.planFile("r") + "/within", [1])
        try lab.store.pin(region(4))
        #expect(try lab.store.plans().count == 1)
        #expect(try lab.store.unpin("r"))
        #expect(try lab.store.regions().isEmpty)
        #expect(lab.disk.contents(Self.planFile("r") + "/within") == [1])
    }

    /// Each was read, however many somebody had put there.
    @Test func plansOfNoRegionWereReadWithoutBound() throws {
        let lab = try Lab()
        for last in 0..<2 {
            let named = try PinnedRegion(
                name: "r\(last)", source: SourceName("lab"),
                spans: [TileSpan(zoom: 12, columns: 0...last, rows: 0...0)])
            try lab.store.pin(named, plan: "{\"a\":\(last)}")
        }
        for number in 0..<2000 { lab.disk.plant(Self.planFile("stranger \(number)"), [UInt8(ascii: "x")]) }
        let before = lab.files.operations
        let plans = try lab.store.plans()
        #expect(lab.files.operations - before < 300)
        #expect(plans.count { if case .plan = $0.found { true } else { false } } == 2)
        #expect(plans.count == 258)
    }
}
