import Testing
import TileStoreTesting

@testable import TileStore

/// What an eviction removes, decided as a value.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct EvictorTests {
    private static let block = 4096

    @Test func aPlanNamesTheLeastRecentlyUsedAndChangesNothing() throws {
        let lab = try Lab()
        try lab.put(0..<10)
        let before = try lab.store.snapshot()
        lab.store.tables.read { t, _ in
            var evictors = [Evictor(bytes: 3 * Self.block), Evictor(bytes: 3 * Self.block)]
            var texts: [[UInt8]] = []
            for i in evictors.indices {
                var lines = LineBuffer()
                #expect(evictors[i].plan(t, &lines) == (0..<7).map { lab.digest($0) })
                texts.append(Array(lines.bytes))
                #expect(!evictors[i].isDone)
                #expect(evictors[i].preview(t).removedBlobs == 7)
            }
            #expect(texts[0] == texts[1] && texts[0].filter { $0 == 0x0A }.count == 7)
        }
        #expect(try lab.store.snapshot() == before)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test func aBlobGoesWithTheLastOfItsEntries() throws {
        let lab = try Lab()
        for number in 0..<6 {
            try lab.store.put(lab.bytes(number / 2), for: lab.key(number), metadata: lab.metadata())
        }
        lab.store.tables.read { t, _ in
            for (left, gone) in [(5, []), (4, [0]), (1, [0, 1])] {
                var evictor = Evictor(entries: left)
                var lines = LineBuffer()
                #expect(evictor.plan(t, &lines) == gone.map { lab.digest($0) })
            }
            var evictor = Evictor(entries: 6)
            var lines = LineBuffer()
            #expect(evictor.plan(t, &lines) == nil)
            #expect(evictor.isDone && lines.count == 0)
        }
    }

    @Test func thePlanOfTheNextHoldGoesByTheLimitsOfThatHold() throws {
        let lab = try Lab()
        try lab.put(0..<10)
        lab.store.tables.write { t in
            #expect(Evictor(keeping: t).isDone)
            t.limits = StoreLimits(capacity: 5 * Self.block)
            var evictor = Evictor(keeping: t)
            var lines = LineBuffer()
            // A little further than the limit, so that it pays.
            #expect(evictor.plan(t, &lines) == (0..<6).map { lab.digest($0) })
            t.limits = StoreLimits(capacity: 8 * Self.block)
            evictor.renew(t)
            #expect(evictor.plan(t, &lines) == (0..<3).map { lab.digest($0) })
            t.limits = StoreLimits(capacity: nil)
            evictor.renew(t)
            #expect(evictor.plan(t, &lines) == nil)
            #expect(evictor.isDone)
        }
    }

    /// Of a cache that holds one blob, which is within the capacity but not within the low-water mark.
    @Test func theBlobUsedLastIsSparedWithinTheLimit() throws {
        let lab = try Lab()
        try lab.put(0..<2)
        lab.store.tables.write { t in
            t.limits = StoreLimits(capacity: Self.block)
            var evictor = Evictor(keeping: t)
            var lines = LineBuffer()
            #expect(evictor.plan(t, &lines) == [lab.digest(0)])
        }
    }
}
