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

            Exit status 74 means that some files could not be read: they are counted and named, and the others are in the \
            cache.
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

    @Option(
        help: ArgumentHelp(
            "Refuse an archive with more tiles (default: 10000000): each takes an entry of the cache.", valueName: "n"),
        transform: ArgumentValues.count)
    var maxTiles: Int = 10_000_000

    @OptionGroup var archive: ArchiveOptions
    @OptionGroup var report: ReportOptions

    func validate() throws {
        if path.isEmpty { throw ValidationError("the path of the tiles is empty: name a folder or a file") }
        if tms, xyz { throw ValidationError("--tms and --xyz exclude each other: leave one of them out") }
    }

    func run() throws {
        let reader = try openArchive()
        Interrupt.watch()
        for warning in reader.warnings { Message.print(warning.printable) }
        let pinned = try pin ? carriedRegions(reader) : []
        let store = try openCache(for: reader)
        var transfer = ArchiveImport(store: store, source: source, now: EntryReport.now)
        transfer.lifetime = lifetime
        transfer.keepsFormat = withFormat
        transfer.keepsNewer = keepNewer
        transfer.mostTiles = maxTiles
        let result = try take(reader, transfer)
        let regions = pin && !result.wasStopped ? try pinRegions(pinned, store) : 0
        var notDescribed: (any Error)?
        if !result.wasStopped, reader.format != .folder {
            // The tiles are there whatever becomes of it: the report comes first.
            do { try SourceDescription(cache: cache.cache, source: source).merge(reader.metadata) } catch {
                notDescribed = error
            }
        }
        let gone = try result.tiles - transfer.countOfKept()
        let hasEvicted = store.evictedHere.removedEntries > 0
        let limits = try store.limits()
        try store.sync()
        try store.close()

        if result.tiles == 0, result.bytes == 0, result.keptNewer == 0, !result.wasStopped {
            throw result.failed > 0 ? unread(result.failed) : noTiles(reader)
        }
        if gone > 0, !hasEvicted {
            Message.print(
                "\(Figure.count(gone)) of \(Figure.count(result.tiles, "imported tile")) are not there any more, or "
                    + "were replaced: another process has done that meanwhile")
        } else if gone > 0 {
            let capacity = limits.capacity.map { Figure.size($0) + " and " } ?? ""
            Message.print(
                "\(Figure.count(gone)) of \(Figure.count(result.tiles, "imported tile")) had to go at once: the "
                    + "cache is limited to \(capacity)\(Figure.count(limits.entryLimit)) entries ('tilegc limit' "
                    + "changes that)")
        }
        if regions > 0 { Message.print("pinned \(Figure.count(regions, "region"))") }
        let output = StandardOutput()
        if report.json {
            try output.line(result.json)
        } else {
            let failed = result.failed > 0 ? "; \(Figure.count(result.failed)) FAILED" : ""
            try output.line(
                "Imported \(Figure.count(result.tiles, "tile")) of \(Figure.size(result.bytes)) with "
                    + "\(Figure.count(result.newBlobs, "new blob")); skipped \(Figure.count(result.skipped))\(failed).")
        }
        try output.finish()
        if result.wasStopped {
            throw Failure(.interrupted, "interrupted: what was imported so far stays; run it again for the rest")
        }
        if let notDescribed { throw notDescribed }
        if result.failed > 0 { throw unread(result.failed) }
    }

    private func unread(_ count: Int) -> Failure {
        Failure(
            .inputOutput,
            "\(Figure.count(count, "file")) of \(path) could not be read: see what is said of them above, and import once more"
        )
    }

    private func noTiles(_ reader: any ArchiveReader) -> Failure {
        let expected = reader.format == .folder ? ": expected z/x/y.ext or z/x/y@2x.ext" : ""
        return Failure(.noInput, "\(path) holds no tiles\(expected)")
    }

    /// Opens the cache, or makes one if the archive has a tile to put into it.
    private func openCache(for reader: any ArchiveReader) throws -> TileStore {
        do { return try cache.open() } catch let error as StoreError where error.code == .noSuchCache {}
        let messages = TransferMessages()
        // Where there is a tile, the import says them.
        var skips: [(what: String, why: String, count: Int)] = []
        var failures: [(what: String, why: String)] = []
        var failed = 0
        let hasTiles = try ArchiveImport.hasTiles(
            reader, most: maxTiles, unless: { Interrupt.isRequested },
            skipped: { if skips.count < 6 { skips.append(($0, $1, $2)) } },
            failed: {
                failed += 1
                if failures.count < 6 { failures.append(($0, $1)) }
            })
        if Interrupt.isRequested { throw Failure(.interrupted, "interrupted: nothing was imported") }
        guard hasTiles else {
            for skip in skips { messages.skipped(skip.what, skip.why, count: skip.count) }
            for failure in failures { messages.failed(failure.what, failure.why) }
            messages.finish()
            throw failed > 0 ? unread(failed) : noTiles(reader)
        }
        return try cache.open(createIfMissing: true)
    }

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
        case .pmtiles, .set: return try archive.kind(of: path).open(path)
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

    /// The regions that the archive carries, checked before any tile is imported.
    private func carriedRegions(_ reader: any ArchiveReader) throws -> [PinnedRegion] {
        do { return try reader.metadata.regions.map { try $0.pinned(for: source) } } catch let error as StoreError {
            throw Failure(
                .noInput, "\(path) carries a region that cannot be pinned: \(error.message) (import it without --pin)")
        }
    }

    /// Pins what the archive carries; a name that another source's region has is left alone.
    private func pinRegions(_ regions: [PinnedRegion], _ store: TileStore) throws -> Int {
        var count = 0
        let present = try store.regions()
        for region in regions {
            if let other = present.first(where: { $0.name == region.name }),
                other.source != source || !other.isOfOneSource
            {
                Message.print(
                    "region \(region.name) is not pinned: the cache has one of that name for "
                        + (other.isOfOneSource ? "source \(other.source)" : "a whole map"))
                continue
            }
            try store.pin(region)
            count += 1
        }
        if count == 0 { Message.print("\(path) carries no regions that could be pinned") }
        return count
    }
}
