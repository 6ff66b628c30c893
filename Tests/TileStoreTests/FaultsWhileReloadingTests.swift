import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// A store that has fallen behind meets a fault while it loads what others have written.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct FaultsWhileReloadingTests {
    enum Way: Int, CaseIterable, Sendable { case catchUp, put, read, compact, evict, flush, verify }
    enum Behind: Int, CaseIterable, Sendable { case two, one, replaced }

    private static func ways() -> [(Way, Behind)] {
        Way.allCases.flatMap { w in Behind.allCases.map { (w, $0) } }
    }

    @Test(arguments: ways())
    func whateverFailsNothingOldIsServedAfterIt(_ way: Way, _ behind: Behind) throws {
        for (durable, number) in [(false, EMFILE), (true, EIO)] {
            for image in [false, true] {
                var at = 0
                while try once(way, behind, durable, image, at, number) { at += 1 }
            }
        }
    }

    private func once(_ way: Way, _ behind: Behind, _ durable: Bool, _ image: Bool, _ at: Int, _ number: Int32) throws
        -> Bool
    {
        var configuration = Lab.plain
        configuration.indexImages = image ? .always : .never
        configuration.durability = durable ? .durable : .relaxed
        let lab = try Lab(configuration)
        var other = try lab.another()
        try lab.put(0..<6)
        var expected: [Int: Int] = [:]
        for i in 0..<6 { expected[i] = i }
        func put(_ store: TileStore, _ key: Int, _ value: Int) throws {
            try store.put(lab.bytes(value), for: lab.key(key), metadata: lab.metadata())
            expected[key] = value
        }
        switch behind {
        case .one, .two:
            try put(other, 0, 100)
            _ = try other.remove([lab.key(1)])
            expected[1] = nil
            try put(other, 7, 7)
            _ = try other.compact()
            try put(other, 2, 102)
            if behind == .two { _ = try other.compact() }
            try put(other, 8, 8)
            try put(other, 3, 103)
        case .replaced:
            for name in [
                "manifest", "objects", "staging", "quarantine", "lock", "compact.lock", "tilecache.json",
                "CACHEDIR.TAG",
            ] {
                lab.disk.remove(name)
            }
            other.simulateKill()
            other = try lab.another()
            expected = [:]
            try put(other, 2, 102)
            try put(other, 9, 9)
        }
        lab.files.fail(.init(at: at, number: number))
        var uncertain: Int?
        switch way {
        case .catchUp: try? lab.store.catchUp()
        case .put:
            do { try put(lab.store, 20, 20) } catch { uncertain = 20 }
        case .read: _ = try? lab.store.read(lab.key(2))
        case .compact: _ = try? lab.store.compact()
        case .evict: _ = try? lab.store.evict()
        case .flush: try? lab.store.flush()
        case .verify: _ = try? lab.store.verify()
        }
        let struck = lab.files.hasStruck
        lab.files.fail(nil)
        lab.clock.advance(seconds: 1)
        func check(_ store: TileStore, _ what: String) throws {
            try store.catchUp()
            for key in 0..<24 where key != uncertain {
                let found = try store.read(lab.key(key))?.data
                let wanted = expected[key].map { lab.bytes($0) }
                #expect(
                    found == wanted,
                    "\(what): key \(key) after \(way) \(behind) durable \(durable) image \(image) fault \(number) at \(at)"
                )
            }
            let violations = try store.invariantViolations()
            #expect(
                violations == [],
                "\(what) after \(way) \(behind) durable \(durable) image \(image) fault \(number) at \(at)")
        }
        try check(lab.store, "A")
        try put(lab.store, 21, 21)
        try check(lab.store, "A2")
        try check(other, "B")
        _ = try lab.store.compact()
        try check(lab.store, "A3")
        try check(other, "B3")
        let third = try lab.another()
        try check(third, "C")
        let report = try third.verify()
        #expect(report.missing == [] && report.damaged == [], "C verify")
        third.simulateKill()
        other.simulateKill()
        return struck
    }

    /// The tables stayed the old ones, on the new journal: old tiles were served, and the next checkpoint was made of them.
    @Test func oldTablesStayedWhereTheMarkerCouldNotBeRead() throws {
        let lab = try Lab()
        let other = try lab.another()
        try lab.put(0..<3)
        func put(_ key: Int) throws { try other.put(lab.bytes(key), for: lab.key(key), metadata: lab.metadata()) }
        try put(40)
        _ = try other.compact()
        try put(50)
        _ = try other.compact()
        let marker = try #require(lab.disk.contents("tilecache.json"))
        lab.disk.corrupt("tilecache.json") { $0 = [0x7B] }
        #expect(throws: StoreError.self) { try lab.store.catchUp() }
        lab.disk.corrupt("tilecache.json") { $0 = marker }
        try lab.store.put(lab.bytes(60), for: lab.key(60), metadata: lab.metadata())
        #expect(try lab.store.read(lab.key(50))?.data == lab.bytes(50), "the store does not see what was put")
        _ = try lab.store.compact()
        let third = try lab.another()
        #expect(try third.read(lab.key(50))?.data == lab.bytes(50), "lost for ever")
        let report = try third.verify()
        #expect(report.orphans == [])
        other.simulateKill()
        third.simulateKill()
    }

    /// The plan was removed before the record was written that was to make it useless.
    @Test func aRegionThatStaysKeepsItsPlan() throws {
        for at in 0..<60 {
            for what in 0..<2 {
                let lab = try Lab()
                let spans = [try TileSpan(zoom: 12, columns: 0...3, rows: 0...0)]
                let region = try PinnedRegion(name: "r", source: SourceName("lab"), spans: spans)
                let larger = try PinnedRegion(
                    name: "r", source: SourceName("lab"), spans: [TileSpan(zoom: 12, columns: 0...9, rows: 0...0)])
                try lab.store.pin(region, plan: "{\"a\":1}")
                lab.files.fail(.init(at: at, number: EIO))
                var failed = false
                do {
                    if what == 0 { _ = try lab.store.unpin("r") } else { try lab.store.pin(larger, plan: "{\"b\":2}") }
                } catch { failed = true }
                lab.files.fail(nil)
                guard failed else { continue }
                if try lab.store.regions().first == region {
                    #expect(try lab.store.plans().count == 1, "region stays, its plan is gone: \(what) at \(at)")
                }
            }
        }
    }
}
