import ArgumentParser
import TileArchive
import TileStore

/// `tilegc diff`.
struct Diff: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "diff",
        abstract: "Compares the tiles of two caches or archives by their digests.",
        discussion: """
            Each of the two is a cache's folder, a published set's folder, a .mbtiles or .pmtiles file, or a z/x/y folder. Tiles are the same if their \
            bytes are, as they are stored: a gzipped tile differs from the same tile without gzip. Absent tiles and \
            resources other than tiles are not compared; they are counted as skipped.

            Caches and sets are compared key by key, and their tiles are not read. Otherwise tiles of one place are distinguished by their scale in a folder, and not \
            at all in a package: then the one counts that an export would take, and the others are skipped.

            The exit status is 0 whether or not there are differences; 74 means that files could not be read.
            """)

    @Argument(help: "The old tiles: a cache, a .mbtiles or .pmtiles file, or a folder.")
    var old: String

    @Argument(help: "The new tiles, likewise.")
    var new: String

    @Option(
        help: ArgumentHelp("Only tiles of this source of a cache (default: all).", valueName: "name"),
        transform: ArgumentValues.source)
    var source: SourceName?

    @Option(
        help: ArgumentHelp(
            "Write the keys of added, changed and removed tiles to this file, one a line, as --list reads them.",
            valueName: "file"))
    var writeList: String?

    @Option(
        help: ArgumentHelp("Refuse an archive with more tiles (default: 10000000).", valueName: "n"),
        transform: ArgumentValues.count)
    var maxTiles: Int = 10_000_000

    @OptionGroup var report: ReportOptions

    func validate() throws {
        if old.isEmpty || new.isEmpty {
            throw ValidationError("a path is empty: name two caches, archives or folders")
        }
        if writeList == "" { throw ValidationError("the path of the list is empty: name a file") }
    }

    func run() throws {
        if let writeList, [old, new].contains(where: { TileCollection.isSame($0, writeList) }) {
            throw Failure(.usage, "--write-list \(writeList): this is what is compared; name another file")
        }
        let sides = (old: try TileCollection(old), new: try TileCollection(new))
        let source = try comparedSource(sides.old, sides.new)
        Interrupt.watch()
        let messages = TransferMessages()
        defer { messages.finish() }
        let result = try TileComparison(
            old: sides.old.digests(of: source, mostTiles: maxTiles),
            new: sides.new.digests(of: source, mostTiles: maxTiles), observer: messages
        ).run(list: writeList)
        messages.finish()
        try sides.old.close()
        try sides.new.close()
        if result.wasStopped { throw Failure(.interrupted, "interrupted: nothing is known yet; run it again") }

        let output = StandardOutput()
        if report.json {
            try output.line(json(result))
        } else {
            let failed = result.failed > 0 ? "; \(Figure.count(result.failed)) FAILED" : ""
            try output.line(
                "Added \(Figure.count(result.added, "tile")), changed \(Figure.count(result.changed)), removed "
                    + "\(Figure.count(result.removed)); \(Figure.count(result.same)) are the same; "
                    + "\(Figure.count(result.newBlobs, "new blob")) of \(Figure.size(result.newBytes)); "
                    + "skipped \(Figure.count(result.skipped))\(failed).")
        }
        try output.finish()
        if result.failed > 0 {
            throw Failure(
                .inputOutput,
                "\(Figure.count(result.failed, "file")) could not be read and count as absent: see what is said of them above"
            )
        }
    }

    /// The source that is compared; `nil` for all, and for archives without a name.
    private func comparedSource(_ a: TileCollection, _ b: TileCollection) throws -> SourceName? {
        let sources = (try a.sources).union(try b.sources)
        let names = sources.sorted().prefix(20).map(\.description).joined(separator: ", ")
        var hasArchive = false
        var hasCache = false
        for side in [a, b] { if case .archive = side { hasArchive = true } else { hasCache = true } }
        if let source {
            guard !hasCache || sources.contains(source) else {
                throw Failure(
                    .noInput,
                    "no cache has a source \(source)" + (names.isEmpty ? ": it is empty" : "; there are: \(names)"))
            }
            return source
        }
        guard sources.count > 1 else { return sources.first }
        if hasArchive {
            throw Failure(.usage, "the cache has tiles of \(names): choose one of them with --source")
        }
        if writeList != nil {
            throw Failure(.usage, "a list is of one source, and there are \(names): choose one of them with --source")
        }
        return nil
    }

    private func json(_ result: ComparisonReport) -> JSON {
        .object([
            ("added", .integer(result.added)),
            ("changed", .integer(result.changed)),
            ("removed", .integer(result.removed)),
            ("same", .integer(result.same)),
            ("bytes", .integer(result.newBytes)),
            ("newBlobs", .integer(result.newBlobs)),
            ("skipped", .integer(result.skipped)),
            ("failed", .integer(result.failed)),
        ])
    }
}

extension TileCollection {
    /// The sources of a cache.
    fileprivate var sources: Set<SourceName> {
        get throws {
            guard case .cache(let store) = self else { return [] }
            return Set(try store.statistics().sources.map(\.name))
        }
    }

    fileprivate func digests(of source: SourceName?, mostTiles: Int) -> any TileDigests {
        switch self {
        case .cache(let store): CacheDigests(store, source: source)
        case .archive(let reader as SetReader): SetDigests(reader, source: source, mostTiles: mostTiles)
        case .archive(let reader): ArchiveDigests(reader, source: source, mostTiles: mostTiles)
        }
    }
}
