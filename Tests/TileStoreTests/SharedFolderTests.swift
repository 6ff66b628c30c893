import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Several stores and threads on one folder, and what one must not do to what another has acknowledged.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct SharedFolderTests {
    enum Way: CaseIterable { case body, put }

    private static func configuration(durable: Bool) -> StoreConfiguration {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        return configuration
    }

    private static func body(_ bytes: Data, in store: TileStore) throws -> BodyWriter {
        let writer = try store.beginBody(limit: 1 << 24, inMemoryUpTo: 0)
        try bytes.withUnsafeBytes { try writer.append($0) }
        return writer
    }

    private static func store(_ way: Way, _ bytes: Data, _ number: Int, in store: TileStore, _ lab: Lab) throws {
        switch way {
        case .body: try body(bytes, in: store).commit(for: lab.key(number), metadata: lab.metadata())
        case .put: try store.put(bytes, for: lab.key(number), metadata: lab.metadata())
        }
    }

    @Test(arguments: Way.allCases)
    func aRelaxedStoreReplacedASyncedBlobByAnUnsyncedOne(way: Way) throws {
        for seed in 0..<20 as Range<UInt64> {
            let clock = ManualClock()
            let disk = SimulatedDisk(clock: clock, recordsChanges: true)
            let lab = try Lab(Self.configuration(durable: true), disk: disk)
            let relaxed = try lab.another(Self.configuration(durable: false))
            let bytes = lab.bytes(1, size: 200_000)
            // The relaxed store has not read of it when it stages its own file.
            try lab.store.put(bytes, for: lab.key(1), metadata: lab.metadata())
            try Self.store(way, bytes, 2, in: relaxed, lab)
            var random = SplitMix64(seed: seed)
            relaxed.simulateKill()
            disk.powerCut(using: &random)
            try lab.reopen(bootID: "boot-2")
            #expect(try lab.store.read(lab.key(1))?.data == bytes)
        }
    }

    @Test(arguments: [5000, 200_000], Way.allCases)
    func aNoteThatABlobIsSyncedOutlivedItsFile(size: Int, way: Way) throws {
        for seed in 0..<20 as Range<UInt64> {
            let clock = ManualClock()
            let disk = SimulatedDisk(clock: clock, recordsChanges: true)
            let lab = try Lab(Self.configuration(durable: true), disk: disk)
            let relaxed = try lab.another(Self.configuration(durable: false))
            // There is a mark: unsynced blobs may be there.
            try relaxed.put(lab.bytes(50), for: lab.key(50), metadata: lab.metadata())
            let bytes = lab.bytes(1, size: size)
            let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
            try lab.store.put(bytes, for: lab.key(1), metadata: lab.metadata())
            // Noted as synced.
            try lab.store.put(bytes, for: lab.key(2), metadata: lab.metadata())
            // Damaged, and mended by the relaxed store.
            disk.remove(digest.path)
            lab.clock.advance(seconds: 2)
            clock.advance(seconds: 2)
            try Self.store(way, bytes, 3, in: relaxed, lab)
            // Acknowledged by the durable store once more.
            try lab.store.put(bytes, for: lab.key(4), metadata: lab.metadata())
            var random = SplitMix64(seed: seed)
            relaxed.simulateKill()
            disk.powerCut(using: &random)
            try lab.reopen(bootID: "boot-2")
            #expect(try lab.store.read(lab.key(4))?.data == bytes)
        }
    }

    @Test(arguments: [(false, 1000), (false, 200_000), (false, 300_000), (true, 1000)], Way.allCases)
    func nothingStagedGotIntoAFolderThatWasMadeAnew(kind: (durable: Bool, size: Int), way: Way) throws {
        let lab = try Lab()
        let folder = TemporaryFolder()
        func open(_ seed: UInt64) throws -> TileStore {
            try TileStore(
                environment: lab.clock.environment(DiskFileSystem(location: folder.path), seed: seed),
                configuration: Self.configuration(durable: kind.durable))
        }
        let store = try open(1)
        try store.put(lab.bytes(1), for: lab.key(1), metadata: lab.metadata())
        try FileManager.default.removeItem(atPath: folder.path)
        let other = try open(2)
        lab.clock.advance(seconds: 20)
        try Self.store(way, lab.bytes(5, size: kind.size), 5, in: store, lab)
        #expect(try other.read(lab.key(5))?.data == lab.bytes(5, size: kind.size))
        try store.close()
        try other.close()
    }

    /// The record which says that blobs may not be on the disk was synced, but not the name of the journal that it is in, nor
    /// what leads there: a compaction had just begun that journal.
    @Test func aPowerCutTookTheMarkOfUnsyncedBlobsWithItsJournal() throws {
        for seed in 0..<60 as Range<UInt64> {
            let clock = ManualClock()
            let disk = SimulatedDisk(clock: clock, recordsChanges: true)
            var configuration = Self.configuration(durable: true)
            // What nobody doubts is not hashed.
            configuration.digestCheck = .never
            let lab = try Lab(configuration, disk: disk)
            let bytes = lab.bytes(1, size: 5000)
            try lab.store.put(bytes, for: lab.key(1), metadata: lab.metadata())
            configuration.durability = .relaxed
            let relaxed = try lab.another(configuration)
            let compaction = try #require(try relaxed.beginCompaction())
            // The same bytes go and come back: their file is another one now, which has not been synced.
            _ = try relaxed.remove([lab.key(1)])
            try relaxed.put(bytes, for: lab.key(2), metadata: lab.metadata())
            relaxed.simulateKill()
            var random = SplitMix64(seed: seed)
            disk.powerCut(using: &random)
            try lab.reopen(bootID: "boot-2")
            for number in [1, 2] {
                if let tile = try lab.store.read(lab.key(number)) { #expect(tile.data == bytes, "seed \(seed)") }
            }
            compaction.abandon()
        }
    }

    /// Blobs of a batch were written before the record which says that blobs may not be on the disk: a power cut in between
    /// left other bytes in the place of a blob that was believed.
    @Test func blobsWrittenAheadWereThereBeforeTheMark() throws {
        for seed in 0..<300 as Range<UInt64> {
            var random = SplitMix64(seed: seed)
            let clock = ManualClock()
            let disk = SimulatedDisk(clock: clock, recordsChanges: true)
            var configuration = Self.configuration(durable: true)
            configuration.digestCheck = .never
            let lab = try Lab(configuration, disk: disk)
            try lab.put(0..<1)
            configuration.durability = .relaxed
            let files = SimulatedFileSystem(disk)
            let relaxed = try TileStore(
                environment: lab.clock.environment(files, seed: 3), configuration: configuration)
            // The same bytes go and come back, with others.
            _ = try relaxed.remove([lab.key(0)])
            files.crash(at: random.below(25), torn: random.oneIn(2))
            let batch = (0..<6).map { TilePut(key: lab.key($0 + 1), data: lab.bytes($0), metadata: lab.metadata()) }
            // Mostly it dies on the way.
            do { try relaxed.put(batch) } catch { #expect(error is StoreError) }
            relaxed.simulateKill()
            disk.powerCut(using: &random)
            try lab.reopen(bootID: "boot-2")
            for number in 0..<7 {
                let expected = lab.bytes(max(0, number - 1))
                if let tile = try lab.store.read(lab.key(number)) { #expect(tile.data == expected, "seed \(seed)") }
            }
        }
    }

    @Test(arguments: [false, true], Way.allCases)
    func aPutThatFailedLeftABlobThatNothingCounts(durable: Bool, way: Way) throws {
        for number in [Int32(5), 28] {
            for operation in 0..<200 {
                let lab = try Lab(Self.configuration(durable: durable))
                try lab.put(0..<2)
                lab.files.fail(.init(at: operation, number: number))
                do { try Self.store(way, lab.bytes(9, size: 5000), 9, in: lab.store, lab) } catch {
                    // What it is does not matter here; what it leaves does.
                }
                let struck = lab.files.hasStruck
                lab.files.fail(nil)
                guard struck else { break }
                #expect(try lab.store.invariantViolations() == [], "error \(number) at \(operation)")
                #expect(lab.disk.names("staging").isEmpty, "error \(number) at \(operation)")
            }
        }
    }

    @Test(arguments: [false, true])
    func aPutThatWasRefusedFailedThoseWhoWaitedWithIt(innocentFirst: Bool) throws {
        let clock = ManualClock()
        let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
        var environment = clock.environment(files, seed: 5)
        environment.bounds.names = 2
        let store = try TileStore(environment: environment, configuration: Lab.plain)
        let metadata = TileMetadata(storedAt: clock.now, expires: clock.now.adding(seconds: 3600))
        try store.put(Data([1]), for: TileKey("a/1/0/0"), metadata: metadata)
        try store.put(Data([1]), for: TileKey("b/1/0/0"), metadata: metadata)
        let results = Locked<[String: String]>([:])
        let group = DispatchGroup()
        func queue(_ name: String, _ key: String, as place: Int) {
            group.enter()
            Thread.detachNewThread {
                do {
                    try store.put(Data(key.utf8), for: TileKey(key), metadata: metadata)
                    results.withLock { $0[name] = "stored" }
                } catch { results.withLock { $0[name] = "\(error)" } }
                group.leave()
            }
            // Behind the one who holds the lock.
            while store.queue.count < place { Thread.sleep(forTimeInterval: 0) }
        }
        files.beforeLocking {
            queue(innocentFirst ? "innocent" : "refused", innocentFirst ? "a/3/1/1" : "c/1/0/0", as: 1)
            queue(innocentFirst ? "refused" : "innocent", innocentFirst ? "c/1/0/0" : "a/3/1/1", as: 2)
        }
        try store.put(Data([9]), for: TileKey("a/2/0/0"), metadata: metadata)
        group.wait()
        #expect(results.withLock { $0["innocent"] } == "stored")
        #expect(results.withLock { $0["refused"] }?.contains("tooMany") == true)
    }
}
