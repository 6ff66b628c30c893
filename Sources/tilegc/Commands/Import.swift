import ArgumentParser
import TileStore

/// `tilegc import`.
struct Import: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Takes the tiles of a z/x/y folder into a cache, which is made if it does not exist.",
        discussion: """
            Files are named z/x/y.ext or z/x/y@2x.ext with rows counted from the north. Symbolic links are not \
            followed. What is no tile is skipped and counted. Tiles that are in the cache already are replaced; equal \
            bytes are stored once. An import that was interrupted is completed by running it again.
            """)

    @OptionGroup var cache: CacheArgument

    @Argument(help: "The folder with the tiles.")
    var path: String

    @Option(
        help: ArgumentHelp("The source that the tiles belong to in the cache.", valueName: "name"),
        transform: ArgumentValues.source)
    var source: SourceName

    @Option(
        help: ArgumentHelp("How long the tiles are fresh: 30d, 12h (default: 7d).", valueName: "age"),
        transform: ArgumentValues.age)
    var lifetime: Int = 7 * 86_400

    @Flag(help: "Rows are counted from the south (TMS).")
    var tms = false

    @Flag(help: "Make the extension part of the key, for a source that has several formats.")
    var withFormat = false

    @OptionGroup var archive: ArchiveOptions
    @OptionGroup var report: ReportOptions

    func validate() throws { try archive.check(path: path) }

    func run() throws {
        guard let folder = try FolderHandle.open(path) else {
            throw Failure(.noInput, "there is no folder \(path): give the folder that holds the zoom folders 0, 1, 2 …")
        }
        // Looked at before the cache is made, so that a mistyped path leaves no empty cache behind.
        guard try FolderImporter.holdsZooms(folder) else {
            throw Failure(.noInput, "\(path) holds no tiles: expected zoom folders named 0 to 28 with x/y.ext in them")
        }
        Interrupt.watch()
        let store = try cache.open(createIfMissing: true)
        var importer = FolderImporter(
            store: store, source: source, now: EntryReport.now, lifetime: lifetime, rowsFromSouth: tms,
            keepsFormat: withFormat)
        let result = try importer.run(folder)
        let evicted = try result.tiles - importer.countOfKept()
        let limits = try store.limits()
        try store.close()

        if result.tiles == 0, result.bytes == 0, !Interrupt.isRequested {
            throw Failure(.noInput, "\(path) holds no tiles: expected z/x/y.ext or z/x/y@2x.ext")
        }
        if evicted > 0 {
            let capacity = limits.capacity.map { Figure.size($0) } ?? "unlimited"
            Message.print(
                "\(Figure.count(evicted)) of \(Figure.count(result.tiles, "imported tile")) had to go at once: the "
                    + "cache is limited to \(capacity) and \(Figure.count(limits.entryLimit)) entries ('tilegc limit' "
                    + "changes that)")
        }
        let output = StandardOutput()
        if report.json {
            try output.line(result.json)
        } else {
            try output.line(
                "Imported \(Figure.count(result.tiles, "tile")) of \(Figure.size(result.bytes)) with "
                    + "\(Figure.count(result.newBlobs, "new blob")); skipped \(Figure.count(result.skipped)).")
        }
        try output.finish()
        if Interrupt.isRequested {
            throw Failure(.interrupted, "interrupted: what was imported so far stays; run it again for the rest")
        }
    }
}
