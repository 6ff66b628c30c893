import Foundation
import Testing
import TileStoreTesting
@testable import TileStore

@Suite(.timeLimit(.minutes(60)), .ownCores)
struct CompactionTests {
    /// So many puts make the store compact by itself; who asks for it meanwhile waits for that, and is not sent away.
    @Test func askingWhileTheStoreCompactsByItselfIsNoError() throws {
        let folder = TemporaryFolder()
        let store = try TileStore(at: folder.path)
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: "image/png"), storedAt: Timestamp(seconds: 1_700_000_000),
            expires: Timestamp(seconds: 1_800_000_000))
        let data = Data(repeating: 7, count: 100)
        // A line has some 190 bytes, and compaction is due at 8 MiB.
        for batch in 0..<64 {
            try store.put(
                (0..<1024).map {
                    TilePut(key: try TileKey(source: "s", z: 16, x: batch, y: $0), data: data, metadata: metadata)
                })
        }
        #expect(try store.compact().entries == 65_536)
        #expect(try store.compact().entries == 65_536)
        try store.close()
    }

    /// Whoever followed another process's compaction took it for still to be done: each of them wrote a checkpoint.
    @Test func oneCompactionIsEnoughForAllProcesses() throws {
        let folder = TemporaryFolder()
        let stores = try (0..<3).map { _ in try TileStore(at: folder.path) }
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: "image/png"), storedAt: Timestamp(seconds: 1_700_000_000),
            expires: Timestamp(seconds: 1_800_000_000))
        let data = Data(repeating: 7, count: 100)
        for batch in 0..<64 {
            try stores[0].put(
                (0..<1024).map {
                    TilePut(key: try TileKey(source: "s", z: 16, x: batch, y: $0), data: data, metadata: metadata)
                })
        }
        stores[0].maintenance?.waitForPending()
        let generation = stores[0].commit.withLock { $0.generation }
        #expect(generation > 0)
        for row in 0..<6 {
            let store = stores[row % 3]
            try store.put(data, for: try TileKey(source: "s", z: 3, x: 0, y: row), metadata: metadata)
            store.maintenance?.waitForPending()
        }
        for store in stores {
            try store.catchUp()
            #expect(store.commit.withLock { $0.generation } == generation)
            #expect(store.commit.withLock { !store.isCompactionDue($0) })
        }
        for store in stores { try store.close() }
    }

    /// What is in `manifest/`, without the reserve.
    private static func manifest(_ lab: Lab) -> [String] {
        lab.disk.names("manifest").filter { $0 != "reserve" }.sorted()
    }

    private static func configuration(durable: Bool, images: Bool) -> StoreConfiguration {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        configuration.indexImages = images ? .always : .never
        return configuration
    }

    /// The next compaction wrote the checkpoint of the journal that the one before had begun, and kept that journal: the
    /// folder had everything twice.
    @Test(arguments: [false, true], [false, true])
    func aCompactionAfterOneThatWasGivenUpKeptALongJournal(durable: Bool, images: Bool) throws {
        let lab = try Lab(Self.configuration(durable: durable, images: images))
        try lab.put(0..<20)
        let follower = try lab.another()
        var readOnly = Lab.plain
        readOnly.readOnly = true
        let reader = try lab.another(readOnly)
        let begun = try #require(try lab.store.beginCompaction())
        _ = try begun.step(entries: 7)
        begun.abandon()
        try lab.put(10..<200)
        #expect(try lab.store.compact().entries == 200)
        #expect(try #require(lab.disk.contents(lab.journal)).count <= 256)
        let expected =
            ["checkpoint-2.json"] + (images ? ["index-2.bin"] : []) + ["journal-2.jsonl"]
        #expect(Self.manifest(lab) == expected)
        for store in [follower, reader] {
            try store.catchUp()
            #expect(difference(try store.snapshot(), try lab.store.snapshot()) == nil)
            #expect(try store.read(lab.key(199))?.data == lab.bytes(199))
        }
        try follower.put(lab.bytes(300), for: lab.key(300), metadata: lab.metadata())
        try lab.store.catchUp()
        let before = try lab.store.snapshot()
        try lab.reopen()
        #expect(difference(try lab.store.snapshot(), before) == nil)
        #expect(try lab.store.invariantViolations() == [])
        for store in [follower, reader] { store.simulateKill() }
    }

    /// Each compaction that was given up begins a journal, which is a file that every opening reads.
    @Test(arguments: [false, true])
    func compactionsThatAreGivenUpLeaveABoundedNumberOfJournals(durable: Bool) throws {
        let lab = try Lab(Self.configuration(durable: durable, images: false))
        let follower = try lab.another()
        var readOnly = Lab.plain
        readOnly.readOnly = true
        let reader = try lab.another(readOnly)
        for round in 0..<40 {
            try lab.put(round * 5..<round * 5 + 7)
            let begun = try #require(try lab.store.beginCompaction())
            _ = try begun.step(entries: 1 + round)
            begun.abandon()
            if round % 13 == 5 { try lab.reopen() }
            if round % 17 == 3 { try follower.catchUp() }
        }
        #expect(Self.manifest(lab).count <= 2 + Int(Compaction.mostUnfinished))
        var always = lab.configuration
        always.indexImages = .always
        let imaging = try lab.another(always)
        try imaging.close()
        let before = try lab.store.snapshot()
        for store in [follower, reader, try lab.another(always)] {
            try store.catchUp()
            #expect(difference(try store.snapshot(), before) == nil)
            if store !== follower, store !== reader { store.simulateKill() }
        }
        #expect(try lab.store.compact().entries == 202)
        #expect(try #require(lab.disk.contents(lab.journal)).count <= 256)
        #expect(Self.manifest(lab).count == 2)
        for store in [follower, reader] {
            try store.catchUp()
            #expect(difference(try store.snapshot(), before) == nil)
            store.simulateKill()
        }
        try lab.reopen()
        #expect(difference(try lab.store.snapshot(), before) == nil)
    }

    /// Imports that each took less time than the compaction that they began: the journal grew with every one.
    @Test func processesThatLivedShorterThanACompactionNeverGotOneDone() throws {
        let lab = try Lab(Self.configuration(durable: false, images: false))
        // Each is a set of response fields of its own, of 64 KiB.
        let long = String(repeating: "x", count: 65_000)
        try lab.store.put(
            (0..<280).map { number in
                var metadata = lab.metadata()
                metadata.response = ResponseFields(headers: [.init(name: "x-long", value: "\(number)" + long)])
                return TilePut(key: lab.key(number), data: nil, metadata: metadata)
            })
        #expect(try #require(lab.disk.contents(lab.journal)).count > 16 << 20)
        var environment = lab.clock.environment(SimulatedFileSystem(lab.disk), seed: 77)
        environment.background = true
        let importing = try TileStore(environment: environment, configuration: lab.configuration)
        try importing.put(lab.bytes(1000), for: lab.key(1000), metadata: lab.metadata())
        try importing.close()
        #expect(Self.manifest(lab) == ["checkpoint-1.json", "journal-1.jsonl"])
        #expect(try #require(lab.disk.contents(lab.journal)).count <= 256)
        try lab.store.catchUp()
        #expect(try lab.store.statistics().entries == 281)
    }
}
