import Testing
import TileStore
import TileStoreTesting

/// The process is killed, or the power is cut, at every operation of a script.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct CrashSweepTests {
    @Test(
        "Killed at any operation, a cache has the state of before or after the step", arguments: 0..<8 as Range<UInt64>)
    func killedAnywhere(seed: UInt64) {
        var random = SplitMix64(seed: seed &+ 9000)
        let images = seed % 4 == 2
        let steps = Step.sweepScript(count: images ? 25 : 40, images: images, using: &random)
        let setting = ScriptSetting(memoryTier: seed % 4 == 3, durable: seed % 2 == 1, images: images)
        for torn in [false, true] {
            let failure = SweepFault.everywhere { sweep(steps, setting: setting, fault: .kill(torn: torn), at: $0) }
            #expect(failure == nil, "seed \(seed), torn \(torn)\n\(source(of: steps, setting: setting))")
        }
    }

    /// Compactions that are given up, whose journals the next ones end.
    static let givenUp: [Step] = [
        .limit(blocks: 30, entries: 12), .put(PutStep(1, 3, 1)), .put(PutStep(2, 4, 2)), .compactBegin, .compactStep(1),
        .put(PutStep(3, 5, 3)), .compactAbandon, .batch([PutStep(4, 6, 4), PutStep(1, 7, 5)]), .compactBegin,
        .compactAbandon, .remove([2], pinned: true), .put(PutStep(5, 3, 6)), .compactBegin, .put(PutStep(6, 8, 7)),
        .compactStep(9), .compactFinish, .put(PutStep(7, 9, 8)), .compactBegin, .compactAbandon, .compactBegin,
        .compactStep(2), .compactAbandon, .put(PutStep(8, 10, 9)), .get(4), .compact, .put(PutStep(9, 11, 10)), .flush,
    ]

    @Test("Killed at any operation between compactions that are given up", arguments: 0..<4)
    func killedBetweenCompactionsThatAreGivenUp(kind: Int) {
        let setting = ScriptSetting(durable: kind % 2 == 1, images: kind >= 2)
        for torn in [false, true] {
            let failure = SweepFault.everywhere {
                sweep(Self.givenUp, setting: setting, fault: .kill(torn: torn), at: $0)
            }
            #expect(failure == nil, "torn \(torn), \(setting)")
        }
    }

    @Test("A power cut between compactions that are given up", arguments: 0..<120 as Range<UInt64>)
    func powerCutBetweenCompactionsThatAreGivenUp(seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 130_000)
        let steps = Array(Self.givenUp.prefix(4 + random.below(Self.givenUp.count - 3)))
        try powerCut(steps, seed: seed, durable: seed % 2 == 0, images: seed % 3 == 1, using: &random)
    }

    @Test("Killed while a cache is made or opened, it opens the next time")
    func killedWhileOpening() throws {
        for operation in 0..<1000 {
            for torn in [false, true] {
                let clock = ManualClock()
                let disk = SimulatedDisk(clock: clock, blockSize: 64)
                let files = SimulatedFileSystem(disk)
                files.crash(at: operation, torn: torn)
                var died = false
                do {
                    let store = try TileStore(
                        environment: clock.environment(files), configuration: StoreConfiguration())
                    died = files.hasStruck
                    store.simulateKill()
                } catch {
                    died = true
                    #expect(error is StoreError)
                }
                files.kill()
                let second = try TileStore(
                    environment: clock.environment(SimulatedFileSystem(disk), seed: 2),
                    configuration: StoreConfiguration())
                #expect(try second.invariantViolations() == [], "operation \(operation)")
                #expect(try workOn(second, clock: clock) == nil, "operation \(operation)")
                second.simulateKill()
                if !died { return }
            }
        }
        Issue.record("opening never came to its end")
    }

    @Test("A power cut takes nothing that a durable cache has acknowledged", arguments: 0..<300 as Range<UInt64>)
    func durablePowerCut(seed: UInt64) throws { try powerCut(seed: seed, durable: true) }

    @Test("A power cut never makes a relaxed cache give wrong bytes", arguments: 0..<300 as Range<UInt64>)
    func relaxedPowerCut(seed: UInt64) throws { try powerCut(seed: seed, durable: false) }

    @Test(
        "A power cut takes nothing that a durable store has acknowledged, nor makes any bytes wrong, whatever relaxed ones do",
        arguments: 0..<150 as Range<UInt64>)
    func mixedPowerCut(seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 110_000)
        let bench = MixedBench(images: seed % 4 == 3, seed: seed)
        for round in 1...3 {
            for _ in 0..<(2 + random.below(24)) { try bench.step(&random) }
            if random.oneIn(2) { bench.interruptedStep(&random) }
            bench.powerCut(&random)
            let wrong = try bench.check(durable: random.oneIn(2))
            #expect(wrong == [], "seed \(seed), round \(round)")
            guard wrong.isEmpty else { return print(bench.log.joined(separator: "\n")) }
        }
    }

    private func powerCut(seed: UInt64, durable: Bool) throws {
        var random = SplitMix64(seed: seed &+ 70_000)
        let images = seed % 3 == 1
        let steps = Step.sweepScript(count: 5 + random.below(60), images: images, using: &random)
        try powerCut(steps, seed: seed, durable: durable, images: images, using: &random)
    }

    private func powerCut(
        _ steps: [Step], seed: UInt64, durable: Bool, images: Bool, using random: inout SplitMix64
    ) throws {
        let clock = ManualClock()
        let disk = SimulatedDisk(clock: clock, blockSize: 64, recordsChanges: true)
        let setting = ScriptSetting(durable: durable, images: images)
        let bench = try StoreBench(place: .simulated(disk), clock: clock, setting: setting)
        let text: String = source(of: steps, setting: setting)
        // Half of them lose their power in the middle of a step.
        var possible: [StoreSnapshot] = []
        let dies = random.oneIn(2)
        let stop = random.below(steps.count)
        for (index, step) in steps.enumerated() {
            if dies, index == stop {
                bench.processes[0]?.files?.crash(at: random.below(12), torn: random.oneIn(2))
            }
            let before = bench.model
            bench.model.trail = [before.snapshot()]
            let observed = try? bench.applyForSweep(step)
            let expected = bench.applyToModel(step)
            possible = bench.model.trail ?? []
            bench.model.trail = nil
            if bench.processes[0]?.files?.hasStruck ?? true { break }
            possible = [bench.model.snapshot()]
            if let observed, let expected { #expect(bench.agree(observed, expected, before)) }
        }
        disk.powerCut(using: &random)
        bench.finish()
        let second = SimulatedFileSystem(disk)
        let store = try TileStore(
            environment: clock.environment(second, seed: 3, bootID: "boot-2"), configuration: bench.configuration())
        defer { store.simulateKill() }
        if durable {
            let snapshot = try store.snapshot()
            if !possible.contains(snapshot) {
                // A step of several records may have been done in part; one that was acknowledged not.
                let why = difference(snapshot, possible[0]) ?? ""
                if possible.count == 1 || !dies { Issue.record("seed \(seed): \(why)\n\(text)") }
            }
        }
        var entries: [TileEntry] = []
        try store.forEachEntry { entries.append($0) }
        for entry in entries {
            let tile = try store.read(entry.key)
            if let tile, let blob = tile.entry.blob {
                #expect(tile.data == Universe.payloadByDigest[blob], "seed \(seed): wrong bytes for \(entry.key)")
            }
            if durable, tile == nil { Issue.record("seed \(seed): \(entry.key) is lost\n\(text)") }
        }
        _ = try store.verify(repair: true)
        let report = try store.verify()
        #expect(report.ok && report.orphans.isEmpty, "seed \(seed): \(report)")
        // What was interrupted may have left more than the limits allow; the next eviction settles that.
        _ = try store.evict()
        #expect(try store.invariantViolations() == [], "seed \(seed)")
        #expect(try workOn(store, clock: clock) == nil, "seed \(seed)")
    }
}
