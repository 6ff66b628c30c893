import Testing
import TileStore
import TileStoreTesting

/// The order of writes, one test for each rule: each fails when its rule is broken (Docs/invariants.md, "Mutations").
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct WriteOrderTests {
    @Test("Killed at any operation of an eviction, every entry still has its blob", arguments: [false, true])
    func theRecordComesBeforeTheUnlink(byEntries: Bool) throws {
        for operation in 0..<1000 {
            let lab = try Lab()
            try lab.put(0..<8)
            lab.files.crash(at: operation, torn: false)
            let finished =
                (try? byEntries ? lab.store.evict(entries: 3) : lab.store.evict(toBytes: 3 * lab.disk.blockSize)) != nil
            #expect(finished != lab.files.hasStruck, "operation \(operation)")
            try lab.reopen()
            let report = try lab.store.verify()
            #expect(report.ok, "operation \(operation): \(report)")
            #expect((3...8).contains(report.entries), "operation \(operation): \(report.entries) entries")
            if finished { return }
        }
        Issue.record("the eviction never came to its end")
    }

    @Test(
        "A torn tail is cut off before the next record, so that this one can be read",
        arguments: ["", "\n", "\n\n{\"gone\":[", "\u{0}\u{0}\u{0}", "\u{0}\n\u{0}\n"])
    func aTornTailIsCut(garbage: String) throws {
        let whole = try Lab()
        try whole.put(0..<3)
        whole.kill()
        let journal = whole.journal
        let bytes = try #require(whole.disk.contents(journal))
        let length = bytes.count - (try #require(bytes.dropLast().lastIndex(of: 10)) + 1)
        // A line that lacks only its newline would get it from garbage that begins with one.
        for missing in (garbage.hasPrefix("\n") ? 2 : 1)..<length {
            let disk = whole.disk.clone()
            disk.corrupt(journal) { $0.replaceSubrange(($0.count - missing)..., with: garbage.utf8) }
            let lab = try Lab(disk: disk)
            #expect(try lab.store.entry(for: lab.key(2)) == nil, "\(missing) bytes missing")
            try lab.put(7..<9)
            try lab.reopen()
            let keys = try lab.store.snapshot().entries.map(\.key)
            #expect(keys == [0, 1, 7, 8].map(lab.key), "\(missing) bytes missing")
            #expect(try lab.store.verify().journalDamage == 0, "\(missing) bytes missing")
        }
    }

    @Test("A compaction syncs its checkpoint before it removes the journals", arguments: 0..<40 as Range<UInt64>)
    func theCheckpointIsSyncedBeforeItCounts(seed: UInt64) throws {
        var configuration = Lab.plain
        configuration.durability = .durable
        let disk = SimulatedDisk(clock: ManualClock(), recordsChanges: true)
        let lab = try Lab(configuration, disk: disk)
        try lab.put(0..<5)
        _ = try lab.store.compact()
        try lab.put(5..<7)
        let expected = try lab.store.snapshot()
        var random = SplitMix64(seed: seed)
        disk.powerCut(using: &random)
        try lab.reopen(bootID: "boot-2")
        #expect(try lab.store.snapshot() == expected)
        #expect(try lab.store.verify().ok)
    }

    @Test("A checkpoint of tables that were loaded anew while it was written is thrown away")
    func aCheckpointOfReplacedTablesIsThrownAway() throws {
        let lab = try Lab()
        try lab.put(0..<20)
        _ = try lab.store.remove((0..<10).map(lab.key))
        _ = try lab.store.compact()
        // In memory the first ten slots are free; tables that are loaded anew have all their entries there.
        let begun = try lab.store.beginCompaction()
        let compaction = try #require(begun)
        #expect(try compaction.step(entries: 10))
        // Somebody puts back an older copy of the journal: shorter than what was read, so the tables are loaded anew.
        let journal = lab.journal
        let older = try #require(lab.disk.contents(journal))
        try lab.put(50..<51)
        lab.disk.corrupt(journal) { $0 = older }
        try lab.store.catchUp()
        #expect(try compaction.finish() == nil)
        _ = try lab.store.verify(repair: true)
        let expected = (10..<20).map(lab.key)
        #expect(try lab.store.snapshot().entries.map(\.key) == expected)
        try lab.reopen()
        #expect(try lab.store.snapshot().entries.map(\.key) == expected)
        #expect(try lab.store.compact().entries == 10)
        try lab.reopen()
        #expect(try lab.store.snapshot().entries.map(\.key) == expected)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("Fresh bytes in an old blob's place are hashed on their first read, although the old ones were")
    func freshBytesAreCheckedAnew() throws {
        var configuration = Lab.plain
        configuration.digestCheck = .first
        let lab = try Lab(configuration)
        try lab.put(0..<1)
        #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(0))
        lab.disk.remove(lab.digest(0).path)
        // What was seen of the file a moment ago is trusted for a second.
        lab.clock.advance(seconds: 2)
        try lab.store.put(lab.bytes(0), for: lab.key(1), metadata: lab.metadata())
        lab.disk.corrupt(lab.digest(0).path) { $0[7] ^= 1 }
        #expect(try lab.store.read(lab.key(1)) == nil)
        #expect(try lab.store.entry(for: lab.key(0)) == nil)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("Response fields that no entry has any more are forgotten when a new journal begins")
    func unusedFieldsAreForgotten() throws {
        let lab = try Lab()
        func put(_ type: Int, _ key: Int) throws {
            var metadata = lab.metadata()
            metadata.response = ResponseFields(mediaType: "image/\(type)")
            try lab.store.put(lab.bytes(0), for: lab.key(key), metadata: metadata)
        }
        func defined() throws -> [Substring] {
            let text = String(decoding: try #require(lab.disk.contents(lab.journal)), as: UTF8.self)
            return text.split(separator: "\n").filter { $0.hasPrefix("{\"set\":") }.map { $0.prefix { $0 != "," } }
        }
        for type in 0..<50 { try put(type, 0) }
        try put(7, 1)
        #expect(try defined().count == 50)
        _ = try lab.store.compact()
        // Those that are in use keep their numbers, 8 and 50 here; what comes back after it was forgotten gets a new one.
        for type in [7, 49, 3] { try put(type, 2) }
        #expect(try defined() == ["{\"set\":8", "{\"set\":50", "{\"set\":51"])
    }

    @Test("Uses that are not written down yet survive when another store's compactions replace the tables")
    func pendingUsesSurviveAReload() throws {
        let lab = try Lab()
        let style = try TileKey("lab:style.json")
        try lab.put(0..<6)
        try lab.store.put(lab.bytes(9), for: style, metadata: lab.metadata())
        try lab.put(10..<12)
        let other = try lab.another()
        // In the tables that are loaded anew, names and resources have other numbers.
        _ = try other.remove([lab.key(10)])
        for key in [lab.key(0), style] { _ = try lab.store.read(key) }
        for _ in 0..<2 { _ = try other.compact() }
        try lab.store.flush()
        let order = try lab.store.snapshot().entries.sorted { $0.recency < $1.recency }.map(\.key)
        #expect(order.suffix(2) == [lab.key(0), style])
        #expect(try lab.store.evict(entries: 2).removedEntries == 6)
        try other.catchUp()
        #expect(Set(try other.snapshot().entries.map(\.key)) == [lab.key(0), style])
    }
}
