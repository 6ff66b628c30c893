import Foundation
import TileStore

extension GrowthRun {
    /// Opening in a new process, from JSON alone and from the derived index where there is one, its memory, and what
    /// `tilegc stats` does.
    func open() throws -> [Figure] {
        let key = try cache.hotKeys().first.orThrow()
        func child() throws -> ChildReport { try Child.open(.store, at: cache.path, key: key) }
        var figures: [Figure] = []
        func add(_ reports: [ChildReport], row: String, how: String, seconds limit: Double?) {
            let times = reports.map(\.openSeconds)
            figures.append(
                Figure(
                    row: row, what: "open, \(how)", unit: .seconds, ours: median(times),
                    target: limit.map { .atMost($0) },
                    samples: ["ours": times]))
            let bytes = reports.map { Double($0.residentBytes) / Double(cache.entries) }
            figures.append(
                Figure(
                    row: row + "-resident", what: "resident memory after that", unit: .bytesAnEntry,
                    ours: median(bytes),
                    target: cache.entries >= 10_000_000 ? .atMost(110) : nil, samples: ["ours": bytes]))
        }
        func statistics(row: String, how: String) throws {
            let times = try (0..<rounds).map { _ in
                try seconds {
                    let entries = try Child.output(of: ["stats", cache.path])
                    try require(Int(entries) == cache.entries, "stats found \(entries) entries")
                }
            }
            figures.append(
                Figure(
                    row: row, what: "a process that opens \(how) and adds up its figures", unit: .seconds,
                    ours: median(times), target: cache.entries >= 10_000_000 && how != "from JSON" ? .atMost(1) : nil,
                    samples: ["ours": times]))
        }

        if try !cache.manifestFiles(prefix: "index-").isEmpty {
            _ = try child()
            add(
                try (0..<rounds).map { _ in try child() }, row: "growth-open-image", how: "from the index",
                seconds: limit([1_000_000: 0.05, 10_000_000: 0.25]))
            try statistics(row: "growth-stats", how: "from the index")
        }
        func fromJSON() throws -> ChildReport {
            for path in try cache.manifestFiles(prefix: "index-") { try FileManager.default.removeItem(atPath: path) }
            return try child()
        }
        _ = try fromJSON()
        add(
            try (0..<rounds).map { _ in try fromJSON() }, row: "growth-open-json", how: "from JSON",
            seconds: limit([1_000_000: 0.4, 10_000_000: 5]))
        if figures.count == 2 { try statistics(row: "growth-stats", how: "from JSON") }
        return figures
    }

    private func limit(_ limits: KeyValuePairs<Int, Double>) -> Double? {
        limits.first { $0.key == cache.entries }?.value
    }
}
