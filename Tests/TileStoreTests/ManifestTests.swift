import Testing
import TileStoreTesting

@testable import TileStore

/// The manifest alone: what stands in the journal is what every process has, whatever fails.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ManifestTests {
    /// Runs a script with a fault of the first process, and looks at what both have after it.
    private static func run(
        _ steps: [ManifestStep], durable: Bool, fault: SweepFault, at operation: Int
    ) throws -> SweepEnd {
        let bench = try ManifestBench(durable: durable)
        let files = bench.processes[0].files
        fault.strike(files, at: operation)
        for step in steps {
            do { try bench.apply(step) } catch {
                guard error is FileError || error is StoreError else { return .failed("\(step): \(error)") }
                guard files.hasStruck else { return .failed("\(step): threw \(error) without a fault") }
            }
            guard files.hasStruck else { continue }
            if case .kill = fault { bench.restart(0) } else { files.fail(nil) }
            // Who is on the other side first, then who was hit.
            for process in [1, 0, 1] {
                if let difference = try bench.difference(process) { return .failed("\(step): \(difference)") }
            }
            for process in [1, 0] {
                for kind in [ManifestStep.Kind.put(0), .rotate, .several([1, 2]), .gone(0)] {
                    try bench.apply(ManifestStep(process: process, kind: kind))
                }
                for other in [0, 1] {
                    if let difference = try bench.difference(other) {
                        return .failed("\(step), afterwards: \(difference)")
                    }
                }
            }
            return .fine
        }
        return .notReached
    }

    private static func sweep(_ fault: SweepFault, seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 41_000)
        // A process that is opened anew has other files: there the fault would never strike.
        let steps = ManifestStep.script(24, &random).filter {
            if case .reopen = $0.kind { $0.process == 1 } else { true }
        }
        let failure = try SweepFault.everywhere { try run(steps, durable: seed % 2 == 1, fault: fault, at: $0) }
        #expect(failure == nil, "seed \(seed)\n\(steps)")
    }

    @Test(arguments: 0..<6 as Range<UInt64>, [false, true])
    func killedAnywhereWholeLinesStand(seed: UInt64, torn: Bool) throws {
        try Self.sweep(.kill(torn: torn), seed: seed)
    }

    @Test(arguments: 0..<4 as Range<UInt64>, FaultSweepTests.kinds)
    func whateverFailsWholeLinesStand(seed: UInt64, kind: FaultSweepTests.Kind) throws {
        try Self.sweep(
            .fail(number: kind.number, scope: kind.scope, persistent: kind.persistent, short: kind.short), seed: seed)
    }

    @Test(arguments: 0..<60 as Range<UInt64>)
    func aPowerCutTakesNoLineThatWasSynced(seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 42_000)
        let bench = try ManifestBench(durable: true, recordsChanges: true)
        for step in ManifestStep.script(5 + random.below(30), &random) { try bench.apply(step) }
        bench.disk.powerCut(using: &random)
        for process in [0, 1] { bench.restart(process) }
        for process in [0, 1] { #expect(try bench.difference(process) == nil) }
    }

    @Test(arguments: 0..<40 as Range<UInt64>)
    func twoProcessesFollowEachOther(seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 43_000)
        let bench = try ManifestBench()
        for step in ManifestStep.script(60, &random) {
            try bench.apply(step)
            #expect(try bench.difference(random.below(2)) == nil, "\(step)")
        }
        for process in [0, 1] { #expect(try bench.difference(process) == nil) }
        let (first, second) = (bench.processes[0].ledger, bench.processes[1].ledger)
        #expect(first.generation == second.generation && first.offset == second.offset)
    }

    @Test func aTornTailIsCutByWhoHoldsTheLock() throws {
        let bench = try ManifestBench()
        try bench.apply(ManifestStep(process: 0, kind: .put(1)))
        let path = Ledger.journalPath(0)
        let whole = try #require(bench.disk.contents(path))
        bench.disk.corrupt(path) { $0 += Array("{\"key\":\"s1/9".utf8) }
        for process in [0, 1] { #expect(try bench.difference(process) == nil) }
        #expect(bench.disk.contents(path) != whole, "only a holder of the lock may cut")
        try bench.processes[1].hold { _, _ in }
        #expect(bench.disk.contents(path) == whole)
    }

    @Test func aLineIsDamagedWhereARightOneFollows() throws {
        let bench = try ManifestBench()
        for key in [1, 2, 3] { try bench.apply(ManifestStep(process: 0, kind: .put(key))) }
        bench.disk.corrupt(Ledger.journalPath(0)) { bytes in
            let ends = bytes.indices.filter { bytes[$0] == 0x0A }
            bytes[ends[ends.count - 2] - 30] ^= 1
        }
        let process = bench.processes[1]
        try process.follow()
        #expect(process.ledger.damagedLines == 1)
        #expect(Set(process.state.keys) == [1, 3])
    }
}
