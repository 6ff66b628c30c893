import Foundation
import TileStore

extension GrowthRun {
    /// What a read costs another process after this one has changed so many entries, and after it has compacted.
    func catchUp() throws -> [Figure] {
        let store = try cache.open()
        let hot = try cache.hotKeys()
        let follower = try Follower(of: cache.path)
        defer { follower.end() }
        _ = try follower.read(hot[0])

        /// Puts the sea under so many of the hot tiles that have it anyhow, with other validators.
        var number = 0
        func change(_ count: Int) throws {
            var puts: [TilePut] = []
            while puts.count < count {
                let index = number % GrowthCache.hotCount
                number += 1
                guard index % 5 >= 2 else { continue }
                puts.append(TilePut(key: hot[index], data: TileSet.ocean, metadata: metadata(UInt64(number))))
            }
            for start in stride(from: 0, to: count, by: 256) {
                try store.put(Array(puts[start..<min(start + 256, count)]))
            }
        }
        var figures: [Figure] = []
        for count in [1, 1_000, 10_000] {
            let times = try (0..<rounds).map { _ in
                try change(count)
                return try follower.read(hot[2]) / 1_000
            }
            figures.append(
                Figure(
                    row: "growth-catch-up-\(count)", what: "first read of another process after \(count) changes",
                    unit: .milliseconds, ours: median(times), samples: ["ours": times]))
        }
        let times = try (0..<rounds).map { _ in
            _ = try store.compact()
            try change(1)
            return try follower.read(hot[2]) / 1_000
        }
        figures.append(
            Figure(
                row: "growth-catch-up-compaction", what: "first read of another process after a compaction",
                unit: .milliseconds, ours: median(times), samples: ["ours": times]))
        try store.close()
        return figures
    }
}

/// Another process that has the cache open.
private final class Follower {
    private let process = Process()
    private let input = Pipe()
    private let output = Pipe()
    private var rest = Data()

    init(of path: String) throws {
        process.executableURL = try Child.program()
        process.arguments = ["follow", path]
        process.standardInput = input
        process.standardOutput = output
        try process.run()
        try require(try line() == "open", "the follower did not open the cache")
    }

    /// Has it read a key; the microseconds that it took.
    func read(_ key: TileKey) throws -> Double {
        // Readers look for news at most every 10 ms.
        usleep(20_000)
        input.fileHandleForWriting.write(Data("\(key)\n".utf8))
        return try Double(line()).orThrow("the follower did not answer with a number")
    }

    func end() {
        try? input.fileHandleForWriting.close()
        process.waitUntilExit()
    }

    private func line() throws -> String {
        while true {
            if let end = rest.firstIndex(of: 0x0A) {
                let line = String(decoding: rest[..<end], as: UTF8.self)
                rest = Data(rest[(end + 1)...])
                return line
            }
            let more = output.fileHandleForReading.availableData
            try require(!more.isEmpty, "the follower ended")
            rest += more
        }
    }
}
