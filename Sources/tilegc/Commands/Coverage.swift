import ArgumentParser
import TileArchive
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// `tilegc coverage`.
struct Coverage: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "coverage",
        abstract: "Draws what is cached of a source at a zoom: fresh, stale, absent, missing, pinned.",
        discussion: """
            The picture shows the box of --bbox, else the smallest box around what is cached. In the terminal a cell is \
            two characters wide; in a file it is up to 32 pixels, and the picture at most 1024 along an edge: of large \
            areas a pixel stands for a square of tiles and has the mean of their colours.

            Colours: blue pinned, green fresh, purple pinned and stale, orange stale, grey known to be absent, dark \
            missing.
            """)

    @OptionGroup var cache: CacheArgument

    @Option(help: ArgumentHelp("The source.", valueName: "name"), transform: ArgumentValues.source)
    var source: SourceName

    @Option(
        help: ArgumentHelp("The zoom.", valueName: "zoom"),
        transform: { text in
            let zooms = try ArgumentValues.zooms(text)
            guard zooms.count == 1 else { throw ValidationError("expected one zoom such as 7, not '\(text)'") }
            return zooms.lowerBound
        })
    var zoom: Int

    // Unconditional, because a box in the west begins with a minus.
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("Only this box, in degrees.", valueName: "west,south,east,north"),
        transform: ArgumentValues.box)
    var bbox: GeoBox?

    @Option(help: ArgumentHelp("Write a picture here instead of to the terminal.", valueName: "file"))
    var png: String?

    @OptionGroup var report: ReportOptions

    func run() throws {
        let store = try cache.openForReading()
        if let complaint = try store.complaint(about: source) { throw Failure(.noInput, complaint) }
        let map = try self.map(of: store)
        if map.missing == map.area.count {
            let zooms = try store.statistics().sources.first { $0.name == source }?.zooms
            Message.print(
                "nothing of \(source) is cached \(bbox == nil ? "" : "in this box ")at zoom \(zoom)"
                    + (zooms.map { "; its tiles have zooms \($0.lowerBound) to \($0.upperBound)" } ?? ""))
        }
        try store.close()
        if let png { try write(CoveragePicture(map), to: png) }
        let output = StandardOutput()
        if report.json {
            try output.line(json(map))
        } else {
            if png == nil { for line in CoverageText.lines(map) + [CoverageText.legend] { try output.line(line) } }
            for line in lines(map) { try output.line(line) }
        }
        try output.finish()
    }

    private func map(of store: TileStore) throws -> CoverageMap {
        var selection = EntrySelection()
        selection.source = source
        selection.zooms = zoom...zoom
        selection.box = bbox
        let now = EntryReport.now
        var map = CoverageMap(
            try area(of: store, selection), cells: png == nil ? CoverageText.cells : CoveragePicture.longest)
        try store.forEachEntry(in: .key, where: selection) { entry in
            guard let tile = entry.key.tile else { return }
            map.add(
                tile,
                CoverageMap.Mark(
                    isStale: entry.metadata.isStale(at: now), isNegative: entry.blob == nil, isPinned: entry.isPinned))
        }
        return map
    }

    /// The box asked for as tiles, else the smallest one around what is there, else the whole world.
    private func area(of store: TileStore, _ selection: EntrySelection) throws -> TileSpan {
        var (columns, rows): (ClosedRange<Int>?, ClosedRange<Int>?) = (nil, nil)
        func include(_ more: TileSpan) {
            columns = Self.hull(columns, more.columns)
            rows = Self.hull(rows, more.rows)
        }
        if let bbox {
            try bbox.spans(zoom: zoom).forEach(include)
        } else {
            try store.forEachEntry(in: .recency, where: selection) { entry in
                guard let tile = entry.key.tile else { return }
                include(try TileSpan(zoom: zoom, columns: tile.x...tile.x, rows: tile.y...tile.y))
            }
        }
        let all = 0...(1 << zoom) - 1
        return try TileSpan(zoom: zoom, columns: columns ?? all, rows: rows ?? all)
    }

    private static func hull(_ a: ClosedRange<Int>?, _ b: ClosedRange<Int>) -> ClosedRange<Int> {
        guard let a else { return b }
        return min(a.lowerBound, b.lowerBound)...max(a.upperBound, b.upperBound)
    }

    private func write(_ picture: CoveragePicture, to path: String) throws {
        let data = try PNGFile.encode(width: picture.width, height: picture.height, rgb: picture.pixels)
        do { try OutputFile.write(data, to: path) } catch let error as ArchiveError where error.code == .notFound {
            throw Failure(.inputOutput, error.message)
        }
    }

    private func json(_ map: CoverageMap) -> JSON {
        .object([
            ("source", .string(source.description)), ("zoom", .integer(zoom)),
            ("columns", .array([.integer(map.area.columns.lowerBound), .integer(map.area.columns.upperBound)])),
            ("rows", .array([.integer(map.area.rows.lowerBound), .integer(map.area.rows.upperBound)])),
            ("tiles", .integer(map.area.count)), ("fresh", .integer(map.fresh)), ("stale", .integer(map.stale)),
            ("negative", .integer(map.negative)), ("missing", .integer(map.missing)), ("pinned", .integer(map.pinned)),
            ("tilesPerCell", .integer(map.tilesPerCell)),
        ])
    }

    private func lines(_ map: CoverageMap) -> [String] {
        let (columns, rows) = (map.area.columns, map.area.rows)
        var lines = [
            "\(source) at zoom \(zoom), columns \(columns.lowerBound) to \(columns.upperBound), rows "
                + "\(rows.lowerBound) to \(rows.upperBound): \(Figure.count(map.area.count, "tile"))",
            "\(Figure.count(map.fresh)) fresh, \(Figure.count(map.stale)) stale; \(Figure.count(map.negative)) negative "
                + "and \(Figure.count(map.pinned)) pinned among them; \(Figure.count(map.missing)) missing "
                + "(\(Figure.percent(map.area.count - map.missing, of: map.area.count)) there)",
        ]
        if map.tilesPerCell > 1 {
            lines.append("Each cell stands for \(map.tilesPerCell) by \(map.tilesPerCell) tiles.")
        }
        if let png { lines.append("Drawn into \(png.printable).") }
        return lines
    }
}
