import Foundation
import Testing
import TileStore
import TileStoreTesting

/// New blobs that are written where they belong: nobody finds a part of one, and none stays that nothing counts.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct PlacedBlobsTests {
    /// Forty new tiles, some of whose blobs are equal, of which some are refused.
    private static func batch(_ lab: Lab) -> [TilePut] {
        var old = lab.metadata()
        old.date = Timestamp(seconds: 1)
        return (0..<40).map { number in
            TilePut(
                key: lab.key(number), data: lab.bytes(number % 30, size: number % 7 == 3 ? 9000 : 1000),
                metadata: number % 5 == 4 ? old : lab.metadata())
        }
    }

    /// A cache in which every tenth key has a newer tile already.
    private static func lab() throws -> Lab {
        let lab = try Lab()
        var young = lab.metadata()
        young.date = Timestamp(seconds: 100)
        for number in stride(from: 4, to: 40, by: 10) {
            try lab.store.put(lab.bytes(number + 1000), for: lab.key(number), metadata: young)
        }
        return lab
    }

    @Test func aBatchEndsAsItsTilesOneByOneDo() throws {
        let (together, alone) = (try Self.lab(), try Self.lab())
        let outcomes = try together.store.put(Self.batch(together))
        let single = try Self.batch(alone).map { try alone.store.put($0.data, for: $0.key, metadata: $0.metadata) }
        #expect(outcomes == single && outcomes.contains(.olderThanStored))
        #expect(difference(try together.store.snapshot(), try alone.store.snapshot()) == nil)
        for lab in [together, alone] {
            #expect(try lab.store.invariantViolations() == [])
            #expect(try lab.store.verify().orphans.isEmpty)
        }
        #expect(together.disk.names("staging").isEmpty)
    }

    @Test(arguments: [(EIO, false), (EIO, true), (ENOSPC, false), (ENOSPC, true), (EACCES, true)])
    func whateverFailsNothingStaysThatIsNotCounted(number: Int32, persistent: Bool) throws {
        for operation in 0..<1000 {
            let lab = try Self.lab()
            let batch = Self.batch(lab)
            lab.files.fail(
                SimulatedFileSystem.Fault(
                    at: operation, number: number, scope: number == ENOSPC ? .space : .all, persistent: persistent,
                    short: true))
            var failure: (any Error)?
            do { try lab.store.put(batch) } catch { failure = error }
            let struck = lab.files.hasStruck
            lab.files.fail(nil)
            #expect(failure == nil || failure is StoreError, "operation \(operation)")
            // Where a file cannot be removed that was not wanted after all, it stays as after a crash, until a sweep.
            if struck, number != ENOSPC, persistent || failure == nil { _ = try lab.store.verify(repair: true) }
            #expect(try lab.store.invariantViolations() == [], "operation \(operation)")
            try lab.store.put(batch)
            #expect(try lab.store.invariantViolations() == [], "operation \(operation), again")
            for tile in batch where tile.metadata.date == nil {
                #expect(try lab.store.read(tile.key)?.data == tile.data)
            }
            if !struck { return }
        }
        Issue.record("the batch never came to its end")
    }

    @Test func partsThatACrashLeftAreReplaced() throws {
        let lab = try Lab()
        for number in 0..<20 {
            let path = lab.digest(number).path
            switch number % 4 {
            case 0: lab.disk.plant(path, Array(lab.bytes(number).prefix(number * 10)))
            case 1: lab.disk.plant(path, [UInt8](repeating: 0, count: 1000))
            case 2: lab.disk.plantLink(path, to: "/tilecache.json")
            default: lab.disk.plantFolder(path)
            }
        }
        let batch = (0..<20).map { TilePut(key: lab.key($0), data: lab.bytes($0), metadata: lab.metadata()) }
        try lab.store.put(Array(batch.prefix(10)))
        for tile in batch.suffix(10) { try lab.store.put(tile.data, for: tile.key, metadata: tile.metadata) }
        for tile in batch { #expect(try lab.store.read(tile.key)?.data == tile.data) }
        #expect(try lab.store.invariantViolations() == [])
        #expect(try lab.store.verify().ok)
    }

    @Test func whoReadsWithAnOlderViewSeesNoPartOfABlob() throws {
        // A reader that hashes a blob once, so that nothing but its length can tell it.
        let lab = try Lab()
        var trusting = Lab.plain
        trusting.digestCheck = .first
        let reader = try lab.another(trusting)
        try lab.store.put(lab.bytes(1), for: lab.key(1), metadata: lab.metadata())
        lab.clock.advance(seconds: 10)
        #expect(try reader.read(lab.key(1))?.data == lab.bytes(1))
        _ = try lab.store.remove([lab.key(1)])
        #expect(lab.disk.contents(lab.digest(1).path) == nil)
        // Half of it is there again, as while it is being written.
        lab.disk.plant(lab.digest(1).path, Array(lab.bytes(1).prefix(500)))
        #expect(try reader.read(lab.key(1)) == nil)
        reader.simulateKill()
    }

    /// A blob that another process's records had left without entries was unlinked after it was there again.
    @Test(arguments: [false, true])
    func whatOthersDroppedIsNotUnlinkedOnceItIsBack(isKnown: Bool) throws {
        let lab = try Lab()
        let other = try lab.another()
        try lab.store.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
        try other.put(lab.bytes(8), for: lab.key(7), metadata: lab.metadata())
        if isKnown {
            // A store that knows that the blob is gone does not stage it.
            lab.clock.advance(seconds: 10)
            #expect(try lab.store.read(lab.key(7))?.data == lab.bytes(8))
        }
        // The first key comes twice, so that its record is written before the rest is decided on.
        let batch = [1, 1, 2, 3, 4, 7].enumerated().map { place, number in
            TilePut(key: lab.key(number), data: lab.bytes(place == 5 ? 7 : place + 20), metadata: lab.metadata())
        }
        try lab.store.put(batch)
        #expect(try lab.store.invariantViolations() == [])
        #expect(try lab.store.read(lab.key(7))?.data == lab.bytes(7))
        other.simulateKill()
    }

    /// The same for a blob that was in place already and waited for its record while a second stretch of the batch was
    /// looked at.
    @Test func whatOthersDroppedIsNotUnlinkedWhileItsRecordWaits() throws {
        let lab = try Lab()
        let other = try lab.another()
        try lab.store.put(lab.bytes(7), for: lab.key(7), metadata: lab.metadata())
        try lab.store.put(lab.bytes(1), for: lab.key(1000), metadata: lab.metadata())
        try other.put(lab.bytes(8), for: lab.key(7), metadata: lab.metadata())
        // 256 tiles whose blobs are there but for the one that the other store has dropped; then new ones.
        let batch = (0..<270).map { number in
            TilePut(
                key: lab.key(number), data: lab.bytes(number == 7 ? 7 : number < 256 ? 1 : number),
                metadata: lab.metadata())
        }
        try lab.store.put(batch)
        #expect(try lab.store.invariantViolations() == [])
        #expect(try lab.store.read(lab.key(7))?.data == lab.bytes(7))
        other.simulateKill()
    }

    /// A blob that had been written ahead for one tile of a batch was unlinked before that tile's turn, and its record was
    /// written all the same: an earlier tile had brought the blob as a staged file, and another one had replaced that tile.
    @Test(arguments: [false, true])
    func aBlobWrittenAheadWasTakenForThereAfterItHadGone(isBody: Bool) throws {
        let lab = try Lab()
        let (other, bytes) = (try lab.another(), lab.bytes(7))
        func tile(_ key: Int, _ content: Int) -> TilePut {
            TilePut(key: lab.key(key), data: lab.bytes(content), metadata: lab.metadata())
        }
        let rest = [tile(1, 11), tile(1, 12), tile(0, 13), tile(1, 7)]
        if isBody {
            let writer = try lab.store.beginBody(limit: bytes.count, inMemoryUpTo: 0)
            try bytes.withUnsafeBytes { try writer.append($0) }
            try writer.commit(for: lab.key(0), metadata: lab.metadata(), with: rest)
        } else {
            // The blob looks live while the batch is staged, and its file is missing.
            try lab.store.put(bytes, for: lab.key(7), metadata: lab.metadata())
            lab.disk.remove(lab.digest(7).path)
            lab.clock.advance(seconds: 2)
            let batch = try PutInSteps([tile(0, 7)] + rest, into: lab.store)
            _ = try batch.stage(known: [])
            #expect(lab.disk.names("staging").count == 1)
            _ = try other.remove([lab.key(7)])
            #expect(try batch.record().stored == 5)
        }
        #expect(try lab.store.invariantViolations() == [])
        #expect(try lab.store.read(lab.key(1))?.data == bytes)
        #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(13))
        #expect(lab.disk.names("staging").isEmpty)
        other.simulateKill()
    }

    /// A put of a new blob relied on a look at the folder that was a few milliseconds old, and then gave up.
    @Test func aPutGoesIntoTheFolderThatHasTakenThePlace() throws {
        let lab = try Lab()
        try lab.put(0..<1)
        lab.disk.remove("")
        let other = try lab.another()
        try lab.put(1..<2)
        lab.clock.advance(seconds: 10)
        #expect(try other.read(lab.key(1))?.data == lab.bytes(1))
        #expect(try other.invariantViolations() == [])
        other.simulateKill()
    }
}
