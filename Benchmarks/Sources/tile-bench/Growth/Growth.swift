import ArgumentParser
import Foundation

/// Measures caches of growing size.
struct Growth: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Measures how the store holds its speed as it grows.",
        discussion: """
            Each size is measured in a process of its own, in this order: \
            \(GrowthStep.allCases.map(\.rawValue).joined(separator: ", ")). A fifth of the blobs are distinct; they have 5 KB, \
            but 1 KB in caches of more than two million entries, so that ten millions fit into 10 GB and 2.1 million inodes \
            of disk. The 10,000 hot tiles have 5 KB at every size.
            """)

    @Option(help: "The numbers of entries, such as 10k,100k,1M,10M.")
    var sizes: String = "10k,100k,1M"

    @Option(help: "Measure only this step; may be given several times.")
    var only: [GrowthStep] = []

    @Option(help: "Bytes of a distinct blob, whatever the size of the cache.")
    var blobBytes: Int?

    @Option(help: "Where the caches go; they are removed at the end.")
    var work: String = NSTemporaryDirectory()

    @Option(help: "Keep the caches in this folder, and measure those that are in it from an earlier run.")
    var keep: String?

    @Option(help: "Write the figures to this file.")
    var json: String?

    @Flag(help: "Measure less: a look, not a figure.")
    var quick = false

    func validate() throws { _ = try parsedSizes() }

    func run() throws {
        let workspace = try Workspace(inside: keep ?? work)
        defer { workspace.removeAll() }
        var figures: [Figure] = []
        for entries in try parsedSizes() {
            let folder = keep.map { "\($0)/growth-\(entries)" } ?? workspace.path("growth-\(entries)")
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            figures += try Growth.measure(
                entries: entries, blobBytes: blobBytes ?? Growth.blobBytes(entries), steps: only, quick: quick,
                in: folder)
            if let json { try Figures.write(figures, to: json) }
        }
        for line in GrowthTable(figures: figures).lines { print(line) }
    }

    /// The size of distinct blobs in a cache of so many entries.
    static func blobBytes(_ entries: Int) -> Int { entries > 2_000_000 ? 1_024 : 5_120 }

    /// Measures one size in a process of its own.
    static func measure(
        entries: Int, blobBytes: Int, steps: [GrowthStep], quick: Bool, in folder: String
    ) throws -> [Figure] {
        let process = Process()
        process.executableURL = try Bundle.main.executableURL.orThrow("the path of this program is unknown")
        process.arguments =
            ["growth-size", folder, "--entries", "\(entries)", "--blob-bytes", "\(blobBytes)"]
            + steps.flatMap { ["--steps", $0.rawValue] } + (quick ? ["--quick"] : [])
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let data = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        try require(
            process.terminationStatus == 0, "measuring \(entries) entries ended with \(process.terminationStatus)")
        return try JSONDecoder().decode([Figure].self, from: data)
    }

    private func parsedSizes() throws -> [Int] { try Growth.sizes(sizes) }

    /// Takes "10k,1M" apart.
    static func sizes(_ text: String) throws -> [Int] {
        try text.split(separator: ",").map { part in
            let factor = part.hasSuffix("k") ? 1_000 : part.hasSuffix("M") ? 1_000_000 : 1
            let digits = factor == 1 ? part : part.dropLast()
            guard let number = Int(digits), number > 0, (number * factor) % GrowthCache.hotCount == 0 else {
                throw ValidationError("\"\(part)\" is no multiple of 10k")
            }
            return number * factor
        }
    }
}
