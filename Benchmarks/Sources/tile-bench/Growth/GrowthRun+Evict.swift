import Foundation
import TileStore

extension GrowthRun {
    /// Evicting 100,000 entries (fewer from a small cache) while two threads read hot tiles from disk.
    ///
    /// The readers ask every 50 µs, as a busy server would: three threads that never wait on two processors would measure
    /// the scheduler. The floor is the same beside a thread that only computes.
    func evict() throws -> [Figure] {
        let store = try cache.open()
        let hot = try cache.hotKeys()
        for key in hot { _ = try store.read(key) }
        try store.flush()
        let before = try store.statistics()
        let doomed = min(50_000, cache.entries / 20)
        let allocated = (cache.blobBytes + 4_095) / 4_096 * 4_096
        let goal = before.allocatedBytes - doomed * allocated

        let report = Box(RemovalReport())
        let time = Box(0.0)
        @Sendable func read(_ number: Int) -> Bool { (try? store.read(hot[number &* 7 % hot.count])) != nil }
        let computing = try latency(of: read) {
            let end = nanoseconds() + 2_000_000_000
            var random = SplitMix64(seed: 1)
            while nanoseconds() < end { withExtendedLifetime(random.data(count: 4_096)) {} }
        }
        let evicting = try latency(of: read) {
            time.content = seconds { report.content = (try? store.evict(toBytes: goal)) ?? RemovalReport() }
        }
        try store.close()
        let removed = report.content
        try require(removed.removedBlobs >= doomed, "\(removed.removedBlobs) blobs of \(doomed) were evicted")
        func figure(_ row: String, _ what: String, _ ours: Double, _ floor: Double, limit: Double?) -> Figure {
            Figure(
                row: row, what: "\(what) while \(removed.removedEntries) entries are evicted, two readers",
                unit: .milliseconds, ours: ours, floor: floor, floorIs: "the same beside a thread that computes",
                ratio: ours / floor, target: limit.map { .atMost($0) })
        }
        return [
            figure("growth-evict-p999", "p99.9 of disk hits", evicting.p999, computing.p999, limit: 5),
            figure("growth-evict-longest", "longest disk hit", evicting.longest, computing.longest, limit: nil),
            Figure(
                row: "growth-evict", what: "eviction meanwhile", unit: .perSecond,
                ours: Double(removed.removedBlobs) / time.content),
        ]
    }

    /// Two threads read now and then for as long as a third is busy; milliseconds.
    private func latency(
        of read: @escaping @Sendable (Int) -> Bool, during work: @escaping @Sendable () -> Void
    ) throws -> (p999: Double, longest: Double) {
        let finished = Signal()
        let latencies = Box<[UInt32]>([])
        let failures = Box(0)
        _ = onThreads(3) { thread in
            if thread == 0 {
                work()
                finished.set()
                return
            }
            var mine: [UInt32] = []
            var (failed, number) = (0, thread * 3_000)
            while !finished.isSet {
                let start = nanoseconds()
                if !read(number) { failed += 1 }
                mine.append(UInt32(clamping: nanoseconds() - start))
                number &+= 1
                usleep(50)
            }
            latencies.append(mine)
            failures.add(failed)
        }
        try require(failures.content == 0, "\(failures.content) reads of kept tiles failed")
        let all = latencies.content
        return (percentile(0.999, of: all) / 1e6, Double(all.max() ?? 0) / 1e6)
    }
}

extension Box<[UInt32]> {
    fileprivate func append(_ more: [UInt32]) { change { $0 += more } }
}

extension Box<Int> {
    fileprivate func add(_ more: Int) { change { $0 += more } }
}
