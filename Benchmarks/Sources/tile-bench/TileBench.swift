import ArgumentParser
import Foundation

@main
struct TileBench: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tile-bench", abstract: "Measures the tile store beside its floors and beside SQLite.",
        subcommands: [Run.self, Growth.self, GrowthSize.self, FanOut.self, Child.self], defaultSubcommand: Run.self)
}

/// Measures rows and prints the table.
struct Run: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Measures and prints the table (the default).",
        discussion: """
            Every row is measured beside its floor, in rounds that alternate, and shown as the median of the rounds. \
            Rows: \(RowName.allCases.map(\.rawValue).joined(separator: ", ")).
            """)

    @Argument(help: "A z/x/y folder of tiles. Without one, tiles are made up.")
    var folder: String?

    @Option(help: "Measure only this row; may be given several times.")
    var only: [RowName] = []

    @Option(help: "How many entries the large cache has.")
    var entries: Int?

    @Option(help: "Where temporary data goes; what is made there is removed at the end.")
    var work: String = NSTemporaryDirectory()

    @Option(help: "Write the figures with every round's samples to this file.")
    var json: String?

    @Flag(help: "Measure less: a look, not a figure.")
    var quick = false

    func validate() throws {
        if let entries, entries < 1_000 { throw ValidationError("--entries must be at least 1000") }
    }

    func run() throws {
        let parent = work.hasSuffix("/") && work.count > 1 ? String(work.dropLast()) : work
        let workspace = try Workspace(inside: parent)
        defer { workspace.removeAll() }
        let tiles =
            if let folder { try TileSet(folder: folder) } else {
                try TileSet(makingIn: workspace.path("tiles"), seed: 58)
            }
        let bench = Bench(
            workspace: workspace, quick: quick, entries: entries ?? (quick ? 50_000 : 1_000_000), tiles: tiles)
        let duplicates = 100 - 100 * Double(tiles.blobs.count) / Double(tiles.tiles.count)
        print(
            "\(tiles.tiles.count) tiles (\(tiles.origin)), \(tiles.blobs.count) distinct, "
                + String(format: "%.1f %% duplicates, ", duplicates)
                + "\(ProcessInfo.processInfo.activeProcessorCount) cores\n")

        var figures: [Figure] = []
        var errors: [String] = []
        for row in RowName.allCases where only.isEmpty || only.contains(row) {
            progress("\(row.rawValue) …")
            do { figures += try bench.figures(of: row) } catch { errors.append("\(row.rawValue): \(error)") }
            // Written after every row: a run that is interrupted has not been for nothing.
            try write(figures)
        }
        progress("")
        for line in Table(figures: figures).lines { print(line) }
        print("\nFloors:")
        var seen: Set<String> = []
        for figure in figures {
            if let floor = figure.floorIs, seen.insert(figure.row).inserted { print("  \(figure.row): \(floor)") }
        }
        for error in errors { print("not measured: \(error)") }
        if !errors.isEmpty { throw ExitCode.failure }
    }

    private func write(_ figures: [Figure]) throws {
        if let json { try Figures.write(figures, to: json) }
    }

    /// Tells a person at a terminal what is going on; a file gets the table alone.
    private func progress(_ text: String) {
        guard isatty(STDERR_FILENO) == 1 else { return }
        FileHandle.standardError.write(Data("\r\u{1B}[K\(text)".utf8))
    }
}

extension RowName: ExpressibleByArgument {}
