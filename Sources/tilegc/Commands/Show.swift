import ArgumentParser
import TileStore

/// `tilegc show`.
struct Show: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Shows everything that is known of one entry.",
        discussion: """
            References is the number of entries whose bytes are the same and that share one blob. Looking at an entry \
            is no use of it: it does not change what is evicted next.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup var key: KeyArgument
    @OptionGroup var report: ReportOptions

    func run() throws {
        let store = try cache.openForReading()
        guard let entry = try store.entry(for: key.key) else { throw try key.missing(in: store) }
        let references = try entry.blob.map { try store.references(to: $0) } ?? 0
        let output = StandardOutput()
        let row = EntryReport(entry: entry, now: EntryReport.now)
        if report.json {
            try output.line(.object(row.fields + row.details(references: references)))
        } else {
            for line in row.lines(references: references) { try output.line(line) }
        }
        try output.finish()
        try store.close()
    }
}
