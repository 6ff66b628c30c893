import ArgumentParser
import TileStore

/// `tilegc expire`.
struct Expire: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "expire",
        abstract: "Marks entries stale, so that they are revalidated before their next use.",
        discussion: """
            The bytes stay: a server that answers "not modified" costs no download. Something has to be selected: to \
            mark the whole cache, say --all.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup var select: ExplicitSelectOptions
    @OptionGroup var report: ReportOptions

    func run() throws {
        let store = try cache.open()
        let expired = try store.expire(select.selection)
        if expired == 0, let source = select.select.source, let complaint = try store.complaint(about: source) {
            Message.print(complaint)
        }
        try store.close()
        let output = StandardOutput()
        if report.json {
            try output.line(.object([("expired", .integer(expired))]))
        } else {
            try output.line("Marked \(Figure.count(expired, "fresh entry", "fresh entries")) stale.")
        }
        try output.finish()
    }
}
