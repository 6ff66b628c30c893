import ArgumentParser
import TileStore

/// `tilegc ls`.
struct List: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ls",
        abstract: "Lists entries, one a line, in the order of their keys.",
        discussion: """
            Columns: status, size, fresh or stale (and pinned), when it turns stale, the start of the blob's name, key. \
            With --json each line is one JSON object.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup(title: "Selection") var select: SelectOptions
    @OptionGroup var report: ReportOptions

    /// Ends the walk when nobody reads on.
    private struct ReaderGone: Error {}

    func run() throws {
        let store = try cache.openForReading()
        let output = StandardOutput()
        let now = EntryReport.now
        var isEmpty = true
        do {
            try store.forEachEntry(in: .key, where: select.selection) { entry in
                isEmpty = false
                let row = EntryReport(entry: entry, now: now)
                if report.json { try output.line(.object(row.fields)) } else { try output.line(row.line) }
                if output.isClosed { throw ReaderGone() }
            }
        } catch is ReaderGone {}
        try output.finish()
        if isEmpty { Message.print(try select.nothingSelected(in: store)) }
        try store.close()
    }
}
