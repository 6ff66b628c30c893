import Foundation
import TileStoreTesting

@testable import TileStore

/// What is done to a manifest, by one of two processes.
struct ManifestStep {
    enum Kind {
        case put(Int), gone(Int), several([Int]), rotate, reopen
        /// Reads on without the lock.
        case follow
    }

    var process: Int
    var kind: Kind

    static func script(_ count: Int, _ random: inout SplitMix64) -> [ManifestStep] {
        (0..<count).map { _ in
            let key = random.below(ManifestBench.keys.count)
            let kind: Kind =
                switch random.below(12) {
                case 0...3: .put(key)
                case 4, 5: .gone(key)
                case 6, 7:
                    .several([key, random.below(ManifestBench.keys.count), random.below(ManifestBench.keys.count)])
                case 8, 9: .rotate
                case 10: .follow
                default: .reopen
                }
            return ManifestStep(process: random.below(2), kind: kind)
        }
    }
}

/// A manifest alone, without blobs, as two processes have it, beside what should be in it.
final class ManifestBench {
    static let keys: [TileKey] = (0..<6).compactMap { try? TileKey(source: "s\($0 % 2)", z: 9, x: $0, y: 3) }

    /// A ledger, and the tables that its lines make.
    final class Process {
        let files: SimulatedFileSystem
        let ledger: Ledger
        private var tables: Striped<Tables, ReaderLocal>?

        init(_ disk: SimulatedDisk, _ clock: ManualClock, _ seed: UInt64, _ durable: Bool) {
            files = SimulatedFileSystem(disk)
            ledger = Ledger(
                environment: clock.environment(files, seed: seed), durable: durable, usesImages: false,
                gate: LockGate())
        }

        /// Opens it, or does nothing.
        func open() throws {
            guard tables == nil else { return }
            try CacheFolder.makeFolders(files)
            try ledger.acquire(wait: 0, folderIsNew: true)
            defer { ledger.release() }
            if try files.newestCheckpoint() == nil { try ledger.createFirst(isNew: true) }
            guard let loaded = try ledger.load(underLock: true) else { throw Disagreement("nothing was loaded") }
            tables = Striped(loaded, local: ReaderLocal.init)
        }

        func hold(_ body: (Ledger, Striped<Tables, ReaderLocal>) throws -> Void) throws {
            try open()
            guard let tables else { return }
            try ledger.acquire(wait: 0, folderIsNew: true)
            defer { ledger.release() }
            try advance(tables, underLock: true)
            do { try body(ledger, tables) } catch let failure as AppendFailure { throw failure.cause }
        }

        /// Reads on, under the lock only where a line has to be judged.
        func follow() throws {
            try open()
            guard let tables else { return }
            try advance(tables, underLock: false)
            if ledger.damage.needsJudgement { try hold { _, _ in } }
        }

        private func advance(_ tables: Striped<Tables, ReaderLocal>, underLock: Bool) throws {
            guard try !ledger.advance(.live(tables), underLock: underLock) else { return }
            if let fresh = try ledger.load(underLock: underLock) {
                tables.write(visiting: { _, _ in }, then: { $0 = fresh })
            }
        }

        /// The recency of each key that has an entry.
        var state: [Int: UInt64] {
            guard let tables else { return [:] }
            return tables.read { t, _ in
                var state: [Int: UInt64] = [:]
                for (i, key) in ManifestBench.keys.enumerated() {
                    if let slot = t.packed(key).flatMap({ t.find($0) }) { state[i] = t.entry(slot).recency }
                }
                return state
            }
        }
    }

    let clock = ManualClock()
    let disk: SimulatedDisk
    private(set) var processes: [Process] = []
    private let isDurable: Bool
    private var seed: UInt64 = 1
    /// What the lines that stand for certain say.
    private(set) var expected: [Int: UInt64] = [:]
    /// What the lines of the step that failed may say besides, each after the one before.
    private var possible: [[Int: UInt64]] = []

    init(durable: Bool = false, recordsChanges: Bool = false) throws {
        disk = SimulatedDisk(clock: clock, blockSize: 64, recordsChanges: recordsChanges)
        isDurable = durable
        for _ in 0..<2 { processes.append(process()) }
        // The second one makes the manifest: the first is the one that faults are for.
        try processes[1].open()
        try processes[1].files.syncFolder("")
    }

    private func process() -> Process {
        seed += 1
        return Process(disk, clock, seed, isDurable)
    }

    /// A process dies and another one takes its place.
    func restart(_ number: Int) {
        processes[number].files.kill()
        processes[number] = process()
    }

    func apply(_ step: ManifestStep) throws {
        // Looks at names are at most one in 10 ms: here each step takes one.
        clock.advance(nanoseconds: 20_000_000)
        possible = []
        let process = processes[step.process]
        switch step.kind {
        case .put(let key): try put([key], process)
        case .several(let keys): try put(keys, process)
        case .gone(let key):
            try process.hold { ledger, tables in
                var lines = LineBuffer()
                lines.gone([Self.keys[key]])
                try append(lines, [expected.filter { $0.key != key }], ledger, tables)
            }
        case .rotate: try process.hold { ledger, tables in try ledger.rotate(.live(tables)) }
        case .reopen:
            processes[step.process].ledger.close()
            restart(step.process)
            try processes[step.process].open()
        case .follow: try process.follow()
        }
    }

    private func put(_ keys: [Int], _ process: Process) throws {
        try process.hold { ledger, tables in
            var lines = LineBuffer()
            var sets = PendingSets()
            var states: [[Int: UInt64]] = []
            var state = expected
            let metadata = TileMetadata(
                response: ResponseFields(mediaType: "image/png"), storedAt: clock.now,
                expires: clock.now.adding(seconds: 60))
            for (i, key) in keys.enumerated() {
                let recency = ledger.glance.nextSequence + UInt64(i)
                guard let set = tables.read({ t, _ in sets.number(for: metadata.response, t, ledger, &lines) }) else {
                    throw Disagreement("no number for a set")
                }
                lines.put(Self.keys[key], blob: nil, size: 0, set: set, metadata, recency: recency)
                state[key] = recency
                states.append(state)
            }
            try append(lines, states, ledger, tables)
        }
    }

    private func append(
        _ lines: borrowing LineBuffer, _ states: [[Int: UInt64]], _ ledger: Ledger,
        _ tables: Striped<Tables, ReaderLocal>
    ) throws {
        possible = states
        try ledger.append(lines, .live(tables))
        expected = states.last ?? expected
        possible = []
    }

    /// What a process does not have as it should; whole lines of the step that failed may stand.
    func difference(_ number: Int) throws -> String? {
        try processes[number].follow()
        let state = processes[number].state
        guard state == expected || possible.contains(state) else {
            return "process \(number) has \(state), expected \(expected) or \(possible)"
        }
        (expected, possible) = (state, [])
        if processes[number].ledger.damagedLines > 0 { return "process \(number) found damage" }
        return nil
    }

    struct Disagreement: Error, CustomStringConvertible {
        let description: String
        init(_ description: String) { self.description = description }
    }
}
