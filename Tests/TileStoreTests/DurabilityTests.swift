import Foundation
import Testing
import TileStore
import TileStoreTesting

/// What a power cut, a full disk and a start of the machine that cannot be told leave.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct DurabilityTests {
    private func configuration(durable: Bool) -> StoreConfiguration {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        configuration.digestCheck = .never
        return configuration
    }

    @Test("A durable put of bytes that a relaxed store wrote survives a power cut", arguments: 0..<60 as Range<UInt64>)
    func bytesThatARelaxedStoreWrote(seed: UInt64) throws {
        let disk = SimulatedDisk(clock: ManualClock(), recordsChanges: true)
        let lab = try Lab(configuration(durable: false), disk: disk)
        try lab.put(0..<4)
        let durable = try lab.another(configuration(durable: true))
        for number in 0..<4 { try durable.put(lab.bytes(number), for: lab.key(100 + number), metadata: lab.metadata()) }
        durable.simulateKill()
        var random = SplitMix64(seed: seed)
        disk.powerCut(using: &random)
        try lab.reopen(bootID: "boot-2")
        for number in 0..<4 { #expect(try lab.store.read(lab.key(100 + number))?.data == lab.bytes(number)) }
    }

    @Test(
        "A durable store that is closed does not call clean what a relaxed one wrote",
        arguments: 0..<60 as Range<UInt64>)
    func closingCleanAfterARelaxedStore(seed: UInt64) throws {
        let disk = SimulatedDisk(clock: ManualClock(), recordsChanges: true)
        let lab = try Lab(configuration(durable: true), disk: disk)
        let relaxed = try lab.another(configuration(durable: false))
        for number in 0..<6 { try relaxed.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata()) }
        try lab.store.close()
        // Written behind a note that all is clean.
        for number in 6..<9 { try relaxed.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata()) }
        relaxed.simulateKill()
        var random = SplitMix64(seed: seed)
        disk.powerCut(using: &random)
        try lab.reopen(bootID: "boot-2")
        for number in 0..<9 {
            let data = try lab.store.read(lab.key(number))?.data
            #expect(data == nil ? number >= 6 : data == lab.bytes(number), "\(number)")
        }
    }

    @Test(
        "What was stored before a sync survives a power cut in both modes, others' tiles too",
        arguments: 0..<60 as Range<UInt64>)
    func whatWasStoredBeforeASync(seed: UInt64) throws {
        let disk = SimulatedDisk(clock: ManualClock(), recordsChanges: true)
        let lab = try Lab(configuration(durable: seed % 2 == 1), disk: disk)
        let relaxed = try lab.another(configuration(durable: false))
        try lab.put(0..<6)
        for number in 3..<9 { try relaxed.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata()) }
        if seed % 3 == 0 { _ = try lab.store.compact() }
        try lab.store.sync()
        // The power goes while somebody writes on.
        for number in 20..<23 { try relaxed.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata()) }
        relaxed.simulateKill()
        var random = SplitMix64(seed: seed)
        disk.powerCut(using: &random)
        try lab.reopen(bootID: "boot-2")
        for number in 0..<9 { #expect(try lab.store.read(lab.key(number))?.data == lab.bytes(number), "\(number)") }
    }

    @Test("A sync that the disk refuses is an error, on whatever operation, and the next one works")
    func failingWhileSyncing() throws {
        let lab = try Lab(configuration(durable: false))
        try lab.put(0..<4)
        var ended = false
        for operation in 0..<1000 where !ended {
            try lab.put(operation % 4..<4)
            lab.files.fail(SimulatedFileSystem.Fault(at: operation, number: EIO))
            do {
                try lab.store.sync()
                ended = !lab.files.hasStruck
            } catch {
                #expect(error is StoreError, "operation \(operation): \(error)")
                #expect(lab.files.hasStruck)
            }
            lab.files.fail(nil)
        }
        #expect(ended)
        try lab.store.sync()
    }

    @Test("A sync of a real folder, of a store open for reading alone, and of one that is closed")
    func syncOfRealFolders() throws {
        let folder = TemporaryFolder()
        let store = try TileStore(at: folder.path)
        let metadata = TileMetadata(storedAt: Timestamp(seconds: 1), expires: Timestamp(seconds: 2))
        try store.put(Data("a".utf8), for: TileKey("w/0/0/0"), metadata: metadata)
        try store.sync()
        var configuration = StoreConfiguration()
        configuration.readOnly = true
        try TileStore(at: folder.path, configuration: configuration).sync()
        try store.close()
        #expect(throws: StoreError.self) { try store.sync() }
    }

    @Test("A durable store alone writes no bytes twice and syncs nothing twice")
    func durableAlone() throws {
        let lab = try Lab(configuration(durable: true))
        try lab.put(0..<3)
        lab.clock.advance(seconds: 5)
        lab.files.fail(nil)
        try lab.store.put(lab.bytes(0), for: lab.key(50), metadata: lab.metadata())
        // The record is written and synced; nothing else may need space.
        #expect(lab.files.spaceOperations == 2)
        let text = String(decoding: try #require(lab.disk.contents(lab.journal)), as: UTF8.self)
        #expect(!text.contains("\"boot\""))
    }

    @Test(
        "Where the machine's start cannot be told, blobs of another start are hashed",
        arguments: [nil, "boot-1"] as [String?],
        [nil, "boot-2"] as [String?])
    func unknownStart(first: String?, later: String?) throws {
        let clock = ManualClock()
        let disk = SimulatedDisk(clock: clock)
        func open(_ bootID: String?) throws -> TileStore {
            try TileStore(
                environment: clock.environment(SimulatedFileSystem(disk), bootID: bootID),
                configuration: configuration(durable: false))
        }
        var store = try open(first)
        let key = try TileKey("a/0/0/0")
        let bytes = Data("tile".utf8)
        try store.put(bytes, for: key, metadata: TileMetadata(storedAt: clock.now, expires: clock.now))
        store.simulateKill()
        disk.corrupt(bytes.withUnsafeBytes { BlobDigest(hashing: $0) }.path) { $0[0] ^= 1 }
        store = try open(later)
        #expect(try store.read(key) == nil)
        store.simulateKill()
    }

    @Test(
        "After an append of which the rest could not be cut off, no line is appended behind it",
        arguments: [false, true])
    func tornTailThatCannotBeCut(durable: Bool) throws {
        for operation in 0..<40 {
            let lab = try Lab(configuration(durable: durable))
            try lab.put(0..<6)
            for number in 0..<3 { _ = try lab.store.read(lab.key(number)) }
            // The record of the uses is torn, and cutting fails; the eviction that follows goes on in the same hold.
            lab.files.fail(
                SimulatedFileSystem.Fault(at: operation, number: ENOSPC, scope: .space, short: true, cutsFail: 1))
            do { _ = try lab.store.evict(entries: 2) } catch { #expect(error is StoreError) }
            let hasStruck = lab.files.hasStruck
            lab.files.fail(nil)
            let before = try lab.store.snapshot()
            try lab.put(20..<22)
            let after = try lab.store.snapshot()
            #expect(after.entries.count == before.entries.count + 2)
            try lab.reopen()
            #expect(try lab.store.snapshot() == after, "operation \(operation)")
            #expect(try lab.store.verify().journalDamage == 0, "operation \(operation)")
            if !hasStruck { return }
        }
        Issue.record("the eviction never came to its end")
    }

    @Test("A store whose folder is replaced makes its fingerprints with the new folder's salt")
    func saltOfAReplacedFolder() throws {
        let folder = TemporaryFolder()
        let clock = ManualClock()
        func open(_ seed: UInt64) throws -> TileStore {
            try TileStore(
                environment: clock.environment(DiskFileSystem(location: folder.path), seed: seed),
                configuration: Lab.plain)
        }
        let store = try open(1)
        let old = store.fingerprint(of: "q=1")
        try FileManager.default.removeItem(atPath: folder.path)
        let other = try open(2)
        let expected = other.fingerprint(of: "q=1")
        #expect(expected != old)
        clock.advance(seconds: 1)
        let metadata = TileMetadata(storedAt: clock.now, expires: clock.now)
        try store.put(Data([1]), for: try TileKey("a/0/0/0"), metadata: metadata)
        #expect(store.fingerprint(of: "q=1") == expected)
    }
}
