import ArgumentParser
import TileStore

/// `tilegc export`.
struct Export: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes the tiles of one source into a z/x/y folder, which is made if it does not exist.",
        discussion: """
            Files are named z/x/y.ext or z/x/y@2x.ext, with the extension from the key, else from what the bytes are. \
            Each file appears whole or not at all; one that holds the same bytes already is left alone, so an export \
            that was interrupted is completed by running it again. Nothing is written through symbolic links. Vector \
            tiles keep their compression, pictures are written uncompressed. What has no bytes or is no tile is \
            skipped and counted.

            Exit status 1 means that some tiles could not be exported because they are damaged.
            """)

    @OptionGroup var cache: CacheArgument

    @Argument(help: "The folder to write to.")
    var path: String

    @OptionGroup(title: "Selection") var select: SelectOptions

    @Flag(help: "Count rows from the south (TMS).")
    var tms = false

    @OptionGroup var archive: ArchiveOptions
    @OptionGroup var report: ReportOptions

    func validate() throws {
        try archive.check(path: path)
        guard select.source != nil else {
            throw ValidationError("missing --source: name the source whose tiles to export ('tilegc stats' lists them)")
        }
    }

    func run() throws {
        let store = try cache.openForReading()
        Interrupt.watch()
        var exporter = FolderExporter(
            store: store, folder: try FolderHandle.make(path), rowsFromSouth: tms)
        let result = try exporter.run(select.selection)
        try store.close()

        if result.isEmpty, !Interrupt.isRequested { Message.print("no entry is selected ('tilegc ls' lists them)") }
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
        if Interrupt.isRequested {
            throw Failure(.interrupted, "interrupted: run it again for the rest")
        }
        if result.failed > 0 {
            throw Failure(
                .found,
                "\(Figure.count(result.failed, "tile is", "tiles are")) damaged or missing: run 'tilegc verify --repair "
                    + "\(cache.cache)', fetch them again and export once more")
        }
    }
}
