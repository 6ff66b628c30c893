import ArgumentParser
import TileStore

/// `tilegc regions`.
struct Regions: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "regions",
        abstract: "Lists pinned regions, or removes one with its tiles.",
        subcommands: [ListRegions.self, RemoveRegion.self],
        defaultSubcommand: ListRegions.self)
}

/// `tilegc regions CACHE`.
struct ListRegions: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ls", abstract: "Lists pinned regions and how much of each is there.")

    @OptionGroup var cache: CacheArgument
    @OptionGroup var report: ReportOptions

    func run() throws {
        let store = try cache.openForReading()
        let regions = try store.regionStatistics()
        try store.close()
        let output = StandardOutput()
        for figures in regions {
            let region = figures.region
            let zooms = region.tiles.flatMap(\.spans).map(\.zoom)
            let sources = region.tiles.map(\.source.description)
            let (first, last) = (zooms.min() ?? 0, zooms.max() ?? 0)
            if report.json {
                let box = region.box.map { box -> JSON in
                    .array([.real(box.west), .real(box.south), .real(box.east), .real(box.north)])
                }
                try output.line(
                    .object([
                        ("name", .string(region.name)), ("source", .string(region.source.description)),
                        ("bbox", box ?? .null), ("zooms", .array([.integer(first), .integer(last)])),
                        ("tiles", .integer(figures.tiles)), ("present", .integer(figures.present)),
                        ("bytes", .integer(figures.bytes)), ("sources", .array(sources.map { .string($0) })),
                        ("resources", .integer(region.resources.count)),
                        ("presentResources", .integer(figures.presentResources)),
                    ]))
            } else {
                let resources =
                    region.resources.isEmpty
                    ? ""
                    : "\(Figure.count(figures.presentResources)) of \(Figure.count(region.resources.count, "resource"))  "
                let source = sources.isEmpty ? region.source.description : sources.joined(separator: ",")
                try output.line(
                    "\(region.name.left(24))  \(source.left(16))  zoom \(first)-\(last)  "
                        + "\(Figure.count(figures.present)) of \(Figure.count(figures.tiles, "tile"))  \(resources)"
                        + "\(Figure.size(figures.bytes))  \(region.box?.description ?? "")")
            }
        }
        if regions.isEmpty, !report.json { try output.line("No region is pinned.") }
        try output.finish()
    }
}

/// `tilegc regions rm`.
struct RemoveRegion: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rm",
        abstract: "Unpins a region and deletes its tiles and resources, except those that another region covers.",
        discussion: """
            With --keep-tiles they stay, like any others: the cache's limits may evict them. If the command is interrupted, the region \
            may be gone and some of its tiles left: then they are like any others too, and 'tilegc rm' with --bbox removes them.
            """)

    @OptionGroup var cache: CacheArgument

    @Argument(help: "The region's name.")
    var name: String

    @Flag(help: "Only unpin: delete no tiles.")
    var keepTiles = false

    @OptionGroup var report: ReportOptions

    func run() throws {
        let store = try cache.open()
        let removed: RemovalReport?
        if keepTiles {
            removed = try store.unpin(name) ? RemovalReport() : nil
        } else {
            removed = try store.removeRegion(name)
        }
        try store.close()
        guard let removed else {
            throw Failure(.noInput, "no region is named \(name) ('tilegc regions' lists those that are)")
        }
        let output = StandardOutput()
        if report.json {
            try output.line(.object(removed.fields))
        } else {
            let tiles =
                keepTiles ? "Its tiles stay until the cache's limits evict them" : removed.sentence(planned: false)
            try output.line("Unpinned region \(name). \(tiles).")
        }
        try output.finish()
    }
}
