import ArgumentParser
import Foundation
import TileStore

/// What a child process is to open.
enum ChildSubject {
    case store
    case sqlite
}

/// What a child process saw.
struct ChildReport: Codable {
    /// How long opening took.
    var openSeconds: Double
    /// Its resident memory after that and one hit.
    var residentBytes: Int
}

/// Opens SQLite's cache and nothing else: a process of its own, because memory and cold starts cannot be measured in one
/// that has done other things. The store has a program of its own, `bench-child`.
struct Child: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "child", shouldDisplay: false)

    @Argument var path: String
    @Argument var key: String

    func run() throws {
        let key = try TileKey(key)
        let start = nanoseconds()
        let cache = try SQLiteCache(at: path)
        let openSeconds = Double(nanoseconds() - start) / 1e9
        try require(try cache.read(key)?.isEmpty == false, "the tile \(key) is not there")
        let resident = residentBytes()
        withExtendedLifetime(cache) {}
        let report = try JSONEncoder().encode(ChildReport(openSeconds: openSeconds, residentBytes: resident))
        FileHandle.standardOutput.write(report)
        // Nothing is closed: what closing would write must not help the next child.
        _exit(0)
    }

    /// Runs a child and returns what it saw.
    static func open(_ subject: ChildSubject, at path: String, key: TileKey) throws -> ChildReport {
        let process = Process()
        let program = try Bundle.main.executableURL.orThrow("the path of this program is unknown")
        switch subject {
        case .store:
            process.executableURL = program.deletingLastPathComponent().appendingPathComponent("bench-child")
            process.arguments = [path, key.description]
        case .sqlite:
            process.executableURL = program
            process.arguments = ["child", path, key.description]
        }
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let data = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        try require(process.terminationStatus == 0, "the child ended with \(process.terminationStatus)")
        return try JSONDecoder().decode(ChildReport.self, from: data)
    }
}

/// The resident memory of this process.
private func residentBytes() -> Int {
    let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    for line in status.split(separator: "\n") where line.hasPrefix("VmRSS:") {
        return (line.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 1024
    }
    // Not Linux: the most that it ever was, which for a process that only opens a cache is close.
    var usage = rusage()
    return getrusage(0, &usage) == 0 ? Int(usage.ru_maxrss) : 0
}
