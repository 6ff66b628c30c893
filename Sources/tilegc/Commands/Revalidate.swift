import ArgumentParser
import TileCache
import TileStore

/// `tilegc revalidate`.
struct Revalidate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "revalidate",
        abstract: "Asks the server whether stale tiles still hold, and fetches those that have changed.",
        discussion: """
            Those that have been stale longest come first. Without a selection, all stale tiles of the source are meant; \
            what is fresh is never asked for ('tilegc expire' makes it stale). Exit status 1 means that some could not be \
            had: the report says how many and why.

            With --changed it writes the keys of the tiles whose bytes are other ones than before, or gone, one a line: what a \
            CDN has to forget. It tells what this run has changed: a tile that a running proxy has fetched before it is fresh, \
            so it is neither asked for nor told. Where a proxy uses the cache, compare what 'tilegc publish' makes before and \
            after, with 'tilegc diff'.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup(title: "Server") var server: ServerOptions
    @OptionGroup(title: "Selection") var select: NarrowingOptions
    @OptionGroup(title: "Selection") var list: ListOptions

    @Option(help: ArgumentHelp("Write the keys whose bytes have changed into this file.", valueName: "file"))
    var changed: String?

    @Option(help: ArgumentHelp("At most so many tiles.", valueName: "n"), transform: ArgumentValues.count)
    var limit: Int?

    @OptionGroup var report: ReportOptions

    func run() async throws {
        if let changed, let list = list.list, TileCollection.isSame(list, changed) {
            throw Failure(.usage, "--changed \(changed): this is the list; name another file")
        }
        let source = try server.tileSource()
        var selection = select.selection
        selection.source = source.name
        selection.tiles = try list.tiles(of: source.name)
        Interrupt.watch()
        let fetcher = try server.open(cache, createIfMissing: false)
        let store = fetcher.cache.store
        // A mistyped name has nothing that is stale, which would look like success.
        if let complaint = try store.complaint(about: source.name) { Message.print(complaint) }
        let unknown = try store.unknownLines(of: selection)
        var stale = selection
        stale.stale = true
        let changes = try changed.map { try ChangedKeys(in: $0, store, stale) }
        try await fetcher.run(report, unknown: unknown, changes) { [selection] cache in
            var options = server.options
            options.priority = .refresh
            if let changes {
                options.beforeStoring = { key, blob in try changes.tell(key, blob) }
                options.onTile = { key, _ in changes.note(key) }
            }
            return try await cache.refreshStale(source, limit: limit ?? .max, where: selection, options: options)
        }
    }
}

/// SELECT without the conditions that the command itself sets.
struct NarrowingOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("Only tiles of these zooms: 7 or 0-7.", valueName: "zooms"),
        transform: ArgumentValues.zooms)
    var zoom: ClosedRange<Int>?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("Only tiles that this box touches.", valueName: "west,south,east,north"),
        transform: ArgumentValues.box)
    var bbox: GeoBox?

    @Flag(help: "Only entries that are stale, which is so in any case.")
    var stale = false

    @Option(
        help: ArgumentHelp("Only entries not used for so long: 30d, 12h, 90s.", valueName: "age"),
        transform: ArgumentValues.age)
    var unusedFor: Int?

    @Option(
        help: ArgumentHelp("Only this entry. Repeatable.", valueName: "key"), transform: ArgumentValues.key)
    var key: [TileKey] = []

    var selection: EntrySelection {
        var selection = EntrySelection()
        selection.zooms = zoom
        selection.box = bbox
        selection.unusedFor = unusedFor
        selection.keys = key.isEmpty ? nil : Set(key)
        return selection
    }
}
