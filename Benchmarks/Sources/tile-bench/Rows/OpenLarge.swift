import Foundation
import TileStore

extension Bench {
    /// Opening the large cache in a new process: from JSON alone, and from the derived index where there is one.
    func openLarge() throws -> [Figure] {
        let large = try LargeCache(in: self)
        let key = try LargeCache.someKey(of: tiles)
        var fromIndex = Contest()
        if try large.hasIndex() {
            try fromIndex.run(
                rounds: 5, [("ours", { _ in try Child.open(.store, at: large.store, key: key).openSeconds })])
        }
        func floor() throws -> Double {
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 128 << 10, alignment: 4096)
            defer { buffer.deallocate() }
            let files = try large.manifestFiles(prefix: "checkpoint-") + large.manifestFiles(prefix: "journal-")
            var lines = 0
            let time = try seconds {
                for path in files {
                    let file = Foundation.open(path, O_RDONLY | O_CLOEXEC)
                    try require(file >= 0, "cannot open \(path)")
                    defer { _ = close(file) }
                    while true {
                        let count = read(file, buffer.baseAddress, buffer.count)
                        if count <= 0 { break }
                        lines += buffer.prefix(count).reduce(0) { $0 &+ ($1 == 0x0A ? 1 : 0) }
                    }
                }
            }
            try require(lines >= large.entries, "the manifest has \(lines) lines")
            return time
        }
        func ours() throws -> Double {
            try large.removeIndex()
            return try Child.open(.store, at: large.store, key: key).openSeconds
        }
        func open(_ peer: Peer) throws -> Double {
            try Child.open(.peer(peer), at: large.path(of: peer), key: key).openSeconds
        }

        _ = try (floor(), ours())
        for peer in Peer.installed { _ = try open(peer) }
        var contest = Contest()
        try contest.run(
            rounds: 5,
            [("floor", { _ in try floor() }), ("ours", { _ in try ours() })]
                + Peer.installed.map { peer in (peer.rawValue, { _ in try open(peer) }) })
        var figures = [
            Figure(
                "open", "open, \(large.entries) entries, from JSON alone", .seconds, contest,
                floorIs: "reading the manifest and counting its lines",
                target: large.entries == 1_000_000 ? .atMost(0.4) : nil)
        ]
        if fromIndex.samples["ours"] != nil {
            figures.append(
                Figure(
                    "open", "open, \(large.entries) entries, from the index", .seconds, fromIndex,
                    target: large.entries == 1_000_000 ? .atMost(0.05) : nil))
        }
        return figures
    }
}
