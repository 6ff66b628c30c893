import ArgumentParser
import Foundation
import TileStore

extension Peer: ExpressibleByArgument {}

/// What a child process is to open.
enum ChildSubject {
    case store
    case peer(Peer)
}

/// What a child process saw.
struct ChildReport: Codable {
    /// How long opening took.
    var openSeconds: Double
    /// Its resident memory after that and one hit.
    var residentBytes: Int
}

/// Opens a peer's cache and nothing else.
///
/// A process of its own, because memory and cold starts cannot be measured in one that has done other things. The store
/// has a program of its own, `bench-child`.
struct Child: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "child", shouldDisplay: false)

    @Argument var peer: Peer
    @Argument var path: String
    @Argument var key: String

    func run() throws {
        let key = try TileKey(key)
        let start = nanoseconds()
        let cache = try peer.open(at: path)
        let openSeconds = Double(nanoseconds() - start) / 1e9
        try require(try cache.read(key)?.isEmpty == false, "the tile \(key) is not there")
        let resident = Memory.resident()
        withExtendedLifetime(cache) {}
        let report = try JSONEncoder().encode(ChildReport(openSeconds: openSeconds, residentBytes: resident))
        FileHandle.standardOutput.write(report)
        // Nothing is closed: what closing would write must not help the next child.
        _exit(0)
    }

    /// The program with the store and nothing else in it.
    static func program() throws -> URL {
        try Bundle.main.executableURL.orThrow("the path of this program is unknown").deletingLastPathComponent()
            .appendingPathComponent("bench-child")
    }

    /// Runs that program; returns what it printed.
    static func output(of arguments: [String]) throws -> String {
        let process = Process()
        process.executableURL = try program()
        process.arguments = arguments
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let data = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        try require(process.terminationStatus == 0, "the child ended with \(process.terminationStatus)")
        return String(decoding: data, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Runs a child and returns what it saw.
    static func open(_ subject: ChildSubject, at path: String, key: TileKey) throws -> ChildReport {
        let process = Process()
        switch subject {
        case .store:
            process.executableURL = try Child.program()
            process.arguments = ["open", path, key.description]
        case .peer(let peer):
            process.executableURL = Bundle.main.executableURL
            process.arguments = ["child", peer.rawValue, path, key.description]
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
