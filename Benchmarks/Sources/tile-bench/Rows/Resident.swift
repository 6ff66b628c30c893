import Foundation
import TileStore

extension Bench {
    /// Resident memory of a process that has opened the large cache and read one tile of it, everything included.
    func resident() throws -> [Figure] {
        let large = try LargeCache(in: self)
        let key = try LargeCache.someKey(of: tiles)
        let empty = workspace.path("empty")
        let emptyStore = try TileStore(at: empty)
        try emptyStore.put(TileSet.ocean, for: key, metadata: metadata(0))
        try emptyStore.close()

        let entries = Double(large.entries)
        var fromIndex: [Double] = []
        if try large.hasIndex() {
            fromIndex = try (0..<3).map { _ in
                Double(try Child.open(.store, at: large.store, key: key).residentBytes) / entries
            }
        }
        var contest = Contest()
        try contest.run(
            rounds: 3,
            [
                ("floor", { _ in Double(try Child.open(.store, at: empty, key: key).residentBytes) / entries }),
                (
                    "ours",
                    { _ in
                        try large.removeIndex()
                        return Double(try Child.open(.store, at: large.store, key: key).residentBytes) / entries
                    }
                ),
            ]
                + Peer.installed.map { peer in
                    (
                        peer.rawValue,
                        { _ in
                            Double(try Child.open(.peer(peer), at: large.path(of: peer), key: key).residentBytes)
                                / entries
                        }
                    )
                })
        var figures = [
            Figure(
                "resident", "resident memory, \(large.entries) entries, from JSON", .bytesAnEntry, contest,
                floorIs: "the same program with a cache of one entry", target: .atMost(130))
        ]
        if !fromIndex.isEmpty {
            figures.append(
                Figure(
                    row: "resident", what: "resident memory, opened from the index", unit: .bytesAnEntry,
                    ours: median(fromIndex), target: .atMost(130), samples: ["ours": fromIndex]))
        }
        return figures
    }
}
