import Foundation
import TileStore

extension GrowthRun {
    /// Checking everything, beside `openssl` hashing the same files on all processors.
    func verify() throws -> [Figure] {
        var names: [UInt8] = []
        let objects = cache.path + "/objects"
        guard let all = FileManager.default.enumerator(atPath: objects) else { throw BenchError("no \(objects)") }
        for case let name as String in all where name.utf8.count > 64 {
            names += Array("\(objects)/\(name)".utf8) + [0]
        }
        let list = scratch + "/files-\(getpid())"
        try Data(names).write(to: URL(fileURLWithPath: list))
        let cores = ProcessInfo.processInfo.activeProcessorCount
        func openssl() throws -> Double {
            let process = Process()
            process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
            process.arguments = [
                "xargs", "-0", "-a", list, "-P", "\(cores)", "-n", "2000", "openssl", "dgst", "-sha256",
            ]
            process.standardOutput = FileHandle.nullDevice
            return try seconds {
                try process.run()
                process.waitUntilExit()
                try require(process.terminationStatus == 0, "openssl failed")
            }
        }
        let store = try cache.open()
        var contest = Contest()
        func ours() throws -> Double {
            try seconds {
                let report = try store.verify()
                try require(report.ok, "verify found damage: \(report)")
            }
        }
        _ = try openssl()
        try contest.run(rounds: quick ? 1 : 3, [("floor", { _ in try openssl() }), ("ours", { _ in try ours() })])
        try store.close()
        // Speed, not time: what the target is about.
        let speed = zip(contest.samples["floor"] ?? [], contest.samples["ours"] ?? []).map { $0 / $1 }
        return [
            Figure("growth-verify", "verify", .seconds, contest, floorIs: "xargs -P \(cores) openssl dgst -sha256"),
            Figure(
                row: "growth-verify-speed", what: "speed of verify to openssl's", unit: .factor, ours: median(speed),
                target: .atLeast(0.8), samples: ["ours": speed]),
        ]
    }
}
