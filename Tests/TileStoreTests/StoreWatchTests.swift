import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// A store that watches others sees what they do, and walks over the entries only if it has to.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct StoreWatchTests {
    private static func watch(_ lab: Lab) throws -> (store: TileStore, watch: StoreWatch) {
        var configuration = Lab.plain
        configuration.readOnly = true
        let store = try lab.another(configuration)
        return (store, StoreWatch(store))
    }

    @Test func putsAndEvictionsOfOtherProcessesAreCounted() throws {
        let lab = try Lab()
        try lab.put(0..<20)
        let (reader, watch) = try Self.watch(lab)
        defer { reader.simulateKill() }
        var reading = try watch.look()
        #expect(reading.puts == 0 && reading.evictedBlobs == 0 && reading.events == [])
        let other = try lab.another()
        try other.put((20..<30).map { TilePut(key: lab.key($0), data: lab.bytes($0), metadata: lab.metadata()) })
        // The bytes of an entry that others do not share: that is no eviction.
        try lab.store.put(lab.bytes(99), for: lab.key(3), metadata: lab.metadata())
        reading = try watch.look()
        #expect(reading.puts == 11 && reading.evictedBlobs == 0)
        #expect(try other.evict(toBytes: 20 * 4096).removedBlobs == 10)
        #expect(try lab.store.remove([lab.key(3), lab.key(29)]).removedBlobs == 2)
        reading = try watch.look()
        #expect(reading.puts == 0 && reading.evictedBlobs == 12)
        #expect(reading.figures == (try lab.store.statistics()))
        reading = try watch.look()
        #expect(reading.puts == 0 && reading.evictedBlobs == 0 && reading.events == [])
        other.simulateKill()
    }

    @Test func nothingIsWalkedOverUnlessAnEntryCanHaveChanged() throws {
        let lab = try Lab()
        try lab.put(0..<20)
        let (reader, watch) = try Self.watch(lab)
        defer { reader.simulateKill() }
        for _ in 0..<5 {
            #expect(try watch.look().figures.fresh == 20)
            lab.clock.advance(seconds: 100)
        }
        #expect(watch.walks == 1)
        try lab.put(20..<21)
        #expect(try watch.look().figures.entries == 21)
        #expect(watch.walks == 2)
        // Twenty of them were put half a thousand seconds before the other.
        lab.clock.advance(seconds: 3600 - 500)
        #expect(try watch.look().figures.stale == 20)
        lab.clock.advance(seconds: 10)
        #expect(try watch.look().figures.stale == 20)
        #expect(watch.walks == 3)
        // The clock goes back.
        lab.clock.advance(seconds: -1000)
        #expect(try watch.look().figures.stale == 0)
        #expect(watch.walks == 4)
        #expect(try watch.look().countedAt == lab.clock.now)
    }

    @Test func walksTakeATwentiethOfTheTimeAtMost() throws {
        let lab = try Lab()
        var environment = lab.clock.environment(SimulatedFileSystem(lab.disk), seed: 5)
        // The clock is asked before and after a walk, which takes 50 ms by it.
        let clock = lab.clock
        environment.ticks = {
            clock.advance(nanoseconds: 50_000_000)
            return clock.ticks
        }
        var configuration = Lab.plain
        configuration.readOnly = true
        let reader = try TileStore(environment: environment, configuration: configuration)
        defer { reader.simulateKill() }
        let watch = StoreWatch(reader)
        _ = try watch.look()
        for round in 0..<40 {
            lab.clock.advance(nanoseconds: 50_000_000)
            try lab.put(round..<round + 1)
            let reading = try watch.look()
            #expect(reading.figures.blobs == round + 1 && reading.puts == 1, "what needs no walk is always there")
            #expect(reading.figures.fresh + reading.figures.stale == reading.figures.entries)
        }
        // The forty looks took four seconds at least.
        #expect((3...6).contains(watch.walks), "\(watch.walks)")
    }

    /// A file that the store did not write showed as a compaction, and real ones after it did not.
    @Test func aForeignCheckpointIsNoCompaction() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        let (reader, watch) = try Self.watch(lab)
        defer { reader.simulateKill() }
        _ = try watch.look()
        lab.disk.plant("manifest/checkpoint-77.json", [1, 2, 3])
        #expect(try watch.look().events == [])
        _ = try lab.store.compact()
        #expect(try watch.look().events == [.compacted])
    }

    @Test func aCompactionIsFollowedAndTwoAreSaid() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        let (reader, watch) = try Self.watch(lab)
        defer { reader.simulateKill() }
        _ = try watch.look()
        try lab.put(5..<8)
        _ = try lab.store.compact()
        try lab.put(8..<9)
        var reading = try watch.look()
        #expect(reading.events == [.compacted] && reading.puts == 4)
        #expect(reading.figures.journalBytes > 0 && reading.figures.checkpointBytes > 0)
        try lab.put(9..<12)
        for _ in 0..<2 { _ = try lab.store.compact() }
        try lab.put(12..<13)
        reading = try watch.look()
        #expect(reading.events == [.compacted, .reloaded])
        #expect(reading.puts == nil && reading.evictedBlobs == nil && reading.figures.entries == 13)
        try lab.put(13..<15)
        reading = try watch.look()
        #expect(reading.events == [] && reading.puts == 2)
    }

    @Test func damageInTheJournalIsSaidOnce() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        let (reader, watch) = try Self.watch(lab)
        defer { reader.simulateKill() }
        #expect(try watch.look().damagedLines == 0)
        let length = try #require(lab.disk.contents(lab.journal)).count
        try lab.put(5..<8)
        lab.disk.corrupt(lab.journal) { $0[length + 20] ^= 1 }
        var reading = try watch.look()
        #expect(reading.events == [.damaged] && reading.damagedLines > 0 && reading.puts == 2)
        reading = try watch.look()
        #expect(reading.events == [] && reading.damagedLines > 0)
    }

    @Test func theManifestsFilesAreToldApart() throws {
        var configuration = Lab.plain
        configuration.indexImages = .always
        let lab = try Lab(configuration)
        try lab.put(0..<30)
        _ = try lab.store.compact()
        try lab.put(30..<40)
        let figures = try lab.store.statistics()
        func size(_ path: String) throws -> Int { try #require(lab.disk.contents(path)).count }
        #expect(figures.checkpointBytes == (try size(lab.checkpoint)))
        #expect(figures.journalBytes == (try size(lab.journal)))
        #expect(figures.imageBytes == (try size("manifest/index-1.bin")))
        #expect(figures.manifestBytes == figures.checkpointBytes + figures.journalBytes + figures.imageBytes)
    }
}
