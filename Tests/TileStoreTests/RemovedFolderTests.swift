import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The cache's folder, or its manifest, is deleted while stores have it open.
@Suite(.timeLimit(.minutes(60)), .ownCores)
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

    /// A record leads to it, so it was there; verify said that the cache is sound.
    @Test func aLostJournalAfterARotationWasNotReported() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        try #require(try lab.store.beginCompaction()).abandon()
        let next = lab.journal
        try lab.put(5..<9)
        try lab.store.close()
        lab.removeImages()
        lab.disk.remove(next)
        for _ in 0..<3 {
            let store = try lab.another()
            #expect(try store.statistics().entries == 5)
            #expect(try store.hasLosses && !store.verify().ok)
            try store.close()
        }
        let store = try lab.another()
        _ = try store.verify(repair: true)
        #expect(try store.verify().ok && !store.hasLosses)
    }

    /// Everything in it was lost, and verify said that the cache is sound.
    @Test(arguments: [0, 20], [false, true])
    func aJournalThatWasEmptiedWasNotReported(left: Int, isRotated: Bool) throws {
        let lab = try Lab()
        try lab.put(0..<5)
        if isRotated { _ = try lab.store.compact() }
        try lab.put(5..<9)
        try lab.store.close()
        lab.removeImages()
        lab.disk.corrupt(lab.journal) { $0.removeSubrange(left...) }
        var readOnly = Lab.plain
        readOnly.readOnly = true
        for configuration in [readOnly, Lab.plain, Lab.plain, readOnly] {
            let store = try lab.another(configuration)
            #expect(try store.statistics().entries == (isRotated ? 5 : 0))
            #expect(try store.hasLosses && !store.verify().ok)
            try store.close()
        }
        let store = try lab.another()
        try store.put(lab.bytes(9), for: lab.key(9), metadata: lab.metadata())
        _ = try store.verify(repair: true)
        #expect(try store.verify().ok && !store.hasLosses)
        #expect(try lab.another().read(lab.key(9)) != nil)
    }

    /// The cache could not be opened, and not be repaired either.
    @Test(arguments: [false, true]) func aCheckpointThatIsMissingIsMadeAnew(hasOlderJournal: Bool) throws {
        let lab = try Lab()
        try lab.put(0..<5)
        let older = lab.disk.contents(lab.journal) ?? []
        for _ in 0..<2 { _ = try lab.store.compact() }
        try lab.put(5..<9)
        try #require(try lab.store.beginCompaction()).abandon()
        try lab.put(9..<11)
        try lab.store.close()
        lab.removeImages()
        lab.disk.remove(lab.checkpoint)
        if hasOlderJournal { lab.disk.plant("manifest/journal-0.jsonl", older) }
        for _ in 0..<2 {
            let store = try lab.another()
            #expect(try store.statistics().entries == 6)
            #expect(try store.hasLosses && !store.verify().ok)
            try store.close()
        }
        let store = try lab.another()
        _ = try store.verify(repair: true)
        #expect(try store.verify().ok && !store.hasLosses)
        #expect(try store.statistics().entries == 6)
    }

    /// A folder in the place of the note made a sound cache report a loss, and stopped its repair.
    @Test func whatIsNoNoteOfALossIsForeign() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        lab.disk.plantFolder(Ledger.lossPath)
        #expect(try !lab.store.hasLosses)
        let found = try lab.store.verify(repair: true)
        #expect(found.journalDamage == 0 && found.foreign.count == 1 && found.entries == 5)
    }

    /// The first `verify` told of it; the next one called the cache sound.
    @Test func aLostManifestWasReportedOnce() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        #expect(try !lab.store.hasLosses)
        try lab.store.close()
        lab.disk.remove("manifest")
        for _ in 0..<3 {
            let store = try lab.another()
            #expect(try store.hasLosses)
            let found = try store.verify()
            #expect(found.journalDamage == 1 && !found.ok && found.foreign.isEmpty)
            try store.close()
        }
        let store = try lab.another()
        #expect(try store.verify(repair: true).journalDamage == 1)
        #expect(try store.verify().ok)
        #expect(try !store.hasLosses)
        #expect(try store.files.status(at: Ledger.lossPath) == nil)
    }

    /// Each was as large as the manifest, and stayed for an hour.
    @Test func whatAKilledCompactionLeftGoesWithTheNext() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        let files = lab.store.files
        for name in ["checkpoint-dead", "index-dead", "first-other", "other"] {
            try files.createFile("staging/" + name, bytes: [1, 2, 3], sync: false)
        }
        _ = try files.makeFolder("staging/checkpoint-folder")
        _ = try lab.store.compact()
        let left = try #require(try files.list("staging"))
        #expect(Set(left) == ["checkpoint-folder", "first-other", "other"])
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
            let found = try store.verify()
            #expect(found.damaged.isEmpty && found.missing.isEmpty && found.countMismatches == 0)
            // One of them had to make the manifest anew.
            #expect(found.journalDamage <= 1)
        }
    }

    /// All entries were gone, and `verify` had nothing to say about it.
    @Test(arguments: ["manifest", "manifest/checkpoint-0.json manifest/journal-0.jsonl", "manifest/journal-0.jsonl"])
    func aManifestThatWasMissingCountedAsSound(_ gone: String) throws {
        let lab = try Lab()
        try lab.put(0..<5)
        lab.kill()
        for name in lab.disk.names("manifest") where name.hasPrefix("index-") { lab.disk.remove("manifest/" + name) }
        for path in gone.split(separator: " ") { lab.disk.remove(String(path)) }
        try lab.reopen()
        #expect(try lab.store.entry(for: lab.key(0)) == nil)
        let found = try lab.store.verify()
        #expect(!found.ok && found.journalDamage == 1 && !found.orphans.isEmpty)
        _ = try lab.store.verify(repair: true)
        #expect(try lab.store.verify().ok)
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

    /// Its lock file had a name all the same, in the copy: what was put later went into the folder that was no more.
    @Test func aFolderThatWasCopiedByLinksBeforeItWasRemovedStayedOpen() throws {
        let lab = try Lab()
        let (folder, copy) = (TemporaryFolder(), TemporaryFolder())
        func open(_ seed: UInt64) throws -> TileStore {
            try TileStore(
                environment: lab.clock.environment(DiskFileSystem(location: folder.path), seed: seed),
                configuration: Lab.plain)
        }
        let first = try open(1)
        try first.put(lab.bytes(0), for: lab.key(0), metadata: lab.metadata())
        let files = FileManager.default
        try files.createDirectory(atPath: copy.path, withIntermediateDirectories: true)
        for name in try files.subpathsOfDirectory(atPath: folder.path).sorted() {
            let (from, to) = ("\(folder.path)/\(name)", "\(copy.path)/\(name)")
            var isFolder: ObjCBool = false
            _ = files.fileExists(atPath: from, isDirectory: &isFolder)
            if isFolder.boolValue {
                try files.createDirectory(atPath: to, withIntermediateDirectories: true)
            } else {
                #expect(link(from, to) == 0)
            }
        }
        try files.removeItem(atPath: folder.path)
        let second = try open(2)
        try second.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
        Self.wait(lab)
        try first.put(lab.bytes(8), for: lab.key(8), metadata: lab.metadata())
        try second.catchUp()
        for store in [first, second] {
            #expect(try store.read(lab.key(7))?.data == lab.bytes(7))
            #expect(try store.read(lab.key(8))?.data == lab.bytes(8))
            #expect(try store.entry(for: lab.key(0)) == nil)
        }
        #expect(try second.verify().ok)
        try first.close()
        try second.close()
    }

    /// Nobody has hashed the new folder's blobs since the machine was started anew, and the store did not know.
    @Test(arguments: [false, true])
    func aStoreThatFollowsIntoAnotherFolderDoubtsTheBlobsOfThat(isDoubtful: Bool) throws {
        var configuration = Lab.plain
        configuration.digestCheck = .never
        let lab = try Lab(configuration)
        try lab.put(0..<2)
        #expect(!lab.store.suspicious.withLock { $0 })
        lab.disk.remove("")
        let files = SimulatedFileSystem(lab.disk)
        let other = try TileStore(
            environment: lab.clock.environment(files, seed: 77, bootID: isDoubtful ? "boot-0" : "boot-1"),
            configuration: configuration)
        try other.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
        lab.disk.corrupt(lab.digest(7).path) { $0[0] ^= 1 }
        Self.wait(lab)
        try lab.put(8..<9)
        #expect(lab.store.suspicious.withLock { $0 } == isDoubtful)
        #expect(try (lab.store.read(lab.key(7)) == nil) == isDoubtful)
        other.simulateKill()
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

    /// No compaction and no index image got done any more, and the journal grew without end.
    @Test func compactionsWentWithoutTheFolderThatWasRemoved() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        lab.disk.remove("staging")
        let before = try lab.store.snapshot()
        #expect(try lab.store.compact().entries == 5)
        #expect(lab.disk.names("manifest").contains { $0.hasPrefix("checkpoint-") && $0 != "checkpoint-0.json" })
        try lab.reopen()
        #expect(try lab.store.snapshot() == before)
    }

    // MARK: Others in their place

    /// A store on the real disk, whose looks are due at each step.
    private final class RealLab {
        let lab: Lab
        let folder = TemporaryFolder()
        let elsewhere = TemporaryFolder()
        let store: TileStore

        init() throws {
            lab = try Lab()
            var configuration = Lab.plain
            configuration.indexImages = .never
            store = try TileStore(
                environment: lab.clock.environment(DiskFileSystem(location: folder.path)), configuration: configuration)
            try FileManager.default.createDirectory(atPath: elsewhere.path, withIntermediateDirectories: true)
        }

        deinit { store.simulateKill() }

        func put(_ number: Int) throws {
            try store.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata())
        }

        /// Puts a link to another folder, with files in it, into the place of one of the cache's.
        func replace(_ name: String, with files: [String]) throws {
            for file in files {
                let path = URL(fileURLWithPath: elsewhere.path + "/" + file)
                try FileManager.default.createDirectory(
                    at: path.deletingLastPathComponent(), withIntermediateDirectories: true)
                try Data("mine".utf8).write(to: path)
            }
            let path = folder.path + "/" + name
            if FileManager.default.fileExists(atPath: path) {
                try FileManager.default.moveItem(atPath: path, toPath: path + ".moved")
            }
            try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: elsewhere.path)
            lab.clock.advance(nanoseconds: 50_000_000)
        }

        func left() throws -> [String] {
            try FileManager.default.subpathsOfDirectory(atPath: elsewhere.path).sorted()
        }
    }

    /// What no entry named was removed wherever a link led that had taken the place of `objects/`.
    @Test func objectsThatBecameALinkWereClearedElsewhere() throws {
        let real = try RealLab()
        for number in 0..<3 { try real.put(number) }
        let others = (0..<80).map { number in
            let name = real.lab.digest(1000 + number).description
            return "\(name.prefix(2))/\(name)"
        }
        try real.replace("objects", with: others + ["notes.txt"])
        let before = try real.left()
        for step in [
            { _ = try real.store.verify(repair: true) }, { _ = try real.store.evict(toBytes: 1) },
            { _ = try real.store.remove([real.lab.key(0)], includingPinned: true) }, { try real.put(7) },
        ] {
            let error = #expect(throws: StoreError.self) { try step() }
            let isNamed = error?.message.contains("objects") == true
            #expect(error?.code == .damaged && isNamed, "\(String(describing: error))")
            real.lab.clock.advance(nanoseconds: 50_000_000)
        }
        #expect(try real.left() == before)
    }

    /// Setting one damaged blob aside removed the oldest files wherever a link led that had taken the place of `quarantine/`.
    @Test func quarantineThatBecameALinkWasEmptiedElsewhere() throws {
        let real = try RealLab()
        try real.put(1)
        try Data("broken".utf8).write(to: URL(fileURLWithPath: real.folder.path + "/" + real.lab.digest(1).path))
        try real.replace("quarantine", with: (0..<70).map { "photo-\($0).jpg" } + ["album/a.jpg"])
        let before = try real.left()
        let error = #expect(throws: StoreError.self) { _ = try real.store.verify(repair: true) }
        #expect(error?.code == .damaged && error?.message.contains("quarantine") == true)
        #expect(try real.left() == before)
    }

    /// A compaction replaced journals and removed checkpoints wherever a link led that had taken the place of `manifest/`.
    @Test func aManifestThatBecameALinkWasWrittenElsewhere() throws {
        let real = try RealLab()
        for number in 0..<3 { try real.put(number) }
        try real.replace("manifest", with: ["checkpoint-0.json", "journal-0.jsonl", "journal-1.jsonl"])
        let before = try real.left()
        let error = #expect(throws: StoreError.self) { _ = try real.store.compact() }
        #expect(error?.code == .damaged && error?.message.contains("manifest") == true)
        #expect(try real.left() == before)
    }

    /// A journal that was moved away has its name still: what was put afterwards was in it, and in no manifest that others read.
    @Test func aManifestThatWasMovedAwayAndRestoredTookNothingMore() throws {
        let real = try RealLab()
        for number in 0..<3 { try real.put(number) }
        let manifest = real.folder.path + "/manifest"
        try FileManager.default.copyItem(atPath: manifest, toPath: manifest + ".backup")
        try real.put(3)
        try FileManager.default.moveItem(atPath: manifest, toPath: manifest + ".moved")
        try FileManager.default.moveItem(atPath: manifest + ".backup", toPath: manifest)
        real.lab.clock.advance(nanoseconds: 50_000_000)
        for number in 4..<8 { try real.put(number) }
        var configuration = Lab.plain
        configuration.readOnly = true
        let other = try TileStore(
            environment: real.lab.clock.environment(DiskFileSystem(location: real.folder.path)),
            configuration: configuration)
        for number in [0, 1, 2, 4, 5, 6, 7] {
            #expect(try other.read(real.lab.key(number))?.data == real.lab.bytes(number), "\(number)")
        }
        #expect(try other.read(real.lab.key(3)) == nil)
        other.simulateKill()
    }

    /// Blobs were written through a link that took the place of a shard's folder after its first use.
    @Test func aShardThatBecameALinkWasWrittenThrough() throws {
        let real = try RealLab()
        try real.put(0)
        let shard = real.lab.digest(0).path.dropLast(65)
        let next = try #require((1..<5000).first { real.lab.digest($0).path.hasPrefix(shard) })
        try real.replace(String(shard), with: ["notes.txt"])
        real.lab.clock.advance(nanoseconds: 2_000_000_000)
        let error = #expect(throws: StoreError.self) { try real.put(next) }
        #expect(error?.code == .damaged && error?.message.contains(shard) == true, "\(String(describing: error))")
        #expect(try real.left() == ["notes.txt"])
    }

    /// A removal followed a link in the place of a shard: another cache lost its blobs, and `verify` called this one sound.
    @Test(arguments: [false, true])
    func aRemovalThroughALinkTookAnothersBlobs(repairs: Bool) throws {
        let (mine, others) = (try RealLab(), try RealLab())
        for number in 0..<40 {
            try mine.put(number)
            try others.put(number)
        }
        let shard = String(mine.lab.digest(0).path.prefix(10))
        let path = mine.folder.path + "/" + shard
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.createSymbolicLink(
            atPath: path, withDestinationPath: others.folder.path + "/" + shard)
        mine.lab.clock.advance(nanoseconds: 2_000_000_000)
        let missing = (0..<40).filter { mine.lab.digest($0).path.hasPrefix(shard) }
        for quick in [true, false] {
            let found = try mine.store.verify(quick: quick)
            #expect(!found.ok && Set(found.missing) == Set(missing.map { mine.lab.digest($0) }))
        }
        if repairs {
            _ = try mine.store.verify(repair: true)
            #expect(try mine.store.verify().ok)
            for number in 0..<40 {
                let isGone = try mine.store.entry(for: mine.lab.key(number)) == nil
                #expect(isGone == missing.contains(number))
            }
            try mine.put(0)
        } else {
            let error = #expect(throws: StoreError.self) { try mine.store.remove(EntrySelection()) }
            #expect(error?.code == .damaged && error?.message.contains(shard) == true, "\(String(describing: error))")
            _ = try? mine.store.remove(EntrySelection())
            _ = try mine.store.evict(toBytes: 0)
        }
        #expect(try others.store.verify().ok)
        for number in 0..<40 {
            #expect(try others.store.read(others.lab.key(number))?.data == others.lab.bytes(number))
        }
    }

    /// Whoever had a cache open went on in what a removal had left of it, and nobody could open that afterwards.
    @Test func whatIsNoCacheAnyMoreWasWrittenOn() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        for path in ["tilecache.json", "manifest"] { lab.disk.remove(path) }
        Self.wait(lab)
        let error = #expect(throws: StoreError.self) { try lab.put(5..<6) }
        #expect(error?.code == .noSuchCache, "\(String(describing: error))")
        #expect(throws: StoreError.self) { try lab.put(6..<7) }
    }

    /// With the folders of an import or a download in it, it was no cache any more.
    @Test func aCacheThatHadLostItsMarkerWasNotOpened() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        for folder in ["sources", "downloads", "set-aside-1"] { lab.disk.plantFolder(folder) }
        lab.disk.remove("tilecache.json")
        try lab.reopen()
        #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(0))
        #expect(try lab.store.verify().ok)
        // By themselves they may be anybody's.
        lab.kill()
        for name in lab.disk.names("") where name != "sources" { lab.disk.remove(name) }
        let error = #expect(throws: StoreError.self) { try lab.reopen() }
        #expect(error?.code == .notACache)
    }
}

extension Lab {
    /// What would be opened instead of the manifest.
    fileprivate func removeImages() {
        for name in disk.names("manifest") where name.hasPrefix("index-") { disk.remove("manifest/" + name) }
    }
}
