import ArgumentParser
import TileArchive
import TileStore

/// `tilegc import`.
struct Import: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Takes the tiles of a folder, an MBTiles or a PMTiles file into a cache, made if it does not exist.",
        discussion: """
            Files of a folder are named z/x/y.ext or z/x/y@2x.ext with rows counted from the north; symbolic links are \
            not followed. What is no tile is skipped and counted. Tiles that are in the cache already are replaced, \
            unless --keep-newer says otherwise; equal bytes are stored once. The media type is told from the bytes. An \
            import that was interrupted is completed by running it again.
            """)

    @OptionGroup var cache: CacheArgument

    @Argument(help: "The folder or file with the tiles.")
    var path: String

    @Option(
        help: ArgumentHelp("The source that the tiles belong to in the cache.", valueName: "name"),
        transform: ArgumentValues.source)
    var source: SourceName

    @Option(
        help: ArgumentHelp("How long the tiles are fresh: 30d, 12h (default: 7d).", valueName: "age"),
        transform: ArgumentValues.age)
    var lifetime: Int = 7 * 86_400

    @Flag(help: "Rows are counted from the south (TMS), whatever an MBTiles file says.")
    var tms = false

    @Flag(help: "Rows are counted from the north (XYZ), whatever an MBTiles file says.")
    var xyz = false

    @Flag(help: "Make the extension part of the key, for a source that has several formats.")
    var withFormat = false

    @Flag(help: "Keep tiles that the cache has stored after the archive (in a folder: the file) was written.")
    var keepNewer = false

    @Flag(help: "Pin the regions that an MBTiles or PMTiles file carries, as the cache it came from had them.")
    var pin = false

    @OptionGroup var archive: ArchiveOptions
    @OptionGroup var report: ReportOptions

    func validate() throws {
        if tms, xyz { throw ValidationError("--tms and --xyz exclude each other: leave one of them out") }
    }

    func run() throws {
        let reader = try openArchive()
        for warning in reader.warnings { Message.print(warning.printable) }
        Interrupt.watch()
        let store = try cache.open(createIfMissing: true)
        var transfer = ArchiveImport(store: store, source: source, now: EntryReport.now)
        transfer.lifetime = lifetime
        transfer.keepsFormat = withFormat
        transfer.keepsNewer = keepNewer
        let result = try take(reader, transfer)
        let regions = pin && !result.wasStopped ? try pinRegions(of: reader, store) : 0
        if !result.wasStopped, reader.format != .folder {
            try SourceDescription(cache: cache.cache, source: source).merge(reader.metadata)
        }
        let evicted = try result.tiles - transfer.countOfKept()
        let limits = try store.limits()
        try store.close()

        if result.tiles == 0, result.bytes == 0, result.keptNewer == 0, !result.wasStopped {
            throw Failure(.noInput, "\(path) holds no tiles\(reader.format == .folder ? Self.expected : "")")
        }
        if evicted > 0 {
            let capacity = limits.capacity.map { Figure.size($0) } ?? "unlimited"
            Message.print(
                "\(Figure.count(evicted)) of \(Figure.count(result.tiles, "imported tile")) had to go at once: the "
                    + "cache is limited to \(capacity) and \(Figure.count(limits.entryLimit)) entries ('tilegc limit' "
                    + "changes that)")
        }
        if regions > 0 { Message.print("pinned \(Figure.count(regions, "region"))") }
        let output = StandardOutput()
        if report.json {
            try output.line(result.json)
        } else {
            try output.line(
                "Imported \(Figure.count(result.tiles, "tile")) of \(Figure.size(result.bytes)) with "
                    + "\(Figure.count(result.newBlobs, "new blob")); skipped \(Figure.count(result.skipped)).")
        }
        try output.finish()
        if result.wasStopped {
            throw Failure(.interrupted, "interrupted: what was imported so far stays; run it again for the rest")
        }
    }

    private static let expected = ": expected z/x/y.ext or z/x/y@2x.ext"

    /// Opens the archive before the cache is made, so that a mistyped path leaves no empty cache behind.
    private func openArchive() throws -> any ArchiveReader {
        switch try archive.kind(of: path) {
        case .folder:
            let folder = try FolderReader(path, rowsFromSouth: tms)
            guard try folder.holdsZooms() else {
                throw Failure(
                    .noInput, "\(path) holds no tiles: expected zoom folders named 0 to 28 with x/y.ext in them")
            }
            return folder
        case .mbtiles:
            return try MBTilesReader(path, rows: tms ? .fromSouth : xyz ? .fromNorth : .asDeclared)
        case .pmtiles: return try PMTilesReader(path)
        }
    }

    private func take(_ reader: any ArchiveReader, _ transfer: ArchiveImport) throws -> TransferReport {
        let messages = TransferMessages()
        defer { messages.finish() }
        do { return try transfer.run(reader, observer: messages) } catch let error as ArchiveError {
            guard messages.tiles > 0 else { throw error }
            throw Failure(
                ArchiveError(
                    error.code, "\(error.message); \(Figure.count(messages.tiles, "tile")) before it stay in the cache")
            )
        }
    }

    /// Pins what the archive carries; a name that another source's region has is left alone.
    private func pinRegions(of reader: any ArchiveReader, _ store: TileStore) throws -> Int {
        var count = 0
        let present = try store.regions()
        for region in reader.metadata.regions {
            if let other = present.first(where: { $0.name == region.name }), other.source != source {
                Message.print(
                    "region \(region.name) is not pinned: the cache has one of that name for source \(other.source)")
                continue
            }
            try store.pin(try region.pinned(for: source))
            count += 1
        }
        if count == 0 { Message.print("\(path) carries no regions that could be pinned") }
        return count
    }
}
