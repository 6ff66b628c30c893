import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// What is lost or in the way is said until somebody has dealt with it.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct EvidenceTests {
    /// The damaged line went with its journal, and verify said that the cache was sound.
    @Test func aCompactionHidThatALineWasDamaged() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        try lab.store.close()
        lab.disk.corrupt(lab.journal) { bytes in
            // Within the second line of a tile, so that right lines follow.
            let lines = bytes.split(separator: 0x0A, omittingEmptySubsequences: false)
            let start = lines.prefix(3).reduce(0) { $0 + $1.count + 1 }
            bytes[start + 20] ^= 1
        }
        let store = try lab.another()
        #expect(try !store.verify().ok)
        _ = try store.compact()
        #expect(try !store.verify().ok && store.hasLosses)
        try store.close()
        let next = try lab.another()
        #expect(try next.statistics().entries == 4 && !next.verify().ok)
        _ = try next.verify(repair: true)
        #expect(try next.verify().ok && !next.hasLosses)
        #expect(lab.disk.kind("manifest/lost") == nil)
    }

    /// A cache of which a journal was missing could not be opened at all.
    @Test(arguments: [FileKind.folder, .link]) func whatLayInThePlaceOfTheNoteKeptTheCacheShut(_ kind: FileKind) throws
    {
        let lab = try Lab()
        try lab.put(0..<5)
        _ = try lab.store.compact()
        try lab.put(5..<7)
        try lab.store.close()
        lab.disk.remove(lab.journal)
        for name in lab.disk.names("manifest") where name.hasPrefix("index-") { lab.disk.remove("manifest/" + name) }
        if kind == .folder {
            lab.disk.plantFolder("manifest/lost")
        } else {
            lab.disk.plantLink("manifest/lost", to: "elsewhere")
        }
        let store = try lab.another()
        #expect(try store.statistics().entries == 5)
        #expect(try store.verify().foreign.contains("manifest/lost"))
    }

    /// Each compaction failed, in the background without a word, and the journal grew.
    @Test(arguments: ["journal-1.jsonl", "checkpoint-1.json"], [false, true])
    func aFolderInThePlaceOfTheNextFileStoppedEveryCompaction(_ name: String, isFull: Bool) throws {
        let lab = try Lab()
        try lab.put(0..<5)
        lab.disk.plantFolder("manifest/" + name)
        if isFull { lab.disk.plant("manifest/\(name)/somebodys", [1]) }
        #expect(try lab.store.compact().entries == 5)
        #expect(lab.disk.kind("manifest/" + name) == .file)
        #expect(lab.disk.kind("set-aside-" + name) == (isFull ? .folder : nil))
        #expect(try lab.another().statistics().entries == 5)
    }

    /// The file was no JSON any more, and nobody said so.
    @Test func aCheckpointWhoseFirstLineIsNoJSONWasCalledSound() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        _ = try lab.store.compact()
        try lab.store.close()
        let whole = try #require(lab.disk.contents(lab.checkpoint))
        let end = try #require(whole.firstIndex(of: 0x0A))
        for place in (end - 28)..<end {
            lab.disk.corrupt(lab.checkpoint) { $0[place] ^= 4 }
            let store = try lab.another()
            #expect(try !store.verify().ok, "byte \(place)")
            #expect(try store.statistics().entries == 5)
            store.simulateKill()
            lab.disk.corrupt(lab.checkpoint) { $0 = whole }
        }
    }

    /// What was removed kept its numbers in the index image, for ever.
    @Test func namesThatAreGoneKeptTheirNumbersInTheImage() throws {
        let clock = ManualClock()
        let disk = SimulatedDisk(clock: clock)
        func open() throws -> TileStore {
            clock.advance(nanoseconds: 1)
            var environment = clock.environment(SimulatedFileSystem(disk), seed: clock.ticks)
            environment.bounds.names = 3
            return try TileStore(environment: environment, configuration: Lab.plain)
        }
        func put(_ source: String, into store: TileStore) throws {
            let metadata = TileMetadata(storedAt: clock.now, expires: .distantFuture)
            try store.put(Data("tile".utf8), for: TileKey("\(source)/0/0/0"), metadata: metadata)
        }
        let store = try open()
        for source in ["a", "b", "c"] { try put(source, into: store) }
        #expect(throws: StoreError.self) { try put("d", into: store) }
        // As the error says.
        _ = try store.remove([TileKey("b/0/0/0")])
        _ = try store.compact()
        try store.writeIndexImage()
        try store.close()
        let next = try open()
        try put("d", into: next)
        #expect(try next.statistics().entries == 3)
    }

    /// They named the cache's folder.
    @Test func errorsOfOpenFilesNameTheFile() throws {
        let folder = TemporaryFolder()
        try FileManager.default.createDirectory(atPath: folder.path, withIntermediateDirectories: true)
        let files = DiskFileSystem(location: folder.path)
        try files.enter()
        try files.createFile("blob", bytes: [1, 2, 3], sync: false)
        let file = try files.open("blob", .read)
        defer { files.close(file) }
        let error = #expect(throws: FileError.self) { try files.truncate(file, to: 0) }
        #expect(error?.path.hasSuffix("/blob") ?? false, "\(error.map { "\($0)" } ?? "")")
    }
}
