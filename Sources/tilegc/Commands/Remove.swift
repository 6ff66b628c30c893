import ArgumentParser
import TileStore

/// `tilegc rm`.
struct Remove: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rm",
        abstract: "Removes entries, and the blobs that no other entry shares.",
        discussion: """
            What a region pins stays, unless --pinned is given. Something has to be selected: to empty the cache, say \
            --all. A list is read and checked as a whole before anything is removed; its tiles are meant in all their scales and \
            formats.

            --dry-run reports exactly what the same command would report without it.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup var select: ExplicitSelectOptions

    @Flag(help: "Remove pinned entries too.")
    var pinned = false

    @Flag(help: "Change nothing; say what would be removed.")
    var dryRun = false

    @OptionGroup var report: ReportOptions

    func run() throws {
        let selection = try select.selection()
        let store = try dryRun ? cache.openForReading() : cache.open()
        let unknown = try store.unknownLines(of: selection)
        let removal =
            try dryRun
            ? store.removal(of: selection, includingPinned: pinned)
            : store.remove(selection, includingPinned: pinned)
        if removal.removedEntries == 0 {
            Message.print(try nothingRemoved(selection, in: store))
        }
        try store.close()
        let output = StandardOutput()
        if report.json {
            try output.line(.object(removal.fields + UnknownLines.fields(unknown)))
        } else {
            try output.line(removal.sentence(planned: dryRun) + UnknownLines.words(unknown))
        }
        try output.finish()
    }

    private func nothingRemoved(_ selection: EntrySelection, in store: TileStore) throws -> String {
        let hasPinned = try !pinned && store.removal(of: selection, includingPinned: true).removedEntries > 0
        return hasPinned
            ? "all entries that are selected are pinned (--pinned removes those too)"
            : try select.nothingSelected(in: store)
    }
}
