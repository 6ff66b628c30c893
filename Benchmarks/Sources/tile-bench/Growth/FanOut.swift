import ArgumentParser
import Foundation

/// Measures how folders of files behave as they grow, without the store: one level of 256 folders beside two levels.
///
/// The files are empty, so that ten millions of them need inodes and no blocks: what grows are the folders.
struct FanOut: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fan-out",
        abstract: "Measures files in one level of 256 folders beside two levels of 65,536.")

    @Option(help: "The numbers of files, in ascending order, such as 20k,200k,2M.")
    var files: String = "20k,200k,2M"

    @Option(help: "Where the files go; they are removed at the end.")
    var work: String = NSTemporaryDirectory()

    @Option(help: "Write the figures to this file.")
    var json: String?

    @Option(help: "Measure only so many levels: 1 or 2.")
    var levels: [Int] = [1, 2]

    @Flag(help: "Leave the files; the file system is made anew faster than millions are removed.")
    var keep = false

    func run() throws {
        let workspace = try Workspace(inside: work)
        defer { if !keep { workspace.removeAll() } }
        var figures: [Figure] = []
        for level in levels {
            var tree = try FileTree(at: workspace.path("level-\(level)"), levels: level)
            for count in try Growth.sizes(files) {
                FileHandle.standardError.write(Data("level \(level): \(count) files …\n".utf8))
                figures += try tree.figures(growingTo: count)
                if let json { try Figures.write(figures, to: json) }
            }
        }
        for line in GrowthTable(figures: figures).lines { print(line) }
    }
}

/// Empty files with names like digests in one or two levels of folders.
private struct FileTree {
    let path: String
    let levels: Int
    private let staging: [CChar]
    private var count = 0
    private let chosen = 20_000

    init(at path: String, levels: Int) throws {
        self.path = path
        self.levels = levels
        staging = Array("\(path)/staging/file".utf8CString)
        try FileManager.default.createDirectory(atPath: path + "/staging", withIntermediateDirectories: true)
        for first in 0..<256 {
            let folder = "\(path)/\(Self.hexadecimal(UInt64(first), 2))"
            mkdir(folder, 0o755)
            if levels == 2 {
                for second in 0..<256 { mkdir("\(folder)/\(Self.hexadecimal(UInt64(second), 2))", 0o755) }
            }
        }
    }

    /// Adds files until there are so many, then opens, creates and unlinks some at random.
    mutating func figures(growingTo target: Int) throws -> [Figure] {
        let added = target - count
        var growing = 0.0
        for start in stride(from: count, to: target, by: chosen) {
            let paths = (start..<min(start + chosen, target)).map { path(of: $0) }
            growing += try seconds { for path in paths { try create(path) } }
        }
        count = target
        settle()
        var random = SplitMix64(seed: UInt64(target))
        let some = (0..<chosen).map { _ in Int.random(in: 0..<count, using: &random) }
        let paths = some.map { path(of: $0) }
        let fresh = (0..<5).map { round in
            (0..<chosen).map { path(of: 1_000_000_000 + round * chosen + $0) }
        }
        func open(_ path: [CChar]) throws {
            let file = Foundation.open(path, O_RDONLY | O_CLOEXEC)
            try require(file >= 0, "open failed")
            close(file)
        }
        let perFile = 1e6 / Double(chosen)
        // The first pass finds folders and inodes as they are after a sync; the others find them in memory.
        for path in paths { try open(path) }
        var opening: [Double] = []
        var creating: [Double] = []
        for round in 0..<5 {
            opening.append(try seconds { for path in paths { try open(path) } } * perFile)
            creating.append(try seconds { for path in fresh[round] { try create(path) } } * perFile)
        }
        // All creating is done before the first file is unlinked: ext4 is slow at it afterwards.
        let unlinking = try fresh.map { paths in
            try seconds { for path in paths { try require(unlink(path) == 0, "unlink failed") } } * perFile
        }
        func figure(_ row: String, _ what: String, _ samples: [Double]) -> Figure {
            Figure(
                row: "fan-out-\(levels)-\(row)", entries: target,
                what: "\(levels == 1 ? "one level" : "two levels"): \(what)", unit: .microseconds,
                ours: median(samples),
                samples: ["ours": samples])
        }
        return [
            figure("grow", "create + rename while growing to this", [growing * 1e6 / Double(max(1, added))]),
            figure("open", "open + close", opening), figure("create", "create + rename", creating),
            figure("unlink", "unlink", unlinking),
        ]
    }

    private func create(_ path: [CChar]) throws {
        let file = Foundation.open(staging, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o444)
        try require(file >= 0, "create failed: \(String(cString: strerror(errno)))")
        close(file)
        try require(rename(staging, path) == 0, "rename failed: \(String(cString: strerror(errno)))")
    }

    private func path(of number: Int) -> [CChar] {
        var random = SplitMix64(seed: UInt64(number) &* 0x9E37_79B9)
        let name = (0..<4).map { _ in Self.hexadecimal(random.next(), 16) }.joined()
        let first = name.prefix(2)
        let folder = levels == 1 ? "\(first)" : "\(first)/\(name.dropFirst(2).prefix(2))"
        return Array("\(path)/\(folder)/\(name)".utf8CString)
    }

    private static func hexadecimal(_ value: UInt64, _ width: Int) -> String {
        let digits = String(value, radix: 16)
        return String(repeating: "0", count: width - digits.count) + digits
    }
}
