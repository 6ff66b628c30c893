package import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension Step {
    /// A script for sweeps: one store, steps that mostly make one record each.
    package static func sweepScript(count: Int, images: Bool = false, using random: inout SplitMix64) -> [Step] {
        let setting = ScriptSetting(images: images)
        var steps: [Step] = [.limit(blocks: 12, entries: 12)]
        while steps.count < count {
            for step in script(count: 20, setting: setting, using: &random) {
                switch step {
                case .damage, .reopen, .reopenLimited, .crash, .restart, .use, .closeOther, .glance, .follow, .verify,
                    .clock:
                    continue
                case .limit(let blocks, _) where blocks == 0: continue
                default: steps.append(step)
                }
            }
        }
        return Array(steps.prefix(count))
    }
}

/// How a sweep's run ended.
package enum SweepEnd: Equatable {
    /// The script was over before the fault's turn came.
    case notReached
    case fine
    case failed(String)
}

/// What is done to the files at some operation of a script.
package enum SweepFault {
    /// The process is killed.
    case kill(torn: Bool)
    /// The operation fails.
    case fail(number: Int32, scope: SimulatedFileSystem.Scope, persistent: Bool, short: Bool)

    /// Has it strike at the n-th operation from now on.
    package func strike(_ files: SimulatedFileSystem, at operation: Int) {
        switch self {
        case .kill(let torn): files.crash(at: operation, torn: torn)
        case .fail(let number, let scope, let persistent, let short):
            files.fail(
                SimulatedFileSystem.Fault(
                    at: operation, number: number, scope: scope, persistent: persistent, short: short))
        }
    }

    /// Runs something once for each of its operations, until none is left to strike at.
    ///
    /// - Returns: What went wrong first; `nil` if nothing did.
    package static func everywhere(_ run: (_ operation: Int) throws -> SweepEnd) rethrows -> String? {
        for operation in 0..<20_000 {
            switch try run(operation) {
            case .notReached: return nil
            case .fine: continue
            case .failed(let why): return "operation \(operation): \(why)"
            }
        }
        return "it never came to its end"
    }
}

/// Runs a script with a fault at its n-th operation, reopens the cache and compares it with the model as it was before
/// and after the step that was hit.
package func sweep(_ steps: [Step], setting: ScriptSetting, fault: SweepFault, at operation: Int) -> SweepEnd {
    let clock = ManualClock()
    let disk = SimulatedDisk(clock: clock, blockSize: 64)
    var place = "opening"
    do {
        let bench = try StoreBench(place: .simulated(disk), clock: clock, setting: setting)
        defer { bench.finish() }
        guard let files = bench.processes[0]?.files else { return .failed("no process") }
        fault.strike(files, at: operation)
        for (index, step) in steps.enumerated() {
            place = "operation \(operation) in step \(index), \(step)"
            let before = bench.model
            var observed: Outcome?
            var thrown: (any Error)?
            do {
                observed = try bench.applyForSweep(step)
            } catch {
                thrown = error
            }
            bench.model.trail = [before.snapshot()]
            let usesBefore = bench.uses
            let expected = bench.applyToModel(step)
            var trail = bench.model.trail ?? []
            bench.model.trail = nil
            // What fails in its middle is stored up to there, and the limits are kept by what is stored.
            if thrown != nil, case .batch(let puts) = step {
                for count in puts.indices {
                    var (part, uses) = (before, usesBefore)
                    _ = part.put(bench.tiles(Array(puts[..<count])), uses: &uses, now: clock.now)
                    trail.append(part.snapshot())
                }
            }
            // On a full disk a removal matters more than the uses that should be written down before it.
            let usesAfter = bench.uses
            let forgetful = StoreBench.Forgetful(bench, step, before)
            bench.uses = usesAfter
            if !files.hasStruck {
                if let thrown { return .failed("\(place): threw \(thrown) without a fault") }
                let agreed =
                    observed.flatMap { o in expected.map { bench.agree(o, $0, before) } } ?? (observed == expected)
                if !agreed { return .failed("\(place): gave \(String(describing: observed))") }
                continue
            }
            if let thrown, !(thrown is StoreError) { return .failed("\(place): threw \(thrown), no StoreError") }
            // What was acknowledged must be there; what was not may be there in part.
            var acknowledged = thrown == nil
            var isFull = false
            if case .fail(let number, _, _, _) = fault { isFull = number == ENOSPC }
            if case .kill = fault { acknowledged = false }
            if acknowledged, case .get = step {
                if case .tile(let entry, let data) = observed, let entry, let blob = entry.blob {
                    if data != Universe.payloadByDigest[blob] { return .failed("\(place): gave wrong bytes") }
                }
            } else if acknowledged, let observed, let expected, !bench.agree(observed, expected, before),
                !isFull || observed != forgetful.outcome
            {
                return .failed("\(place): gave \(String(describing: observed)), not \(String(describing: expected))")
            }
            let after = bench.model.snapshot()
            trail += forgetful.trail
            func matches(_ snapshot: StoreSnapshot) -> String? {
                if acknowledged, isFull, snapshot == forgetful.after { return nil }
                if acknowledged, step.isPut {
                    // It was stored; the eviction that it made necessary failed, and is made up for by the next.
                    let stored = trail.filter { $0.nextSequence == after.nextSequence }
                    return stored.contains(snapshot) ? nil : looseDifference(snapshot, stored)
                }
                if acknowledged { return difference(snapshot, after) }
                if trail.contains(snapshot) { return nil }
                if step.mayRecordMany { return looseDifference(snapshot, [before.snapshot()] + trail) }
                return difference(snapshot, before.snapshot()).map { "neither before nor after; against before: \($0)" }
            }
            if case .fail = fault {
                // The store goes on after the failure, with tables that agree with the files.
                files.fail(nil)
                if let store = bench.processes[0]?.store {
                    try store.catchUp()
                    if let difference = matches(try store.snapshot()) {
                        let end = thrown.map { "threw \($0)" } ?? "succeeded"
                        return .failed("\(place), \(end), same store: \(difference)")
                    }
                }
            }
            bench.kill(0)
            let store = try bench.store
            let snapshot = try store.snapshot()
            if let difference = matches(snapshot) {
                return .failed("\(place), \(thrown.map { "threw \($0)" } ?? "succeeded"), reopened: \(difference)")
            }
            if let left = bench.stagedFiles, !left.isEmpty { return .failed("\(place): staging keeps \(left)") }
            let report = try store.verify()
            // A removal that cannot be recorded takes the blobs first: then their entries are misses.
            var asExpected = report
            if isFull, thrown != nil || step.isPut { asExpected.missing = [] }
            if !asExpected.ok { return .failed("\(place): reopened, verify: \(report)") }
            _ = try store.verify(repair: true)
            let second = try store.verify()
            if !second.ok || !second.orphans.isEmpty { return .failed("\(place): repaired, verify: \(second)") }
            if report.ok, try store.snapshot() != snapshot { return .failed("\(place): repairing changed the entries") }
            // What was interrupted may have left more than the limits allow; the next eviction settles that.
            _ = try store.evict()
            let violations = try store.invariantViolations()
            if !violations.isEmpty { return .failed("\(place): invariants: \(violations)") }
            return try workOn(store, clock: clock).map { .failed("\(place): afterwards \($0)") } ?? .fine
        }
        return .notReached
    } catch {
        return .failed("\(place): threw \(error)")
    }
}

/// Puts, reads, compacts and removes; returns what did not work.
package func workOn(_ store: TileStore, clock: ManualClock) throws -> String? {
    try store.setLimits(StoreLimits(capacity: 1 << 20))
    let metadata = TileMetadata(storedAt: clock.now, expires: clock.now.adding(seconds: 60))
    let key = try TileKey("after/1/1/1")
    for payload in [Universe.payloads[6], Universe.payloads[9]] {
        try store.put(payload, for: key, metadata: metadata)
        if try store.read(key)?.data != payload { return "a put is not read back" }
    }
    _ = try store.compact()
    if try store.read(key)?.data != Universe.payloads[9] { return "a put is not read back after a compaction" }
    _ = try store.remove([key])
    if try store.read(key) != nil { return "what was removed is still read" }
    let violations = try store.invariantViolations()
    return violations.isEmpty ? nil : "invariants: \(violations)"
}

/// Whether each part of a snapshot is as it was in one of several states.
private func looseDifference(_ snapshot: StoreSnapshot, _ states: [StoreSnapshot]) -> String? {
    let entries = Dictionary(snapshot.entries.map { ($0.key, $0) }) { a, _ in a }
    let possible = states.map { state in Dictionary(state.entries.map { ($0.key, $0) }) { a, _ in a } }
    for key in Set(entries.keys).union(possible.flatMap(\.keys)) {
        // Pins and uses may be recorded in another order than the model does it.
        func same(_ a: TileEntry?, _ b: TileEntry?) -> Bool {
            guard let a, let b else { return a == nil && b == nil }
            return a.blob == b.blob && a.metadata == b.metadata
        }
        if !possible.contains(where: { same($0[key], entries[key]) }) {
            return "\(key) is \(entries[key].map { "\($0)" } ?? "absent"), which it was neither before nor after"
        }
    }
    if !states.contains(where: { $0.limits == snapshot.limits }) { return "limits \(snapshot.limits)" }
    if !states.contains(where: { $0.regions == snapshot.regions }) { return "regions \(snapshot.regions)" }
    let sequences = states.map(\.nextSequence)
    if snapshot.nextSequence < sequences.min() ?? 0 || snapshot.nextSequence > sequences.max() ?? 0 {
        return "nextSequence \(snapshot.nextSequence), possible \(sequences)"
    }
    return nil
}

extension StoreBench {
    /// What a step does if the pending uses cannot be written down.
    struct Forgetful {
        var outcome: Outcome?
        var after: StoreSnapshot
        var trail: [StoreSnapshot]

        init(_ bench: StoreBench, _ step: Step, _ before: StoreModel) {
            let model = bench.model
            defer { bench.model = model }
            bench.model = before
            bench.model.trail = []
            bench.uses = StoreModel.Uses()
            outcome = bench.applyToModel(step)
            after = bench.model.snapshot()
            trail = bench.model.trail ?? []
        }
    }

    /// Does a step in the store, compactions included; `nil` for one without an outcome.
    package func applyForSweep(_ step: Step) throws -> Outcome? {
        switch step {
        case .compact:
            do {
                _ = try store.compact()
            } catch let error as StoreError where error.code == .busy {}
            return nil
        case .compactBegin:
            if processes[0]?.compaction == nil {
                let begun = try store.beginCompaction()
                processes[0]?.compaction = begun
            }
            return nil
        case .compactStep(let count):
            _ = try processes[0]?.compaction?.step(entries: count)
            return nil
        case .compactFinish:
            defer { processes[0]?.compaction = nil }
            _ = try processes[0]?.compaction?.finish()
            return nil
        case .compactAbandon:
            processes[0]?.compaction?.abandon()
            processes[0]?.compaction = nil
            return nil
        case .imageBegin:
            if processes[0]?.image == nil {
                let begun = try store.beginIndexImage()
                processes[0]?.image = begun
            }
            return nil
        case .imageStep(let bytes):
            _ = try processes[0]?.image?.step(bytes: bytes)
            return nil
        case .imageFinish:
            defer { processes[0]?.image = nil }
            _ = try processes[0]?.image?.finish()
            return nil
        default: return try applyToStore(step)
        }
    }
}
