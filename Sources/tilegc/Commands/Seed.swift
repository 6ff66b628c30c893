import ArgumentParser
import TileCache
import TileStore

/// `tilegc seed`.
struct Seed: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "seed",
        abstract: "Downloads the tiles of an area into a cache, which is made if it does not exist.",
        discussion: """
            Asks only for what is missing or stale, so an interrupted run is completed, and an old area brought up to \
            date, by running it again: what has not changed costs the server an answer without a body. With --region \
            the area is pinned: no limit evicts it until 'tilegc regions rm'. Hosts whose terms forbid it are refused.

            Exit status 1 means that tiles are missing at the end: the report says how many and why. Run it again for those.
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup(title: "Server") var server: ServerOptions

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "The area in degrees; west > east crosses the antimeridian.", valueName: "west,south,east,north"),
        transform: ArgumentValues.box)
    var bbox: GeoBox

    @Option(help: ArgumentHelp("Its zooms: 7 or 0-7.", valueName: "zooms"), transform: ArgumentValues.zooms)
    var zoom: ClosedRange<Int>

    @Option(help: ArgumentHelp("Pin the area under this name.", valueName: "name"))
    var region: String?

    @Option(help: ArgumentHelp("Pixels for each point: 1, or 2 for @2x.", valueName: "n"))
    var scale: Int = 1

    @Flag(help: "Only count, and send no request.")
    var dryRun = false

    @OptionGroup var report: ReportOptions

    func run() async throws {
        let source = try server.tileSource()
        let coverage: TileCoverage
        do { coverage = try source.coverage(.box(bbox), zooms: zoom, scale: scale) } catch let error as TileCacheError {
            throw Failure(.usage, error.message)
        }
        // Before there is a cache: what is refused leaves none behind.
        let pinned: PinnedRegion?
        do {
            pinned = try TileCache.checkDownload(
                source, coverage, named: region, options: server.options, bulkAllowedHosts: server.bulkAllowedHosts)
        } catch let error as TileCacheError {
            throw Failure(.usage, error.message)
        }
        if dryRun { return try count(source, coverage, pinned) }
        Interrupt.watch()
        let fetcher = try server.open(cache, createIfMissing: true)
        try await fetcher.run(report) { cache in
            try await cache.download(source, coverage, named: region, options: server.options)
        }
    }

    /// What a run would do, as far as the cache tells.
    private func count(_ source: TileSource, _ coverage: TileCoverage, _ pinned: PinnedRegion?) throws {
        let total = coverage.tileCount
        var (missing, stale, fresh) = (total, 0, 0)
        // The cache's own entries are looked through, not the area's tiles: there may be far more of those.
        if let store = try openIfThere() {
            do { if let pinned { try TileCache.checkName(of: pinned, in: store) } } catch let error as TileCacheError {
                throw Failure(.usage, error.message)
            }
            let region = try PinnedRegion(name: "dry-run", source: source.name, spans: coverage.spans())
            var selection = EntrySelection()
            selection.region = region
            let now = EntryReport.now
            let scale = coverage.tiles().first { _ in true }?.scale ?? 1
            try store.forEachEntry(where: selection) { entry in
                guard entry.key.tile?.scale == scale, entry.key.tile?.format == nil else { return }
                missing -= 1
                if entry.metadata.isStale(at: now) { stale += 1 } else { fresh += 1 }
            }
            try store.close()
        }
        let output = StandardOutput()
        if report.json {
            try output.line(
                .object([
                    ("tiles", .integer(total)), ("missing", .integer(missing)), ("stale", .integer(stale)),
                    ("fresh", .integer(fresh)),
                ]))
        } else {
            try output.line(
                "\(Figure.count(total, "tile")): \(Figure.count(missing)) to fetch, \(Figure.count(stale)) to "
                    + "revalidate, \(Figure.count(fresh)) fresh.")
        }
        try output.finish()
    }

    private func openIfThere() throws -> TileStore? {
        do { return try cache.openForReading() } catch let error as StoreError where error.code == .noSuchCache {
            return nil
        }
    }
}
