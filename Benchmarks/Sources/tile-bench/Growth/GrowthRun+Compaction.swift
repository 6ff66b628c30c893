import Foundation
import TileStore

extension GrowthRun {
    /// What compaction does to a reader, to a writer and to memory.
    ///
    /// The floor of a stall is the same loop beside a thread that only computes: what the system's scheduler alone does.
    func compaction() throws -> [Figure] {
        let store = try cache.open()
        let hot = try cache.hotKeys()
        for key in hot { _ = try store.read(key) }

        // Alone first: its memory, its time, its size.
        _ = try store.compact()
        var times: [Double] = []
        var extra: [Double] = []
        var last: CompactionReport?
        for _ in 0..<rounds {
            let before = Memory.startPeak()
            times.append(try seconds { last = try store.compact() })
            extra.append(Double(max(0, Memory.peak() - before)))
        }

        let report = try last.orThrow("nothing was compacted")
        let alone = times[0]
        @Sendable func read(_ number: Int) -> Bool { (try? store.read(hot[number &* 7 % hot.count])) != nil }
        @Sendable func write(_ number: Int) -> Bool {
            (try? store.put(TileSet.ocean, for: hot[number % 3 + 2], metadata: metadata(UInt64(number)))) != nil
        }
        @Sendable func compact() { _ = try? store.compact() }
        @Sendable func compute() {
            let end = nanoseconds() + UInt64(alone * 1e9)
            var random = SplitMix64(seed: 1)
            while nanoseconds() < end { withExtendedLifetime(random.data(count: 4_096)) {} }
        }
        @Sendable func addUp() { for _ in 0..<3 { _ = try? store.statistics() } }
        var readers = Contest()
        var writers = Contest()
        let works: [(String, @Sendable () -> Void)] = [("floor", compute), ("ours", compact), ("statistics", addUp)]
        try readers.run(
            rounds: rounds, works.map { name, work in (name, { _ in try longest(of: read, during: work) }) })
        try writers.run(
            rounds: rounds, works.map { name, work in (name, { _ in try longest(of: write, during: work) }) })
        try store.close()
        let floorIs = "the same beside a thread that computes"
        return [
            Figure(
                row: "growth-checkpoint", what: "checkpoint, bytes an entry", unit: .bytesAnEntry,
                ours: Double(report.checkpointBytes) / Double(report.entries), target: .atMost(235)),
            Figure(
                row: "growth-compact", what: "compaction", unit: .seconds, ours: median(times), samples: ["ours": times]
            ),
            Figure(
                row: "growth-compact-memory", what: "compaction's extra memory at its peak", unit: .bytes,
                ours: median(extra), target: .atMost(64 * 1_048_576), samples: ["ours": extra]),
            Figure(
                "growth-stall-read", "longest disk hit during compaction", .milliseconds, readers, floorIs: floorIs,
                target: .atMost(5)),
            Figure(
                "growth-stall-put", "longest put during compaction", .milliseconds, writers, floorIs: floorIs,
                target: .atMost(5)),
            Figure(
                "growth-stall-read-stats", "longest disk hit while figures are added up", .milliseconds, readers,
                ours: "statistics", floorIs: floorIs),
            Figure(
                "growth-stall-put-stats", "longest put while figures are added up", .milliseconds, writers,
                ours: "statistics", floorIs: floorIs),
        ]
    }

    /// Does one thing over and over for as long as another thread is busy; the longest that it took, in milliseconds.
    private func longest(
        of body: @escaping @Sendable (Int) -> Bool, during work: @escaping @Sendable () -> Void
    ) throws -> Double {
        let finished = Signal()
        let worst = Box(UInt64(0))
        let failures = Box(0)
        _ = onThreads(2) { thread in
            if thread == 0 {
                work()
                finished.set()
                return
            }
            var (longest, failed, number) = (UInt64(0), 0, 0)
            while !finished.isSet {
                let start = nanoseconds()
                if !body(number) { failed += 1 }
                longest = max(longest, nanoseconds() - start)
                number &+= 1
            }
            worst.content = longest
            failures.content = failed
        }
        try require(failures.content == 0, "\(failures.content) operations failed during compaction")
        return Double(worst.content) / 1e6
    }
}
