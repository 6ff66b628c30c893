import ArgumentParser
import TileStore

/// `tilegc compact`.
struct Compact: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "compact",
        abstract: "Rewrites the manifest's checkpoint, which makes the manifest short again.",
        discussion: """
            Caches do this by themselves when the journal has grown. Other processes read and write meanwhile.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup var report: ReportOptions

    func run() throws {
        let store = try cache.open()
        let result = try store.compact()
        try store.close()
        let output = StandardOutput()
        if report.json {
            try output.line(
                .object([
                    ("entries", .integer(result.entries)),
                    ("checkpointBytes", .integer(result.checkpointBytes)),
                ]))
        } else {
            try output.line(
                "Wrote a checkpoint of \(Figure.count(result.entries, "entry", "entries")), "
                    + "\(Figure.size(result.checkpointBytes)).")
        }
        try output.finish()
    }
}
