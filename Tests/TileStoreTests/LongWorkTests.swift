import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Work of many holds of the lock, and those who wait for it meanwhile.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct LongWorkTests {
    enum Work: CaseIterable { case remove, expire, evict, lowerLimits, removeOrphans }

    private struct Seen {
        var store: TileStore?
        var rests = 0
        var faults: [String] = []
    }

    /// A hold followed the one before at once, and others, who look every 2 ms, found the lock free at its end only.
    @Test(arguments: Work.allCases)
    func putsOfOthersWaitedForTheEndOfALongWork(_ work: Work) throws {
        let lab = try Lab()
        try lab.put(0..<2000)
        try lab.store.close()
        // Another process that does not wait at all.
        var impatient = Lab.plain
        impatient.lockWait = 0
        let other = try lab.another(impatient)
        let (bytes, metadata) = ((0..<5).map { lab.bytes(10_000 + $0) }, lab.metadata())
        let seen = Locked(Seen())
        var environment = lab.clock.environment(SimulatedFileSystem(lab.disk), seed: 99)
        let ticks = Locked<UInt64>(0)
        // Each hold takes longer than others are to wait.
        environment.ticks = {
            ticks.withLock { ticks in
                ticks += 30_000_000
                return ticks
            }
        }
        environment.pause = { nanoseconds in
            // Between two slices of a walk readers are let in, which is shorter.
            guard nanoseconds > FolderLock.longestPause else { return }
            let (store, number) = seen.withLock { seen in
                defer { seen.rests += 1 }
                return (seen.store, seen.rests)
            }
            guard number < bytes.count else { return }
            do {
                try other.put(bytes[number], for: TileKey(source: "other", z: 9, x: number, y: 0), metadata: metadata)
                let isFree = store?.commit.tryWithLock { _ in true } ?? false
                if !isFree { seen.withLock { $0.faults.append("rest \(number): this process holds its own lock") } }
            } catch { seen.withLock { $0.faults.append("rest \(number): \(error)") } }
        }
        let store = try TileStore(environment: environment, configuration: Lab.plain)
        seen.withLock { $0.store = store }
        switch work {
        case .remove: #expect(try store.remove(EntrySelection()).removedEntries == 2000)
        case .expire: #expect(try store.expire(EntrySelection()) == 2000)
        case .evict: #expect(try store.evict(toBytes: 0).removedEntries >= 2000)
        case .lowerLimits: try store.setLimits(StoreLimits(capacity: 10 * 4096))
        case .removeOrphans:
            for number in 0..<20 { lab.disk.plant("objects/00/left-\(number)", [1]) }
            #expect(try store.removeOrphans(inShard: 0) == 20)
        }
        #expect(seen.withLock { $0.faults } == [])
        #expect(seen.withLock { $0.rests } > 0)
        #expect(try store.invariantViolations() == [])
        seen.withLock { $0.store = nil }
        try store.close()
        try other.close()
    }
}
