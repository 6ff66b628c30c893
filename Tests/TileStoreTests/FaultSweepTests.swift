import Foundation
import Testing
import TileStore
import TileStoreTesting

/// One operation after the other of a script fails.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct FaultSweepTests {
    struct Kind: CustomTestStringConvertible, Sendable {
        var name: String
        var number: Int32
        var scope = SimulatedFileSystem.Scope.all
        var persistent = false
        var short = false
        var testDescription: String { name }
    }

    static let kinds = [
        Kind(name: "EIO once", number: EIO),
        Kind(name: "EIO once, writes by half", number: EIO, short: true),
        Kind(name: "EIO from then on", number: EIO, persistent: true),
        Kind(name: "ENOSPC once", number: ENOSPC, scope: .space),
        Kind(name: "ENOSPC once, writes by half", number: ENOSPC, scope: .space, short: true),
        Kind(name: "ENOSPC from then on, writes by half", number: ENOSPC, scope: .space, persistent: true, short: true),
        Kind(name: "EACCES once", number: EACCES),
    ]

    @Test(
        "When an operation fails, the step fails with a StoreError or succeeds, and the cache is sound",
        arguments: kinds,
        0..<3 as Range<UInt64>)
    func failing(kind: Kind, seed: UInt64) {
        var random = SplitMix64(seed: seed &+ 5000)
        let steps = Step.sweepScript(count: seed == 2 ? 20 : 40, images: seed == 2, using: &random)
        let setting = ScriptSetting(durable: seed % 2 == 1, images: seed == 2)
        let fault = SweepFault.fail(
            number: kind.number, scope: kind.scope, persistent: kind.persistent, short: kind.short)
        let failure = SweepFault.everywhere { sweep(steps, setting: setting, fault: fault, at: $0) }
        #expect(failure == nil, "\(kind.name), seed \(seed)\n\(source(of: steps, setting: setting))")
    }

    @Test("An operation fails between compactions that are given up", arguments: kinds, [false, true])
    func failingBetweenCompactionsThatAreGivenUp(kind: Kind, durable: Bool) {
        let setting = ScriptSetting(durable: durable)
        let fault = SweepFault.fail(
            number: kind.number, scope: kind.scope, persistent: kind.persistent, short: kind.short)
        let failure = SweepFault.everywhere {
            sweep(CrashSweepTests.givenUp, setting: setting, fault: fault, at: $0)
        }
        #expect(failure == nil, "\(kind.name), durable \(durable)")
    }

    /// It was the system's error as it is, which `tilegc verify` took for a mistake in its arguments (status 64).
    @Test(
        "What a verify cannot read is a StoreError, also where the cache is open for reading alone",
        arguments: [false, true])
    func failingWhileVerifying(readOnly: Bool) throws {
        let lab = try Lab()
        try lab.put(0..<5)
        var configuration = Lab.plain
        configuration.readOnly = readOnly
        var ended = false
        for operation in 0..<1000 where !ended {
            let files = SimulatedFileSystem(lab.disk)
            let store = try TileStore(environment: lab.clock.environment(files, seed: 99), configuration: configuration)
            files.fail(SimulatedFileSystem.Fault(at: operation, number: EIO, persistent: true))
            do {
                _ = try store.verify()
                ended = !files.hasStruck
            } catch {
                #expect(error is StoreError, "operation \(operation): \(error)")
            }
            store.simulateKill()
            files.kill()
        }
        #expect(ended)
    }

    @Test("While a cache is opened, an operation that fails is a StoreError, and the next opening works")
    func failingWhileOpening() throws {
        for number in [EIO, ENOSPC, EACCES] {
            var ended = false
            for operation in 0..<1000 where !ended {
                let clock = ManualClock()
                let disk = SimulatedDisk(clock: clock, blockSize: 64)
                let files = SimulatedFileSystem(disk)
                files.fail(
                    SimulatedFileSystem.Fault(at: operation, number: number, scope: number == ENOSPC ? .space : .all))
                do {
                    let store = try TileStore(
                        environment: clock.environment(files), configuration: StoreConfiguration())
                    ended = !files.hasStruck
                    files.fail(nil)
                    #expect(try store.invariantViolations() == [], "operation \(operation), errno \(number)")
                    store.simulateKill()
                } catch {
                    #expect(error is StoreError, "operation \(operation), errno \(number): \(error)")
                }
                files.kill()
                let second = try TileStore(
                    environment: clock.environment(SimulatedFileSystem(disk), seed: 2),
                    configuration: StoreConfiguration())
                #expect(try workOn(second, clock: clock) == nil, "operation \(operation), errno \(number)")
                second.simulateKill()
            }
            #expect(ended)
        }
    }

    @Test("A full disk can be read and emptied; puts say that it is full", arguments: [0, 1, 100, 2000])
    func fullDisk(room: Int) throws {
        let lab = try Lab()
        for number in 0..<60 {
            try lab.store.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata())
        }
        lab.disk.capacity = lab.disk.used + room
        var refusal: StoreError?
        for number in 60..<90 where refusal == nil {
            do {
                try lab.store.put(lab.bytes(number), for: lab.key(number), metadata: lab.metadata())
            } catch let error as StoreError {
                refusal = error
            }
        }
        #expect(refusal?.code == .diskFull)
        for number in 0..<60 { #expect(try lab.store.read(lab.key(number))?.data == lab.bytes(number)) }
        // The disk is full to the last byte, whatever the store has left free.
        lab.disk.capacity = lab.disk.used
        #expect(try lab.store.remove([lab.key(0), lab.key(1)]).removedEntries == 2)
        lab.disk.capacity = lab.disk.used
        #expect(try lab.store.evict(toBytes: 10_000).removedBlobs > 0)
        #expect(try lab.store.read(lab.key(0)) == nil)
        try lab.reopen()
        #expect(try lab.store.read(lab.key(0)) == nil)
        #expect(try lab.store.verify().ok)
        lab.disk.capacity = nil
        try lab.store.put(lab.bytes(0), for: lab.key(0), metadata: lab.metadata())
        try lab.reopen()
        #expect(try lab.store.read(lab.key(0))?.data == lab.bytes(0))
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A disk that fills up in the middle of a batch keeps whole puts only")
    func fullInBatch() throws {
        for room in stride(from: 0, to: 9000, by: 97) {
            let lab = try Lab()
            try lab.store.put(lab.bytes(0), for: lab.key(0), metadata: lab.metadata())
            lab.disk.capacity = lab.disk.used + room
            let batch = (1..<9).map { TilePut(key: lab.key($0), data: lab.bytes($0), metadata: lab.metadata()) }
            do {
                try lab.store.put(batch)
            } catch let error as StoreError {
                #expect(error.code == .diskFull, "room \(room): \(error)")
            }
            lab.disk.capacity = nil
            #expect(try lab.store.invariantViolations() == [], "room \(room)")
            let before = try lab.store.snapshot()
            lab.kill()
            try lab.reopen()
            #expect(try lab.store.snapshot() == before, "room \(room)")
            for number in 0..<9 {
                if let tile = try lab.store.read(lab.key(number)) { #expect(tile.data == lab.bytes(number)) }
            }
        }
    }

    @Test("A lower capacity makes room on a full disk, also at an opening", arguments: [0, 40, 90, 150, 300, 1000])
    func aLowerCapacityEmptiesAFullDisk(room: Int) throws {
        for isOpening in [false, true] {
            let lab = try Lab()
            try lab.put(0..<60)
            lab.disk.capacity = lab.disk.used + room
            if isOpening {
                lab.configuration.capacity = 10 * 4096
                try lab.reopen()
            } else {
                try lab.store.setLimits(StoreLimits(capacity: 10 * 4096))
            }
            lab.disk.capacity = nil
            #expect(try lab.store.read(lab.key(59))?.data == lab.bytes(59))
            // Of an eviction that was recorded in part first, no blob is left behind either.
            #expect(try lab.store.invariantViolations() == [], "opening: \(isOpening)")
        }
    }

    /// A put relied on a blob's file that had been seen a moment before, and that a removal had given up for room meanwhile.
    @Test func aBlobThatMadeRoomOnAFullDiskIsNotTakenForThere() throws {
        let lab = try Lab()
        try lab.put(0..<1)
        // Seen to be there.
        try lab.store.put(lab.bytes(0), for: lab.key(1), metadata: lab.metadata())
        lab.files.fail(.init(at: 0, number: ENOSPC, scope: .space, persistent: true))
        #expect(throws: StoreError.self) { try lab.store.remove([lab.key(0), lab.key(1)]) }
        lab.files.fail(nil)
        #expect(lab.disk.contents(lab.digest(0).path) == nil)
        try lab.store.put(lab.bytes(0), for: lab.key(2), metadata: lab.metadata())
        #expect(try lab.store.read(lab.key(2))?.data == lab.bytes(0))
    }

    @Test func blobsReplacedByPartOfABatchGoAlsoWhereTheDiskIsFull() throws {
        var cut = 0
        for room in stride(from: 8000, to: 10_000, by: 97) {
            let lab = try Lab()
            try lab.put(0..<9)
            lab.disk.capacity = lab.disk.used + room
            do {
                try lab.store.put(
                    (0..<8).map {
                        TilePut(key: lab.key($0), data: lab.bytes($0 + 100), metadata: lab.metadata())
                    })
            } catch let error as StoreError {
                #expect(error.code == .diskFull, "room \(room): \(error)")
            }
            lab.disk.capacity = nil
            let replaced = try (0..<8).filter { try lab.store.read(lab.key($0))?.data != lab.bytes($0) }
            if (1..<8).contains(replaced.count) { cut += 1 }
            #expect(try lab.store.invariantViolations() == [], "room \(room)")
        }
        #expect(cut > 0, "some batch was recorded in part")
    }
}
