import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

// Comparing the store with the model.
extension StoreBench {
    /// Compares the store that is in use with the model, and checks the invariants.
    package func check(thoroughly: Bool) throws -> String? {
        if let hiddenFailure { return hiddenFailure }
        let store = try self.store
        try store.catchUp()
        let violations = try store.invariantViolations()
        if !violations.isEmpty { return "invariants: \(violations)" }
        let expected = model.snapshot()
        if let difference = difference(try store.snapshot(), expected) { return difference }
        if model.isOverLimits { return "the model is over its limits" }
        let begun = processes.reduce(0) { $0 + ($1?.bodies.values.count(where: \.isInFile) ?? 0) }
        if let stagedFiles, stagedFiles.count != begun {
            return "staging has \(stagedFiles) for \(begun) bodies that are being written"
        }
        guard thoroughly else { return nil }
        if let difference = try checkFigures(store) { return difference }
        if let other = processes[1 - current] {
            try other.store.catchUp()
            processes[1 - current]?.viewSince = history.count
            if let difference = difference(try other.store.snapshot(), expected) { return "other store: \(difference)" }
        }
        return try checkFresh()
    }

    /// What a newly opened store has must be what the model has.
    package func checkFresh() throws -> String? {
        let files = makeFiles()
        let fresh = try open(files, readOnly: true)
        defer {
            fresh.simulateKill()
            (files as? SimulatedFileSystem)?.kill()
        }
        return difference(try fresh.snapshot(), model.snapshot()).map { "freshly opened store: \($0)" }
    }

    /// Whether entries are visited while their tables are replaced: not in every script, as it takes its time.
    private var overtakesWalks: Bool { clock.ticks / 3_000_000 % 4 == 0 }

    func checkFigures(_ store: TileStore) throws -> String? {
        let figures = try store.statistics()
        let entries = model.entries.values
        let now = clock.now
        let pairs: [(String, Int, Int)] = [
            ("entries", figures.entries, entries.count),
            ("blobs", figures.blobs, model.blobs.count),
            ("bytes", figures.bytes, model.blobs.values.reduce(0) { $0 + $1.size }),
            ("allocatedBytes", figures.allocatedBytes, model.blobs.values.reduce(0) { $0 + model.allocated($1.size) }),
            ("logicalBytes", figures.logicalBytes, entries.reduce(0) { $0 + $1.size }),
            ("fresh", figures.fresh, entries.filter { !$0.metadata.isStale(at: now) }.count),
            ("stale", figures.stale, entries.filter { $0.metadata.isStale(at: now) }.count),
            ("pinnedEntries", figures.pinnedEntries, entries.filter(\.isPinned).count),
            (
                "pinnedBytes", figures.pinnedBytes,
                model.blobs.values.reduce(0) { $0 + ($1.pins > 0 ? model.allocated($1.size) : 0) }
            ),
        ]
        for (name, mine, theirs) in pairs where mine != theirs {
            return "statistics: \(name) is \(mine), the model has \(theirs)"
        }
        var order: [TileKey] = []
        var isOvertaken = false
        try store.forEachEntry(in: .recency) {
            order.append($0.key)
            // Other processes go on while the entries are visited.
            if order.count == 2, overtakesWalks, !isOvertaken {
                isOvertaken = true
                try overtake()
                try store.catchUp()
            }
        }
        let expected = model.entries.sorted { $0.value.recency < $1.value.recency }.map(\.key)
        if order != expected { return "entries in order of use: \(order), the model has \(expected)" }
        for (digest, blob) in model.blobs where try store.references(to: digest) != blob.references {
            return "references to \(digest): the model has \(blob.references)"
        }
        return nil
    }

    /// Kills all processes.
    package func finish() {
        for number in 0..<2 { kill(number) }
        closeReader()
        for lane in lanes.values { lane.end() }
        (lanes, lane) = ([:], 0)
    }
}
