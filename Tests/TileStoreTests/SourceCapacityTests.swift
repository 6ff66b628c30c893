import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Capacities of single sources, within that of the whole.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct SourceCapacityTests {
    private static let block = 4096
    private static let sources = ["a", "b", "c"]

    private static func key(_ source: String, _ number: Int) throws -> TileKey {
        try TileKey(source: source, z: 10, x: number, y: 0)
    }

    /// What each source holds, from what is there: allocated bytes of the unpinned blobs that its entries name.
    private static func held(_ snapshot: StoreSnapshot) -> [SourceName: Int] {
        let pinned = Set(snapshot.blobs.filter { $0.pins > 0 }.map(\.digest))
        var blobs: [SourceName: [BlobDigest: Int]] = [:]
        for entry in snapshot.entries {
            if let blob = entry.blob, !pinned.contains(blob) {
                blobs[entry.key.source, default: [:]][blob] = entry.size
            }
        }
        return blobs.mapValues { $0.values.reduce(0) { $0 + ($1 + block - 1) / block * block } }
    }

    /// Scripts of puts, uses, removals, pins, other capacities, other processes, compactions and new starts.
    @Test(arguments: Seeds.list(60))
    func noSourceHoldsMoreThanItsCapacityAndNoOtherPaysForIt(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        var capacities: [SourceName: Int] = [:]
        for source in Self.sources.prefix(2) { capacities[try SourceName(source)] = random.below(30) * Self.block }
        var configuration = Lab.plain
        configuration.sourceCapacities = capacities
        configuration.indexImages = random.oneIn(2) ? .always : .never
        let lab = try Lab(configuration)
        let other = try lab.another(Lab.plain)
        for step in 0..<150 {
            let key = try Self.key(random.pick(Self.sources), random.below(40))
            // Few bodies for many keys; some take two blocks.
            let body = lab.bytes(random.below(25), size: random.oneIn(4) ? 5000 : 1000)
            // A snapshot does not know uses that are not written down, and the next put evicts by them.
            let knowsUses = !lab.store.hasPendingUses && !other.hasPendingUses
            let before = try lab.store.snapshot()
            var isPut = false
            switch random.below(20) {
            case 0..<10:
                try lab.store.put(body, for: key, metadata: lab.metadata())
                isPut = true
            case 10, 11: _ = try lab.store.read(key)
            case 12: _ = try lab.store.remove([key], includingPinned: random.oneIn(2))
            case 13:
                let span = try TileSpan(zoom: 10, columns: 0...random.below(20), rows: 0...0)
                try lab.store.pin(PinnedRegion(name: "r\(random.below(2))", source: key.source, spans: [span]))
            case 14: _ = try lab.store.unpin("r\(random.below(2))")
            case 15:
                try other.put(body, for: key, metadata: lab.metadata())
                // Its turn comes with the next put of the store that has capacities.
                try lab.store.put(body, for: key, metadata: lab.metadata())
            case 16:
                capacities = [:]
                for source in Self.sources where !random.oneIn(3) {
                    capacities[try SourceName(source)] = random.below(30) * Self.block
                }
                lab.configuration.sourceCapacities = capacities
                try lab.store.setSourceCapacities(capacities)
            case 17: _ = try (random.oneIn(2) ? lab.store : other).compact()
            case 18:
                if random.oneIn(2) { try lab.store.close() }
                try lab.reopen()
            default: try lab.store.flush()
            }
            try lab.store.catchUp()
            let after = try lab.store.snapshot()
            #expect(try lab.store.invariantViolations() == [], "seed \(seed), step \(step)")
            let held = Self.held(after)
            for (source, capacity) in capacities {
                #expect(held[source] ?? 0 <= capacity, "seed \(seed), step \(step): \(source)")
            }
            if isPut, knowsUses { try Self.checkVictims(before, after, key, capacities, "seed \(seed), step \(step)") }
        }
        try other.close()
    }

    /// After a put: sources without a capacity have lost nothing, and what others have kept was used after what they have lost.
    private static func checkVictims(
        _ before: StoreSnapshot, _ after: StoreSnapshot, _ key: TileKey, _ capacities: [SourceName: Int],
        _ place: String
    ) throws {
        let recencies = Dictionary(uniqueKeysWithValues: before.blobs.map { ($0.digest, $0.recency) })
        let put = after.entries.first { $0.key == key }?.blob
        let left = Set(after.entries.map(\.key))
        for source in Set(before.entries.map(\.key.source)) {
            let entries = before.entries.filter {
                $0.key.source == source && $0.key != key && !$0.isPinned && $0.blob != put
            }
            let lost = entries.filter { !left.contains($0.key) }.compactMap { $0.blob.flatMap { recencies[$0] } }
            let pinned = Set(after.blobs.filter { $0.pins > 0 }.map(\.digest))
            let kept = entries.filter { left.contains($0.key) && !($0.blob.map(pinned.contains) ?? true) }
                .compactMap { $0.blob.flatMap { recencies[$0] } }
            if capacities[source] == nil { #expect(lost.isEmpty, "\(place): \(source)") }
            // Entries of one blob go in one step or in none.
            if let last = lost.max(), let first = kept.min() { #expect(last < first, "\(place): \(source)") }
        }
    }

    @Test func aSourceThatFillsUpTakesNothingFromOthers() throws {
        var configuration = Lab.plain
        configuration.sourceCapacities = [try SourceName("a"): 10 * Self.block]
        let lab = try Lab(configuration)
        for number in 0..<50 {
            try lab.store.put(lab.bytes(number), for: Self.key("b", number), metadata: lab.metadata())
        }
        for number in 0..<200 {
            try lab.store.put(lab.bytes(1000 + number), for: Self.key("a", number), metadata: lab.metadata())
        }
        var counts: [String: Int] = [:]
        try lab.store.forEachEntry { counts[$0.key.source.description, default: 0] += 1 }
        #expect(counts["b"] == 50 && (9...10).contains(counts["a"] ?? 0))
        // Those put last are there.
        #expect(try lab.store.read(Self.key("a", 199)) != nil)
    }

    /// The capacities of all sources are the whole's, and everything is full: others gave up 1 % whenever one was at its end.
    @Test func aSourceThatFillsUpTakesNothingFromOthersInAFullCache() throws {
        var configuration = Lab.plain
        configuration.capacity = 300 * Self.block
        configuration.sourceCapacities = [try SourceName("a"): 100 * Self.block, try SourceName("b"): 200 * Self.block]
        let lab = try Lab(configuration)
        for number in 0..<200 {
            try lab.store.put(lab.bytes(number), for: Self.key("b", number), metadata: lab.metadata())
        }
        for number in 0..<500 {
            try lab.store.put(lab.bytes(1000 + number), for: Self.key("a", number), metadata: lab.metadata())
        }
        var counts: [String: Int] = [:]
        try lab.store.forEachEntry { counts[$0.key.source.description, default: 0] += 1 }
        #expect(counts["b"] == 200 && (99...100).contains(counts["a"] ?? 0))
    }

    @Test func sharedBlobsStayForOthersAndCountForBoth() throws {
        var configuration = Lab.plain
        configuration.sourceCapacities = [try SourceName("a"): 4 * Self.block]
        let lab = try Lab(configuration)
        for number in 0..<10 {
            for source in ["a", "b"] {
                try lab.store.put(lab.bytes(number), for: Self.key(source, number), metadata: lab.metadata())
            }
        }
        for number in 0..<10 {
            #expect(try lab.store.read(Self.key("b", number))?.data == lab.bytes(number))
            #expect(try (lab.store.read(Self.key("a", number)) != nil) == (number >= 6), "\(number)")
        }
        #expect(try lab.store.statistics().blobs == 10)
    }

    /// Thousands of entries name one blob, which another source has as well.
    @Test func manyEntriesOfOneSharedBlobGoInSteps() throws {
        let lab = try Lab()
        try lab.store.put(lab.bytes(0), for: Self.key("b", 0), metadata: lab.metadata())
        for number in 0..<9000 {
            try lab.store.put(
                lab.bytes(0), for: TileKey(source: "a", z: 14, x: number, y: 0), metadata: lab.metadata())
        }
        try lab.store.setSourceCapacities([SourceName("a"): 0])
        #expect(try lab.store.statistics().entries == 1)
        #expect(try lab.store.read(Self.key("b", 0))?.data == lab.bytes(0))
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test func aBodyLargerThanItsSourceMayHoldIsNotKept() throws {
        var configuration = Lab.plain
        configuration.sourceCapacities = [try SourceName("a"): Self.block]
        let lab = try Lab(configuration)
        try lab.store.put(lab.bytes(1), for: Self.key("a", 1), metadata: lab.metadata())
        let outcome = try lab.store.put(lab.bytes(2, size: 9000), for: Self.key("a", 2), metadata: lab.metadata())
        #expect(outcome == .largerThanSourceCapacity)
        // It takes nothing else with it.
        #expect(try lab.store.read(Self.key("a", 1)) != nil && lab.store.read(Self.key("a", 2)) == nil)
        try lab.store.put(lab.bytes(2, size: 9000), for: Self.key("b", 2), metadata: lab.metadata())
        #expect(try lab.store.read(Self.key("b", 2)) != nil)
        // Nor is what was stored before under its key left there.
        try lab.store.put(lab.bytes(2, size: 9000), for: Self.key("a", 1), metadata: lab.metadata())
        #expect(try lab.store.statistics().entries == 1)
    }

    /// However much others have used since.
    @Test func theTileOfASourceThatWasUsedLastStaysWithinItsCapacity() throws {
        var configuration = Lab.plain
        configuration.sourceCapacities = [try SourceName("a"): Self.block, try SourceName("c"): 6 * Self.block]
        let lab = try Lab(configuration)
        for number in 0..<40 {
            try lab.store.put(lab.bytes(number), for: Self.key("a", number), metadata: lab.metadata())
            try lab.store.put(
                lab.bytes(number, size: 6 * Self.block - 1), for: Self.key("c", number), metadata: lab.metadata())
            try lab.store.put(lab.bytes(1000 + number), for: Self.key("b", number), metadata: lab.metadata())
            #expect(try lab.store.read(Self.key("a", number)) != nil, "\(number)")
            #expect(try lab.store.read(Self.key("c", number)) != nil, "\(number)")
        }
    }

    @Test func openingWithALowerCapacityEvictsAtOnce() throws {
        let lab = try Lab()
        for number in 0..<20 {
            try lab.store.put(lab.bytes(number), for: Self.key("a", number), metadata: lab.metadata())
        }
        try lab.store.close()
        lab.configuration.sourceCapacities = [try SourceName("a"): 5 * Self.block, try SourceName("nobody"): 0]
        try lab.reopen()
        // A little further than the capacity, so that it pays.
        #expect(try lab.store.statistics().blobs == 4)
        // For reading alone nothing is evicted.
        var reading = Lab.plain
        reading.readOnly = true
        reading.sourceCapacities = [try SourceName("a"): 0]
        let reader = try lab.another(reading)
        #expect(try reader.statistics().blobs == 4)
        try reader.close()
    }

    @Test func aNegativeCapacityIsNone() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        try lab.store.setSourceCapacities([SourceName("lab"): -1])
        #expect(try lab.store.statistics().entries == 0)
    }

    /// A store with work in the background, and a clock by which each step takes longer than a put may.
    private static func slowStore(_ lab: Lab) throws -> TileStore {
        var environment = lab.clock.environment(SimulatedFileSystem(lab.disk), seed: 99)
        environment.background = true
        let ticks = Locked<UInt64>(0)
        environment.ticks = {
            ticks.withLock { ticks in
                ticks += 100_000_000
                return ticks
            }
        }
        return try TileStore(environment: environment, configuration: Lab.plain)
    }

    /// Blobs of two sources, closed.
    private static func filled(_ sources: [String], _ count: Int) throws -> Lab {
        let lab = try Lab()
        for source in sources {
            for number in 0..<count {
                let bytes = lab.bytes(number + (source == "a" ? 0 : 10_000))
                try lab.store.put(bytes, for: Self.key(source, number), metadata: lab.metadata())
            }
        }
        try lab.store.close()
        return lab
    }

    /// With nobody who works in the background, what the put leaves is there.
    @Test func aPutLeavesWhatOthersHoldTooMuchAndEvictsAsMuchAsItAdds() throws {
        let lab = try Self.filled(["a"], 1000)
        let store = try Self.slowStore(lab)
        store.maintenance?.stop()
        let a = try SourceName("a")
        try store.setSourceCapacities([a: 10 * Self.block])
        var left = 1000 * Self.block
        for number in 0..<30 {
            let before = try store.statistics().allocatedBytes
            try store.put(lab.bytes(5000 + number), for: Self.key("b", number), metadata: lab.metadata())
            let held = Self.held(try store.snapshot())[a] ?? 0
            #expect(try store.statistics().allocatedBytes <= max(before, 40 * Self.block), "\(number)")
            #expect(held < left || held <= 10 * Self.block, "\(number)")
            // A step is 64 blobs.
            #expect(held >= left - 2 * 64 * Self.block, "\(number)")
            left = held
        }
        #expect(left <= 10 * Self.block)
        #expect(try store.invariantViolations() == [])
        try store.close()
    }

    /// While what another one had held too much before was still being evicted, whichever of the two is named first: a put gave its own
    /// excess away with that.
    @Test(arguments: [("a", "b"), ("b", "a")])
    func aSourceGrewPastItsCapacityWhileAnotherWasEvicted(large: String, small: String) throws {
        let lab = try Self.filled([large], 1000)
        let store = try Self.slowStore(lab)
        store.maintenance?.stop()
        let (capacity, source) = (10 * Self.block, try SourceName(small))
        try store.setSourceCapacities([SourceName(large): capacity, source: capacity])
        for number in 0..<14 {
            // Of every second put all tiles are in the first's source, of the others one is in the other's, too.
            var tiles = try (0..<3).map { i in
                TilePut(
                    key: try Self.key(small, number * 3 + i), data: lab.bytes(20_000 + number * 3 + i),
                    metadata: lab.metadata())
            }
            if number % 2 == 0 {
                let key = try Self.key(large, 1001 + number)
                tiles.append(TilePut(key: key, data: lab.bytes(30_000 + number), metadata: lab.metadata()))
            }
            let before = try Self.held(store.snapshot())[SourceName(large)] ?? 0
            try store.put(tiles)
            let held = Self.held(try store.snapshot())
            #expect(held[source] ?? 0 <= capacity, "\(number)")
            #expect(held[try SourceName(large)] ?? 0 <= max(before, capacity), "\(number)")
            #expect(try store.read(tiles[2].key) != nil, "\(number)")
        }
        // Not all of the old excess had to go for that.
        #expect(try Self.held(store.snapshot())[SourceName(large)] ?? 0 > capacity)
        try store.enforceLimits()
        #expect(try store.invariantViolations() == [])
        try store.close()
    }

    /// Both hold too much from before, and puts come to one of them.
    @Test(arguments: [("a", "b"), ("b", "a")])
    func whatASourceHeldTooMuchDidNotGrowWhileAnotherWasEvicted(other: String, own: String) throws {
        let lab = try Self.filled([other, own], 1000)
        let store = try Self.slowStore(lab)
        store.maintenance?.stop()
        let (capacity, source) = (10 * Self.block, try SourceName(own))
        try store.setSourceCapacities([SourceName(other): capacity, source: capacity])
        for number in 0..<10 {
            let before = Self.held(try store.snapshot())[source] ?? 0
            try store.put(lab.bytes(20_000 + number), for: Self.key(own, 1001 + number), metadata: lab.metadata())
            #expect(try Self.held(store.snapshot())[source] ?? 0 <= max(before, capacity), "\(number)")
        }
        try store.enforceLimits()
        #expect(try store.invariantViolations() == [])
        try store.close()
    }

    /// Also for a source whose capacity came while another one's excess was being worked off.
    @Test func whatSourcesHoldTooMuchGoesInTheBackground() throws {
        let lab = try Self.filled(["a", "b"], 400)
        let store = try Self.slowStore(lab)
        let (a, b, capacity) = (try SourceName("a"), try SourceName("b"), 10 * Self.block)
        try store.setSourceCapacities([a: capacity])
        try store.setSourceCapacities([a: capacity, b: capacity])
        func exceeds() throws -> Bool { Self.held(try store.snapshot()).values.contains { $0 > capacity } }
        while try exceeds() { store.maintenance?.waitForPending() }
        #expect(try store.read(Self.key("a", 399)) != nil && store.read(Self.key("b", 399)) != nil)
        #expect(try store.invariantViolations() == [])
        try store.close()
    }

    /// Another process held the lock for longer than was waited, and then nobody stored anything: it had ended for good.
    @Test func anEvictionInTheBackgroundThatCouldNotGetTheLockGoesOn() throws {
        let lab = try Self.filled(["a"], 100)
        let other = try lab.another(Lab.plain)
        var environment = lab.clock.environment(SimulatedFileSystem(lab.disk), seed: 99)
        environment.background = true
        var configuration = Lab.plain
        configuration.lockWait = 0
        configuration.sourceCapacities = [try SourceName("a"): 10 * Self.block]
        func held(_ store: TileStore) throws -> Int { Self.held(try store.snapshot())[try SourceName("a")] ?? 0 }
        let store = try other.hold { _ in
            let store = try TileStore(environment: environment, configuration: configuration)
            store.maintenance?.waitForPending()
            #expect(try held(store) == 100 * Self.block)
            return store
        }
        let end = ContinuousClock.now + .seconds(30)
        while try held(store) > 10 * Self.block, ContinuousClock.now < end { store.maintenance?.waitForPending() }
        #expect(try held(store) <= 10 * Self.block)
        try store.close()
        try other.close()
    }

    /// What is needed for it cannot be written.
    @Test func aSourceAboveItsCapacityKeepsNoStoreFromOpeningOnAFullDisk() throws {
        let lab = try Lab()
        for number in 0..<20 {
            for source in ["a", "b"] {
                try lab.store.put(lab.bytes(number), for: Self.key(source, number), metadata: lab.metadata())
            }
        }
        try lab.store.close()
        lab.disk.capacity = 0
        var environment = lab.clock.environment(SimulatedFileSystem(lab.disk), seed: 99)
        environment.background = true
        var configuration = Lab.plain
        configuration.sourceCapacities = [try SourceName("a"): 0]
        let store = try TileStore(environment: environment, configuration: configuration)
        #expect(try store.read(Self.key("b", 3))?.data == lab.bytes(3))
        lab.disk.capacity = nil
        // The next put has what is left evicted.
        for number in 20..<40 {
            try store.put(lab.bytes(number), for: Self.key("b", number), metadata: lab.metadata())
            store.maintenance?.waitForPending()
        }
        #expect(Self.held(try store.snapshot())[try SourceName("a")] ?? 0 == 0)
        try store.close()
    }
}
