import ArgumentParser
import Foundation
import TileArchive
import TileSets
import TileStore

/// `tilegc publish`.
struct Publish: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "publish",
        abstract: "Makes or renews a published set: a folder from which 'tilegc pull' takes what has changed.",
        discussion: """
            FROM is a cache's folder, an MBTiles or PMTiles file, a z/x/y folder, or the set.json of a set; 'FOLDER/set.json@ID' is \
            the version of it whose root begins with these digits: publishing it into the same folder goes back to it.

            Any server of files, bucket or memory stick can hold the folder. Renewing it writes only what is new. Who reads \
            it meanwhile sees the old set or the new one, whole. A run that was interrupted leaves the old set, and the next \
            one goes on with what it has written. Only tiles with bytes are published.

            With --sweep it removes objects that no kept root names and that were not written within a day, and publishes \
            nothing: 'tilegc publish --sweep FOLDER'.

            Exit status 1 means that nothing was selected, or that a tile is damaged; the old set is in place then.
            """)

    @Argument(help: ArgumentHelp("A cache's folder, or an archive.", valueName: "from"))
    var cache: String

    @Argument(help: ArgumentHelp("The folder to publish into, made if it does not exist.", valueName: "folder"))
    var folder: String?

    @OptionGroup(title: "Selection, from a cache") var select: SelectOptions

    @Option(
        help: ArgumentHelp(
            "How long the tiles are fresh where they are pulled to: 30d, 12h (default: as a set says that is published anew, else "
                + "until the next pull).",
            valueName: "age"),
        transform: ArgumentValues.age)
    var lifetime: Int?

    @Option(
        help: ArgumentHelp("How many former roots stay reachable (default: 8).", valueName: "n"),
        transform: ArgumentValues.count)
    var keep: Int = 8

    @Flag(
        help: ArgumentHelp(
            "Link files instead of copying them: no space is taken, but damage and rights reach both sides, and evicting "
                + "frees nothing."))
    var link = false

    @Flag(help: "Remove what no kept root names; the one argument is the set's folder.")
    var sweep = false

    @Option(
        help: ArgumentHelp("Refuse an archive with more tiles (default: 10000000).", valueName: "n"),
        transform: ArgumentValues.count)
    var maxTiles: Int = 10_000_000

    @OptionGroup var report: ReportOptions

    func validate() throws {
        if sweep {
            guard folder == nil, select.isEmpty else {
                throw ValidationError("--sweep takes the set's folder and nothing else: tilegc publish --sweep FOLDER")
            }
            return
        }
        guard let folder, !folder.isEmpty else {
            throw ValidationError("missing FOLDER: name the folder to publish into")
        }
        guard select.source != nil else {
            throw ValidationError(
                TileCollection.isArchive(cache)
                    ? "missing --source: give the set a name, such as --source world; \(cache) has no sources to choose from"
                    : "missing --source: name the source whose tiles to publish ('tilegc stats' lists them)")
        }
        guard keep <= SetBounds.kept else { throw ValidationError("--keep \(keep): at most \(SetBounds.kept)") }
        if let lifetime, lifetime > UInt32.max { throw ValidationError("--lifetime is too long") }
    }

    func run() throws {
        Interrupt.watch()
        if sweep { return try runSweep() }
        guard let source = select.source, let folder else { return }
        try OutputPlace.check(folder, for: folder)
        let from = try Origin(cache, source, select, maxTiles)
        var publisher = SetPublisher(from.tiles, source: source, now: EntryReport.now)
        publisher.lifetime = lifetime ?? from.lifetime
        publisher.keep = keep
        publisher.copier = link ? .linking : .cloning
        publisher.metadata = from.metadata
        let progress = Locked(Progress())
        publisher.progress.wantsStop = { Interrupt.isRequested }
        publisher.progress.published = { done, total, bytes in
            progress.withLock { $0.show(done, of: total, "tiles, \(Figure.size(bytes)) written") }
        }
        let result = try Failure.ofSets {
            defer { progress.withLock { $0.clear() } }
            return try publisher.publish(into: DiskFileSystem.made(at: folder))
        }
        try from.close()
        guard let root = result.root else {
            throw Failure(.found, "no tile is selected ('tilegc ls' lists them), so \(folder) was not written")
        }
        let output = StandardOutput()
        if report.json {
            try output.line(
                .object([
                    ("tiles", .integer(result.tiles)), ("blobs", .integer(result.blobs)),
                    ("newBlobs", .integer(result.newBlobs)), ("newBytes", .integer(result.newBytes)),
                    ("root", .string(root.description)), ("bytes", .integer(result.bytes)),
                    ("listBytes", .integer(result.listBytes)), ("shared", .integer(result.shared)),
                    ("skipped", .integer(result.skipped)),
                ]))
        } else {
            try output.line(
                "Published \(Figure.count(result.tiles, "tile")) of \(Figure.size(result.bytes)): "
                    + "\(Figure.count(result.newBlobs, "new blob")) of \(Figure.size(result.newBytes)); root \(root)")
        }
        try output.finish()
    }

    /// What is published.
    private struct Origin {
        let tiles: any PublishableTiles
        let metadata: [String: JSONValue]
        /// How long a set says that its tiles are fresh.
        let lifetime: Int?
        private let store: TileStore?

        init(_ path: String, _ source: SourceName, _ select: SelectOptions, _ mostTiles: Int) throws {
            switch try TileCollection(path) {
            case .archive(let archive):
                guard select.namesOnlySource else {
                    throw Failure(.usage, "of an archive all tiles are published: a selection is made from caches")
                }
                tiles = ArchiveToPublish(archive, mostTiles: mostTiles, observer: TransferMessages())
                metadata = (archive as? SetReader)?.statements ?? archive.metadata.setMembers
                lifetime = (archive as? SetReader)?.document.lifetime
                store = nil
            case .cache(let store):
                if try store.statistics().sources.allSatisfy({ $0.name != source }) {
                    throw Failure(.noInput, try store.complaint(about: source) ?? "the cache has nothing of \(source)")
                }
                tiles = CacheTiles(store, folder: path, source: source, selection: select.selection)
                metadata = try SourceDescription(cache: path, source: source).read().setMembers
                lifetime = nil
                self.store = store
            }
        }

        func close() throws { try store?.close() }
    }

    private func runSweep() throws {
        let swept = try Failure.ofSets {
            try SetSweep(now: EntryReport.now).run(DiskFileSystem(location: cache), unless: { Interrupt.isRequested })
        }
        let output = StandardOutput()
        if report.json {
            try output.line(.object([("deleted", .integer(swept.objects)), ("freedBytes", .integer(swept.bytes))]))
        } else {
            try output.line("Removed \(Figure.count(swept.objects, "object")) of \(Figure.size(swept.bytes)).")
        }
        try output.finish()
        if Interrupt.isRequested { throw Failure(.interrupted, "interrupted: run it again for the rest") }
    }
}

extension DiskFileSystem {
    /// A folder's files; the folder is made if it is missing.
    static func made(at path: String) throws -> DiskFileSystem {
        do { try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true) } catch {
            throw Failure(.inputOutput, "the folder \(path) cannot be made: \(error.localizedDescription)")
        }
        return DiskFileSystem(location: path)
    }
}

extension ArchiveMetadata {
    /// What a set says of its source.
    var setMembers: [String: JSONValue] {
        sourceJSON.withUnsafeBytes { JSONValue($0)?.object } ?? [:]
    }
}
