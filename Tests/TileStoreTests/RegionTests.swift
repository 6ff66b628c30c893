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
