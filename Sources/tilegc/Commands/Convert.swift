import ArgumentParser
import TileArchive
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `tilegc convert`.
struct Convert: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "convert",
        abstract: "Writes the tiles of an archive or a published set into another archive, without a cache.",
        discussion: """
            FROM is an MBTiles or PMTiles file, a z/x/y folder, or the folder or set.json of a published set; TO a folder, an \
            MBTiles or a PMTiles file, by its ending or --format. A folder whose rows count from the south is read as \
            'FOLDER/{z}/{x}/{-y}.png'. Equal tiles are written once. Vector tiles keep their \
            compression, pictures are written uncompressed. What the archive says of itself is kept; a folder has it in \
            metadata.json. From a cache see 'tilegc export'; sets are made by 'tilegc publish'.

            A package appears when it is complete. What is there is not replaced without --force.

            Exit status 1 means that there was no tile, or that some are damaged; 74 that some could not be read.
            """)

    @Argument(help: ArgumentHelp("The archive to read.", valueName: "from"))
    var from: String

    @Argument(help: ArgumentHelp("The folder or file to write.", valueName: "to"))
    var path: String

    @OptionGroup var archive: ArchiveOptions

    @OptionGroup var metadata: MetadataOptions

    @Flag(help: "Replace a file that is there, or write into a folder that has something in it.")
    var force = false

    @Flag(help: "Count a folder's rows from the south (TMS).")
    var tms = false

    @Option(
        help: ArgumentHelp("Refuse an archive with more tiles (default: 10000000).", valueName: "n"),
        transform: ArgumentValues.count)
    var maxTiles: Int = 10_000_000

    @OptionGroup var report: ReportOptions

    func validate() throws {
        if from.isEmpty || path.isEmpty { throw ValidationError("a path is empty: name two archives") }
        try archive.checkTarget(path)
        if tms, try archive.kind(of: path) != .folder {
            throw ValidationError("--tms is for folders: MBTiles always counts rows from the south, PMTiles has none")
        }
    }

    func run() throws {
        guard case .archive(let reader) = try TileCollection(from) else {
            throw Failure(.usage, "\(from) is a cache: see 'tilegc export'")
        }
        let format = try archive.kind(of: path)
        guard force || isFree else {
            throw Failure(.usage, "\(path) is there: name another one, or say --force")
        }
        if TileCollection.isSame(from, path) {
            throw Failure(.usage, "\(from) and \(path) are one and the same: name another one to write")
        }
        Interrupt.watch()
        var conversion = ArchiveConversion(reader)
        conversion.mostTiles = maxTiles
        conversion.rowsFromSouth = tms
        try metadata.apply(to: &conversion.metadata)
        let messages = TransferMessages()
        defer { messages.finish() }
        let result = try conversion.run(to: path, format: format, observer: messages)
        messages.finish()
        let output = StandardOutput()
        if report.json {
            try output.line(result.json)
        } else {
            let failed = result.failed > 0 ? "; \(Figure.count(result.failed)) FAILED" : ""
            try output.line(
                "Converted \(Figure.count(result.tiles, "tile")) of \(Figure.size(result.bytes)); "
                    + "skipped \(Figure.count(result.skipped))\(failed).")
        }
        try output.finish()
        if result.wasStopped {
            throw Failure(
                .interrupted,
                format == .folder ? "interrupted: run it again, with --force" : "interrupted: \(path) was not written")
        }
        if result.failed > 0 {
            throw Failure(
                .inputOutput, "\(Figure.count(result.failed, "tile")) could not be read: see what is said of them above"
            )
        }
        if result.tiles == 0 { throw Failure(.found, "\(from) has no tile, so \(path) was not written") }
    }

    /// Whether nothing is there, or a folder with nothing in it.
    private var isFree: Bool {
        var status = stat()
        guard lstat(path, &status) == 0 else { return true }
        guard let folder = opendir(path) else { return false }
        defer { closedir(folder) }
        while let entry = readdir(folder) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name != ".", name != ".." { return false }
        }
        return true
    }
}
