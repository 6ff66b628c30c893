import ArgumentParser
import TileArchive
import TileStore

/// `tilegc export`.
struct Export: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes the tiles of one source into a z/x/y folder, an MBTiles or a PMTiles file.",
        discussion: """
            Files of a folder are named z/x/y.ext or z/x/y@2x.ext, with the extension from the key, else from what the \
            bytes are; each appears whole or not at all; one that holds the same bytes already is left alone, so an \
            export that was interrupted is completed by running it again. Nothing is written through symbolic links. \
            An MBTiles or PMTiles file appears when it is complete and replaces what is there; equal tiles are in it \
            once. Vector tiles keep their compression, pictures are written uncompressed. What has no bytes or is no \
            tile is skipped and counted.

            Exit status 1 means that nothing was exported, or that some tiles could not be because they are damaged.
            """)

    @OptionGroup var cache: CacheArgument

    @Argument(help: "The folder or file to write.")
    var path: String

    @OptionGroup(title: "Selection") var select: SelectOptions

    @Option(help: ArgumentHelp("Only tiles of this pinned region, which names the source too.", valueName: "name"))
    var region: String?

    @Flag(help: "Count a folder's rows from the south (TMS).")
    var tms = false

    @Option(help: ArgumentHelp("The map's name in a package (default: the source's).", valueName: "text"))
    var name: String?

    @Option(help: ArgumentHelp("Who is to be named where the map is shown.", valueName: "text"))
    var attribution: String?

    @OptionGroup var metadata: MetadataOptions

    @OptionGroup var archive: ArchiveOptions
    @OptionGroup var report: ReportOptions

    func validate() throws {
        if path.isEmpty { throw ValidationError("the path to write is empty: name a folder or a file") }
        try archive.checkTarget(path)
        guard select.source != nil || region != nil else {
            throw ValidationError("missing --source: name the source whose tiles to export ('tilegc stats' lists them)")
        }
        if !metadata.statements.isEmpty, try archive.kind(of: path) == .folder {
            throw ValidationError("--set is for packages: a folder is exported without metadata")
        }
        if tms, try archive.kind(of: path) != .folder {
            throw ValidationError("--tms is for folders: MBTiles always counts rows from the south, PMTiles has none")
        }
    }

    func run() throws {
        let store = try cache.openForReading()
        let region = try pinnedRegion(in: store)
        guard let source = select.source ?? region?.source else { return }
        try checkSource(source, in: store)
        let format = try archive.kind(of: path)
        Interrupt.watch()
        var transfer = ArchiveExport(store: store, source: source)
        transfer.selection = select.selection
        transfer.region = region
        transfer.rowsFromSouth = tms
        if format != .folder {
            transfer.metadata = try SourceDescription(cache: cache.cache, source: source).read()
            transfer.metadata.name = name ?? transfer.metadata.name
            transfer.metadata.attribution = attribution ?? transfer.metadata.attribution
            try metadata.apply(to: &transfer.metadata)
        }
        let messages = TransferMessages()
        defer { messages.finish() }
        let result = try transfer.run(to: path, format: format, observer: messages)
        messages.finish()
        try store.close()

        let output = StandardOutput()
        if report.json {
            try output.line(result.json)
        } else {
            let failed = result.failed > 0 ? "; \(Figure.count(result.failed)) FAILED" : ""
            try output.line(
                "Exported \(Figure.count(result.tiles, "tile")) of \(Figure.size(result.bytes)); "
                    + "skipped \(Figure.count(result.skipped))\(failed).")
        }
        try output.finish()
        if result.wasStopped {
            throw Failure(
                .interrupted,
                format == .folder ? "interrupted: run it again for the rest" : "interrupted: \(path) was not written")
        }
        if result.failed > 0 {
            throw Failure(
                .found,
                "\(Figure.count(result.failed, "tile is", "tiles are")) damaged or missing: run 'tilegc verify --repair "
                    + "\(cache.cache)', fetch them again and export once more")
        }
        if result.tiles == 0 {
            throw Failure(
                .found,
                result.isEmpty
                    ? "no entry is selected ('tilegc ls' lists them), so \(path) was not written"
                    : "no tile could be exported, so \(path) was not written")
        }
    }

    /// A source that the cache does not know is a mistyped one.
    private func checkSource(_ source: SourceName, in store: TileStore) throws {
        let known = try store.statistics().sources.map(\.name)
        guard !known.contains(source) else { return }
        let names = known.prefix(20).map(\.description).joined(separator: ", ")
        throw Failure(
            .noInput,
            "the cache has no source \(source)"
                + (names.isEmpty ? ": it is empty" : "; it has \(names)\(known.count > 20 ? " …" : "")"))
    }

    private func pinnedRegion(in store: TileStore) throws -> PinnedRegion? {
        guard let name = region else { return nil }
        let all = try store.regions()
        guard let found = all.first(where: { $0.name == name }) else {
            let names = all.map(\.name).joined(separator: ", ")
            throw Failure(
                .noInput, "there is no region \(name.printable)\(names.isEmpty ? "" : "; there are: \(names)")")
        }
        let sources = found.tiles.map(\.source)
        guard let source = select.source ?? sources.first else {
            throw Failure(
                .usage, "region \(name) has no tiles of a source, only files by their URLs: they cannot be exported")
        }
        let names = sources.map(\.description).joined(separator: ", ")
        guard let part = found.part(of: source) else {
            let advice = sources.count == 1 ? "leave --source out" : "choose one of them"
            throw Failure(.usage, "region \(name) is of source \(names), not \(source): \(advice)")
        }
        guard select.source != nil || sources.count == 1 else {
            throw Failure(.usage, "region \(name) has tiles of \(names): choose one of them with --source")
        }
        return part
    }
}
