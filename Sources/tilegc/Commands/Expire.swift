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

            A list is read and checked as a whole before anything is changed. Its tiles are meant in all their scales and formats, \
            of the source that --source names, or of all.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup var select: ExplicitSelectOptions
    @OptionGroup var report: ReportOptions

    func run() throws {
        let selection = try select.selection()
        let store = try cache.open()
        let unknown = try store.unknownLines(of: selection)
        let expired = try store.expire(selection)
        if expired == 0, let source = select.select.source, let complaint = try store.complaint(about: source) {
            Message.print(complaint)
        }
        try store.close()
        let output = StandardOutput()
        if report.json {
            try output.line(.object([("expired", .integer(expired))] + UnknownLines.fields(unknown)))
        } else {
            try output.line(
                "Marked \(Figure.count(expired, "fresh entry", "fresh entries")) stale" + UnknownLines.words(unknown))
        }
        try output.finish()
    }
}
