import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// A store that falls two compactions behind loads its tables anew.
///
/// What was kept from the old ones (numbers of names, slots,
/// plans) must not be used with the new ones, where it means something else.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ReplacedTablesTests {
    private static let sources = ["a", "b"]

    private static func key(_ source: String, _ number: Int = 0) throws -> TileKey {
        try TileKey(source: source, z: 14, x: number, y: 0)
    }

    /// Bytes that no other key has.
    private static func bytes(_ key: TileKey) -> Data { Data("\(key) \(String(repeating: "-", count: 300))".utf8) }

    private static func put(_ key: TileKey, _ store: TileStore, _ lab: Lab) throws {
        try store.put(bytes(key), for: key, metadata: metadata(key, lab))
    }

    private static func metadata(_ key: TileKey, _ lab: Lab) -> TileMetadata {
        TileMetadata(etag: "\"\(key)\"", storedAt: lab.clock.now, expires: .distantFuture)
    }

    private static func all(of source: String) throws -> EntrySelection {
        var selection = EntrySelection()
        selection.source = try SourceName(source)
        return selection
    }

    /// Puts the tiles of both sources so that the other one is numbered first in the next checkpoint, and compacts twice.
    ///
    /// A store that looks only afterwards cannot follow the journals: it has to load.
    private static func overtake(by writer: TileStore, _ lab: Lab, first: String) throws {
        // Of the places that are free, the one that was freed last is taken first: so that is to be the one in front.
        let places = try sources.map { source in
            let key = try key(source)
            return (source, writer.tables.read { t, _ in t.packed(key).flatMap { t.find($0) } } ?? 0)
        }
        for (source, _) in places.sorted(by: { $0.1 > $1.1 }) { _ = try writer.remove([key(source)]) }
        for source in [first] + sources.filter({ $0 != first }) { try put(key(source), writer, lab) }
        for _ in 0..<2 { _ = try writer.compact() }
    }

    @Test("A look-up after two reloads finds no other source's tile")
    func aLookUpAfterTwoReloadsFindsNoOtherSourcesTile() throws {
        let lab = try Lab()
        let writer = try lab.another()
        for source in Self.sources { try Self.put(Self.key(source), lab.store, lab) }
        for round in 0..<40 {
            let source = Self.sources[round % 2]
            let key = try Self.key(source)
            // Both ways to look up: that of reads, and that of puts.
            #expect(try lab.store.read(key)?.data == Self.bytes(key))
            try Self.put(key, lab.store, lab)
            let loads = lab.store.commit.withLock { $0.loads }
            for _ in 0..<2 {
                try Self.overtake(by: writer, lab, first: Self.sources[(round + 1) % 2])
                try lab.store.catchUp()
            }
            #expect(lab.store.commit.withLock { $0.loads } == loads + 2, "the store was to load its tables twice")
            #expect(try lab.store.read(key)?.data == Self.bytes(key), "round \(round)")
            try Self.put(key, lab.store, lab)
            #expect(try lab.store.invariantViolations() == [], "round \(round)")
            for source in Self.sources {
                let key = try Self.key(source)
                #expect(try writer.read(key)?.data == Self.bytes(key), "round \(round)")
            }
        }
    }

    @Test(
        "A walk over the entries shows each of them once, though the tables are replaced meanwhile",
        arguments: [
            TileStore.EntryOrder.key, .recency,
        ])
    func aWalkOutlivesTheTables(order: TileStore.EntryOrder) throws {
        let lab = try Lab()
        let writer = try lab.another()
        var all: Set<TileKey> = []
        for number in 0..<20 {
            for source in ["z"] + Self.sources {
                let keys = [
                    try Self.key(source, number), try TileKey("\(source)/5/\(number)/1@2x.png"),
                    try TileKey("\(source):glyphs/\(number).pbf"),
                ]
                for key in keys { try Self.put(key, lab.store, lab) }
                all.formUnion(keys)
            }
        }
        var seen: [TileKey] = []
        try lab.store.forEachEntry(in: order) { entry in
            seen.append(entry.key)
            #expect(entry.metadata.etag == "\"\(entry.key)\"")
            guard seen.count % 40 == 1 else { return }
            // The names of the first source go, and all numbers with them.
            _ = try writer.remove(Self.all(of: "z"))
            for key in all where key.source.description == "z" && !seen.contains(key) { all.remove(key) }
            try Self.overtake(by: writer, lab, first: Self.sources[seen.count / 40 % 2])
            try lab.store.catchUp()
        }
        #expect(seen.count == all.count && Set(seen) == all)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A removal and an expiry go on when the tables are replaced between two holds of the lock")
    func aRemovalOutlivesTheTables() throws {
        let lab = try Lab()
        let writer = try lab.another()
        let count = 600
        for number in 0..<count {
            for source in Self.sources { try Self.put(Self.key(source, number), lab.store, lab) }
        }
        func intrude(after holds: Int, first: String) {
            lab.files.beforeLocking(after: holds) {
                do { try Self.overtake(by: writer, lab, first: first) } catch { Issue.record(error) }
            }
        }
        for (holds, source) in [(1, "b"), (2, "a"), (3, "b")] {
            intrude(after: holds, first: source)
            #expect(try lab.store.expire(Self.all(of: "a")) > 0)
            // The first tile of each was put again, before or after its turn.
            for number in 1..<count {
                for source in Self.sources {
                    let entry = try #require(try lab.store.entry(for: Self.key(source, number)))
                    #expect(entry.metadata.isStale(at: lab.clock.now) == (source == "a"), "\(entry.key)")
                }
            }
            for number in 0..<count { try Self.put(Self.key("a", number), lab.store, lab) }
        }
        intrude(after: 2, first: "b")
        _ = try lab.store.remove(Self.all(of: "a"))
        var left = 0
        try lab.store.forEachEntry { entry in
            if entry.key.tile?.x == 0 { return }
            #expect(entry.key.source.description == "b")
            left += 1
        }
        #expect(left == count - 1)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A check of all blobs leaves none out because the tables were replaced meanwhile")
    func aCheckOutlivesTheTables() throws {
        let lab = try Lab()
        let writer = try lab.another()
        let (count, slice) = (4300, 4096)
        func tiles(_ range: Range<Int>) throws -> [TilePut] {
            try range.map {
                let key = try Self.key("a", $0)
                return TilePut(key: key, data: Data("\(key)".utf8), metadata: Self.metadata(key, lab))
            }
        }
        try lab.store.put(tiles(0..<count))
        let last = try tiles(count - 1..<count)[0]
        let digest = try #require(last.data).withUnsafeBytes { BlobDigest(hashing: $0) }
        lab.disk.corrupt(digest.path) { $0[0] ^= 1 }
        var isOvertaken = false
        let report = try lab.store.verify { _, _ in
            guard !isOvertaken else { return }
            isOvertaken = true
            do {
                // What was checked goes: in the new tables the rest lies where that has been.
                _ = try writer.remove((0..<slice).map { try Self.key("a", $0) })
                for _ in 0..<2 { _ = try writer.compact() }
                try lab.store.catchUp()
            } catch { Issue.record(error) }
        }
        #expect(report.damaged == [digest])
    }

    @Test("A compaction removes nothing from a folder that has taken its own one's place")
    func aCompactionTouchesNoOtherFolder() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        let compaction = try #require(try lab.store.beginCompaction())
        while try compaction.step() {}
        // The first hold puts the checkpoint in place, the second one removes what it replaces.
        lab.files.beforeLocking(after: 1) {
            do {
                lab.disk.remove("")
                let other = try lab.another()
                try other.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
                try other.close()
            } catch { Issue.record(error) }
        }
        _ = try compaction.finish()
        let again = try lab.another()
        #expect(try again.read(lab.key(7))?.data == lab.bytes(7))
        #expect(try again.verify().ok)
    }

    @Test("An eviction under way keeps to limits that were raised meanwhile")
    func anEvictionKeepsToTheLimitsOfTheMoment() throws {
        let disk = SimulatedDisk(clock: ManualClock())
        let (clock, files) = (ManualClock(), SimulatedFileSystem(disk))
        var environment = clock.environment(files)
        // Every hold has used up its time when it looks at the clock.
        environment.ticks = {
            clock.advance(nanoseconds: 6_000_000)
            return clock.ticks
        }
        let store = try TileStore(environment: environment, configuration: Lab.plain)
        let other = try TileStore(
            environment: clock.environment(SimulatedFileSystem(disk), seed: 2), configuration: Lab.plain)
        let count = 1000
        try store.put(
            (0..<count).map {
                TilePut(
                    key: try Self.key("a", $0), data: Data("\($0)".utf8),
                    metadata: TileMetadata(storedAt: clock.now, expires: .distantFuture))
            })
        // One hold records the limit; the third one after it comes when the limit is another one.
        files.beforeLocking(after: 3) {
            do { try other.setLimits(StoreLimits(capacity: nil)) } catch { Issue.record(error) }
        }
        try store.setLimits(StoreLimits(capacity: 10 * disk.blockSize))
        #expect(try store.snapshot().entries.count > count / 2)
        #expect(try store.snapshot().entries.count < count)
        #expect(try store.invariantViolations() == [])
    }

    @Test("A key without text finds nothing in tables that were loaded anew")
    func aKnownKeyEndsWithItsTables() throws {
        let lab = try Lab()
        let writer = try lab.another()
        for source in Self.sources { try Self.put(Self.key(source), lab.store, lab) }
        var room = [UInt8](repeating: 0, count: KnownEntry.tagRoom)
        func find(_ key: KnownKey) throws -> KnownEntry? {
            try room.withUnsafeMutableBytes { try lab.store.find(key, at: lab.clock.now, tag: $0) }
        }
        for round in 0..<10 {
            let known = try #require(lab.store.known(Self.key("a")))
            let fields = try #require(lab.store.fields(under: known))
            #expect(try find(known) != nil)
            #expect(try lab.store.has(fields, under: known))
            try Self.overtake(by: writer, lab, first: Self.sources[round % 2])
            try lab.store.catchUp()
            #expect(try find(known) == nil && lab.store.fields(under: known) == nil)
            #expect(try !lab.store.has(fields, under: known))
            // Numbers of names may stand for others now.
            #expect(try find(known.tile(z: 0, x: 0, y: 0)) == nil)
        }
    }

    // MARK: What grows

    @Test("Digests that others have dropped are not kept by a store that only reads", arguments: [true, false])
    func digestsOfOthersAreForgotten(readOnly: Bool) throws {
        let lab = try Lab()
        var configuration = Lab.plain
        configuration.readOnly = readOnly
        let reader = try lab.another(configuration)
        for round in 0..<5 {
            try lab.put(0..<40)
            _ = try lab.store.remove((0..<40).map { lab.key($0) })
            try reader.catchUp()
            #expect(reader.tables.read { t, _ in t.released.isEmpty }, "round \(round)")
        }
        // A writer's own are unlinked as before.
        #expect(try lab.store.verify().orphans == [])
        #expect(try reader.invariantViolations() == [])
    }
}
