import Foundation
import Testing
import TileStore
import TileStoreTesting

/// The cache's folder, or its manifest, is deleted while stores have it open.
@Suite(.timeLimit(.minutes(30)), .ownCores)
struct RemovedFolderTests {
    /// A store looks every 10 ms whether its files still have their names.
    private static func wait(_ lab: Lab) { lab.clock.advance(nanoseconds: 50_000_000) }

    @Test func aReaderWhoMayNotWriteFollowsIntoAFolderMadeAnew() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        var configuration = Lab.plain
        configuration.readOnly = true
        let reader = try lab.another(configuration)
        #expect(try reader.read(lab.key(0)) != nil)
        lab.disk.remove("")
        Self.wait(lab)
        #expect(try reader.read(lab.key(0)) == nil)
        let other = try lab.another()
        try other.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
        Self.wait(lab)
        #expect(try reader.read(lab.key(7))?.data == lab.bytes(7))
        #expect(try reader.entry(for: lab.key(0)) == nil)
        #expect(try reader.snapshot() == other.snapshot())
    }

    /// It had read that the journal went on in another one, and waited for that for ever.
    @Test func aReaderBehindARotationStayedInAFolderThatWasRemoved() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        var configuration = Lab.plain
        configuration.readOnly = true
        let reader = try lab.another(configuration)
        #expect(try reader.read(lab.key(0)) != nil)
        try #require(try lab.store.beginCompaction()).abandon()
        lab.disk.remove("")
        let other = try lab.another()
        try other.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
        Self.wait(lab)
        #expect(try reader.read(lab.key(7))?.data == lab.bytes(7))
        #expect(try reader.entry(for: lab.key(0)) == nil)
        #expect(try reader.snapshot() == other.snapshot())
    }

    /// It took a journal for the one that it waited for, or made it: its puts were in none that others read.
    @Test(arguments: [false, true])
    func aWriterBehindARotationWentOnInAManifestThatWasMadeAnew(isThere: Bool) throws {
        let lab = try Lab()
        try lab.put(0..<5)
        let behind = try lab.another()
        try #require(try lab.store.beginCompaction()).abandon()
        lab.disk.remove("manifest")
        Self.wait(lab)
        let other = try lab.another()
        try other.put(lab.bytes(6), for: lab.key(6), metadata: lab.metadata())
        if isThere { try #require(try other.beginCompaction()).abandon() }
        try behind.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
        try other.catchUp()
        for store in [behind, other, try lab.another()] {
            #expect(try store.read(lab.key(6))?.data == lab.bytes(6))
            #expect(try store.read(lab.key(7))?.data == lab.bytes(7))
            #expect(try store.verify().ok)
        }
    }

    @Test func aReaderOnDiskFollowsIntoAFolderMadeAnew() throws {
        let lab = try Lab()
        let folder = TemporaryFolder()
        func open(_ seed: UInt64, readOnly: Bool) throws -> TileStore {
            var configuration = Lab.plain
            configuration.readOnly = readOnly
            return try TileStore(
                environment: lab.clock.environment(DiskFileSystem(location: folder.path), seed: seed),
                configuration: configuration)
        }
        let first = try open(1, readOnly: false)
        try first.put(lab.bytes(0), for: lab.key(0), metadata: lab.metadata())
        let reader = try open(2, readOnly: true)
        #expect(try reader.read(lab.key(0)) != nil)
        try first.close()
        try FileManager.default.removeItem(atPath: folder.path)
        let other = try open(3, readOnly: false)
        try other.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
        Self.wait(lab)
        #expect(try reader.read(lab.key(7))?.data == lab.bytes(7))
        #expect(try reader.entry(for: lab.key(0)) == nil)
        try reader.close()
        try other.close()
    }

    @Test("What is put after the manifest was deleted is kept", arguments: [false, true])
    func putsAfterTheManifestWasDeletedAreKept(durable: Bool) throws {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        let lab = try Lab(configuration)
        try lab.put(0..<5)
        lab.disk.remove("manifest")
        Self.wait(lab)
        // One with the bytes of a blob that has lost its entries.
        try lab.put(3..<7)
        #expect(try lab.store.entry(for: lab.key(0)) == nil)
        try lab.reopen()
        for number in 3..<7 { #expect(try lab.store.read(lab.key(number))?.data == lab.bytes(number)) }
        _ = try lab.store.verify(repair: true)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test func twoStoresGoOnTogetherAfterTheManifestWasDeleted() throws {
        let lab = try Lab()
        var configuration = Lab.plain
        configuration.readOnly = true
        let reader = try lab.another(configuration)
        try lab.put(0..<5)
        let other = try lab.another()
        lab.disk.remove("manifest")
        Self.wait(lab)
        for number in 0..<5 {
            try lab.put((10 + number)..<(11 + number))
            try other.put(lab.bytes(20 + number), for: lab.key(20 + number), metadata: lab.metadata())
        }
        Self.wait(lab)
        #expect(try other.read(lab.key(10))?.data == lab.bytes(10))
        #expect(try lab.store.read(lab.key(24))?.data == lab.bytes(24))
        #expect(try reader.read(lab.key(24))?.data == lab.bytes(24))
        #expect(try lab.store.snapshot() == other.snapshot())
    }

    @Test func aJournalThatACompactionReplacedIsNotMissed() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        var configuration = Lab.plain
        configuration.readOnly = true
        let reader = try lab.another(configuration)
        let other = try lab.another()
        for round in 1..<4 {
            _ = try other.compact()
            Self.wait(lab)
            try lab.put((round * 10)..<(round * 10 + 2))
            #expect(try reader.read(lab.key(round * 10))?.data == lab.bytes(round * 10))
            #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(0))
        }
        try reader.catchUp()
        #expect(try reader.snapshot() == lab.store.snapshot())
        #expect(try lab.store.invariantViolations() == [])
    }
}
