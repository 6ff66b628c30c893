import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Files in `staging/`: a clock that jumps takes none from a writer, and those of the dead go.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct StagingTests {
    /// A tile whose bytes are staged.
    private static func stage(_ number: Int, size: Int, in lab: Lab) throws -> PutInSteps {
        let tile = TilePut(key: lab.key(number), data: lab.bytes(number, size: size), metadata: lab.metadata())
        let batch = try PutInSteps([tile], into: lab.store)
        _ = try batch.stage(known: [])
        #expect(lab.disk.names("staging").count == 1)
        return batch
    }

    private static func lab(durable: Bool) throws -> Lab {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        return try Lab(configuration)
    }

    /// A put failed whose staged file another opening had taken for a leftover, as a clock had jumped.
    @Test(arguments: [(false, 200_000), (true, 1000)])
    func aStagedPutWhoseFileWasSweptIsStagedAgain(durable: Bool, size: Int) throws {
        let lab = try Self.lab(durable: durable)
        let batch = try Self.stage(1, size: size, in: lab)
        lab.clock.advance(seconds: 5 * 3600)
        let other = try lab.another()
        #expect(lab.disk.names("staging") == [])
        #expect(try batch.record().stored == 1)
        #expect(try lab.store.read(lab.key(1))?.data == lab.bytes(1, size: size))
        #expect(try lab.store.invariantViolations() == [])
        #expect(lab.disk.names("staging") == [])
        other.simulateKill()
    }

    /// A put whose bytes had been staged failed where the folder was removed and made anew meanwhile.
    @Test(arguments: [(false, 200_000), (true, 1000)])
    func aStagedPutGoesIntoTheFolderThatHasTakenThePlace(durable: Bool, size: Int) throws {
        let lab = try Self.lab(durable: durable)
        let batch = try Self.stage(1, size: size, in: lab)
        lab.disk.remove("")
        let other = try lab.another()
        #expect(try batch.record().stored == 1)
        lab.clock.advance(seconds: 10)
        #expect(try other.read(lab.key(1))?.data == lab.bytes(1, size: size))
        #expect(try other.invariantViolations() == [])
        other.simulateKill()
    }

    // MARK: Bodies in pieces

    private static func begin(_ number: Int, in store: TileStore, _ lab: Lab) throws -> BodyWriter {
        let writer = try store.beginBody(limit: 10_000, inMemoryUpTo: 0)
        try lab.bytes(number).withUnsafeBytes { try writer.append($0) }
        return writer
    }

    @Test func aBodyOutlivesAClockThatJumps() throws {
        let lab = try Lab()
        let writer = try Self.begin(1, in: lab.store, lab)
        for _ in 0..<2 {
            lab.clock.advance(seconds: 5 * 3600)
            try lab.another().close()
            #expect(lab.disk.names("staging").count == 1)
        }
        try lab.bytes(2).withUnsafeBytes { try writer.append($0) }
        try writer.commit(for: lab.key(1), metadata: lab.metadata())
        #expect(try lab.store.read(lab.key(1))?.data == lab.bytes(1) + lab.bytes(2))
        #expect(try lab.store.invariantViolations() == [])
        #expect(lab.disk.names("staging") == [])
    }

    @Test func bodiesOfADeadProcessGoAtTheNextOpeningAndThoseOfTheLivingStay() throws {
        let lab = try Lab()
        let other = try lab.another()
        let mine = try Self.begin(1, in: lab.store, lab)
        let theirs = try Self.begin(2, in: other, lab)
        #expect(lab.disk.names("staging").count == 2)
        try lab.reopen()
        #expect(lab.disk.names("staging").count == 1)
        #expect(throws: StoreError.self) { try mine.commit(for: lab.key(1), metadata: lab.metadata()) }
        try theirs.commit(for: lab.key(2), metadata: lab.metadata())
        try lab.store.catchUp()
        #expect(try lab.store.read(lab.key(2))?.data == lab.bytes(2))
        #expect(lab.disk.names("staging") == [])
        other.simulateKill()
    }

    @Test func ofRealFilesThoseOfTheLivingStay() throws {
        let lab = try Lab()
        let folder = TemporaryFolder()
        let names = { try FileManager.default.contentsOfDirectory(atPath: folder.path + "/staging").sorted() }
        let store = try TileStore(at: folder.path)
        let writer = try Self.begin(1, in: store, lab)
        let mine = try names()
        for name in ["leftover-1", "leftover-2.body"] {
            try Data([1]).write(to: URL(fileURLWithPath: folder.path + "/staging/" + name))
        }
        #expect(mine.count == 1)
        // As old as can be; the body of somebody who has died goes at any age.
        for name in try names() where name != "leftover-2.body" {
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSince1970: 1000)], ofItemAtPath: folder.path + "/staging/" + name)
        }
        let other = try TileStore(at: folder.path)
        #expect(try names() == mine)
        try writer.commit(for: lab.key(1), metadata: lab.metadata())
        try other.catchUp()
        #expect(try other.read(lab.key(1))?.data == lab.bytes(1))
        #expect(try names() == [])
        for store in [store, other] { try store.close() }
    }

    /// Files were made wherever a link led that had taken the place of `staging/` while the cache was open.
    @Test(arguments: [false, true])
    func stagingThatBecameALinkWasFollowed(durable: Bool) throws {
        let lab = try Lab()
        let (folder, elsewhere) = (TemporaryFolder(), TemporaryFolder())
        try FileManager.default.createDirectory(atPath: elsewhere.path, withIntermediateDirectories: true)
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        configuration.indexImages = .never
        let store = try TileStore(
            environment: lab.clock.environment(DiskFileSystem(location: folder.path)), configuration: configuration)
        defer { store.simulateKill() }
        let staging = folder.path + "/staging"
        try FileManager.default.removeItem(atPath: staging)
        try FileManager.default.createSymbolicLink(atPath: staging, withDestinationPath: elsewhere.path)
        let large = lab.bytes(1, size: 200_000)
        func write() throws {
            try Self.begin(2, in: store, lab).commit(for: lab.key(2), metadata: lab.metadata())
        }
        let attempts: [() throws -> Void] = [
            { try store.put(large, for: lab.key(1), metadata: lab.metadata()) }, write, { _ = try store.compact() },
        ]
        for attempt in attempts {
            let error = #expect(throws: StoreError.self) { try attempt() }
            #expect(error?.code == .damaged && error?.message.contains(staging) == true, "\(String(describing: error))")
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: elsewhere.path) == [])
        // Without the link the folder is made anew.
        try FileManager.default.removeItem(atPath: staging)
        try attempts[0]()
        try attempts[1]()
        #expect(try store.read(lab.key(1))?.data == large)
        #expect(try store.read(lab.key(2))?.data == lab.bytes(2))
        #expect(try FileManager.default.contentsOfDirectory(atPath: elsewhere.path) == [])
    }

    @Test("What somebody has put into staging harms nobody, and folders there are left alone")
    func plantedThings() throws {
        let lab = try Lab()
        for name in ["a.body", "b", ".body", "-", "c.body/x", "c/y"] { lab.disk.plant("staging/" + name, [1]) }
        lab.disk.plantLink("staging/d.body", to: "/tilecache.json")
        try lab.reopen()
        #expect(lab.disk.names("staging") == ["-", "b", "c", "c.body", "d.body"])
        lab.clock.advance(seconds: 2 * 3600)
        try lab.reopen()
        #expect(lab.disk.names("staging") == ["c", "c.body"])
        try lab.put(0..<2)
        #expect(try lab.store.verify().ok)
    }

    @Test func aBodyWhoseFileWasRemovedIsNotStoredAndSaysSo() throws {
        for isReplaced in [true, false] {
            let lab = try Lab()
            let writer = try Self.begin(1, in: lab.store, lab)
            lab.disk.remove(isReplaced ? "" : "staging")
            let other = isReplaced ? try lab.another() : nil
            let error = #expect(throws: StoreError.self) {
                try writer.commit(for: lab.key(1), metadata: lab.metadata())
            }
            #expect(error?.code == .busy && error?.message.contains("\(lab.key(1))") == true)
            var bytes = Data(count: 1000)
            try bytes.withUnsafeMutableBytes { try writer.body.read(into: $0, at: 0) }
            #expect(bytes == lab.bytes(1))
            // The next one is stored in the folder that is there now.
            try Self.begin(2, in: lab.store, lab).commit(for: lab.key(2), metadata: lab.metadata())
            lab.clock.advance(seconds: 10)
            let reader = try other ?? lab.another()
            #expect(try reader.read(lab.key(1)) == nil)
            #expect(try reader.read(lab.key(2))?.data == lab.bytes(2))
            #expect(try reader.invariantViolations() == [])
            reader.simulateKill()
        }
    }
}
