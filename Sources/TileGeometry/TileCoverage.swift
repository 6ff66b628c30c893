/// The tiles of a range of zooms that a shape covers: how many, which, and in what order to get them.
///
/// Nothing is enumerated before it is asked for: counts take about as long for zoom 28 as for zoom 10.
public struct TileCoverage: Sendable {
    /// The shape.
    public let shape: RegionShape
    /// The zooms.
    public let zooms: ClosedRange<Int>
    /// The scale and format that the tiles are of.
    private let variant: TileAddress
    let outline: Outline

    /// How many tiles ``sample(_:using:)`` draws at most.
    public static let sampleLimit = 100_000

    /// Prepares a shape.
    ///
    /// - Parameters:
    ///   - shape: What to cover, at most 1,000,000 edges.
    ///   - zooms: Which zooms, within 0 to 28.
    ///   - scale: Pixels per point of the tiles.
    ///   - format: The format of the tiles, where the source has several.
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue`` for a shape or zooms that are not possible, and
    ///   ``StoreError/Code/invalidKey`` for scale and format.
    public init(_ shape: RegionShape, zooms: ClosedRange<Int>, scale: Int = 1, format: String? = nil) throws {
        guard zooms.lowerBound >= 0, zooms.upperBound <= 28 else {
            throw StoreError(.invalidValue, "zooms \(zooms) are not in 0...28")
        }
        self.shape = shape
        self.zooms = zooms
        variant = try TileAddress(z: 0, x: 0, y: 0, scale: scale, format: format)
        outline = try Outline(shape)
    }

    /// How many tiles of a zoom it covers; 0 for zooms that are not its own.
    ///
    /// Exact, and cheap enough to ask before a download: it takes time for the corners of the shape, not for tiles.
    /// Where shapes overlap or edges run nearly parallel less than a tile apart, it takes time for rows.
    public func tileCount(zoom: Int) -> Int {
        guard zooms.contains(zoom) else { return 0 }
        var scanner = RowScanner(outline, zoom: zoom)
        return scanner.count()
    }

    /// How many tiles of all zooms it covers.
    ///
    /// All tiles of all zooms are 96,076,792,050,570,581, so nothing overflows.
    public var tileCount: Int { zooms.reduce(0) { $0 + tileCount(zoom: $1) } }

    /// The tiles as rectangles without overlap, sorted by zoom, row and column.
    ///
    /// - Parameter limit: How many are wanted at most; a `PinnedRegion` takes 65,536.
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue`` if there are more.
    public func spans(limit: Int = 65_536) throws -> [TileSpan] {
        var spans: [TileSpan] = []
        for zoom in zooms { spans += try self.spans(zoom: zoom, limit: limit - spans.count, of: limit) }
        return spans
    }

    private func spans(zoom: Int, limit: Int, of total: Int) throws -> [TileSpan] {
        /// Runs that the last row had, and the row in which each of them began.
        var open: [(run: ColumnRun, start: Int)] = []
        var spans: [TileSpan] = []
        var end = 0
        func close(_ item: (run: ColumnRun, start: Int)) throws {
            spans.append(
                try TileSpan(zoom: zoom, columns: item.run.first...item.run.last, rows: item.start...(end - 1)))
        }
        var scanner = RowScanner(outline, zoom: zoom)
        var runs: [ColumnRun] = []
        while let rows = scanner.next(&runs) {
            var next: [(run: ColumnRun, start: Int)] = []
            next.reserveCapacity(runs.count)
            // Both lists are sorted; a run goes on if the row above had the same.
            var index = 0
            for run in runs {
                while index < open.count, open[index].run.first < run.first {
                    try close(open[index])
                    index += 1
                }
                if index < open.count, open[index].run == run, end == rows.lowerBound {
                    next.append(open[index])
                    index += 1
                } else {
                    next.append((run, rows.lowerBound))
                }
            }
            for item in open[index...] { try close(item) }
            open = next
            end = rows.upperBound
            guard spans.count + open.count <= limit else {
                throw StoreError(
                    .invalidValue,
                    "the region takes more than \(total) rectangles at zoom \(zoom): use lower zooms, a box, or a "
                        + "simpler shape, or divide it into several regions")
            }
        }
        for item in open { try close(item) }
        return spans.sorted {
            ($0.rows.lowerBound, $0.columns.lowerBound) < ($1.rows.lowerBound, $1.columns.lowerBound)
        }
    }

    /// The tiles one by one: zoom by zoom, parents before their children, rows from the north, columns from the west.
    ///
    /// - Parameter last: Where a former run had come to: its last tile. Starts behind it, whether or not the shape
    ///   covers it.
    public func tiles(after last: TileAddress? = nil) -> CoveredTiles {
        CoveredTiles(coverage: self, last: last, variant: variant)
    }

    /// Tiles drawn at random, every one as likely as every other and none twice, in the order of ``tiles(after:)``.
    ///
    /// - Parameters:
    ///   - count: How many; all of them if there are no more, and at most ``sampleLimit``.
    ///   - generator: Where the randomness comes from.
    public func sample(_ count: Int, using generator: inout some RandomNumberGenerator) -> [TileAddress] {
        let counts = zooms.map { tileCount(zoom: $0) }
        let total = counts.reduce(0, +)
        let wanted = min(max(count, 0), total, Self.sampleLimit)
        // Robert Floyd's way to draw without repetition.
        var ranks: Set<Int> = []
        for last in (total - wanted)..<total {
            let rank = Int.random(in: 0...last, using: &generator)
            ranks.insert(ranks.contains(rank) ? last : rank)
        }
        let sorted = ranks.sorted()
        var (result, next, before): ([TileAddress], Int, Int) = ([], 0, 0)
        for (zoom, count) in zip(zooms, counts) {
            let first = next
            while next < sorted.count, sorted[next] < before + count { next += 1 }
            if first < next { result += tiles(zoom: zoom, ranks: sorted[first..<next].map { $0 - before }) }
            before += count
        }
        return result
    }

    /// The tiles of a zoom with these places in its order.
    private func tiles(zoom: Int, ranks: [Int]) -> [TileAddress] {
        var result: [TileAddress] = []
        var (next, before) = (0, 0)
        var columns = ColumnUnion(parts: outline.parts, side: 1 << zoom)
        var runs: [ColumnRun] = []
        var scanner = RowScanner(outline, zoom: zoom)
        _ = scanner.count { rows, edges, count in
            while next < ranks.count, ranks[next] < before + count {
                var (rows, rank) = (rows, ranks[next] - before)
                while rows.count > 1 {
                    let middle = rows.lowerBound + rows.count / 2
                    let upper = rows.lowerBound..<middle
                    let count = RowCount(edges: edges, zoom: zoom).tiles(upper, &columns)
                    if rank < count {
                        rows = upper
                    } else {
                        rank -= count
                        rows = middle..<rows.upperBound
                    }
                }
                columns.add(edges, row: rows.lowerBound, shift: PlaneGrid.shift(zoom))
                columns.take(&runs)
                for run in runs {
                    let width = run.last - run.first + 1
                    if rank < width {
                        result.append(variant.at(zoom, run.first + rank, rows.lowerBound))
                        break
                    }
                    rank -= width
                }
                next += 1
            }
            before += count
        }
        return result
    }
}

/// The tiles that a shape covers, computed as they are asked for, in constant memory.
public struct CoveredTiles: Sequence, Sendable {
    let coverage: TileCoverage
    let last: TileAddress?
    let variant: TileAddress

    /// Starts from the beginning, or behind the tile that was named.
    public func makeIterator() -> Iterator { Iterator(self) }

    /// Goes through the tiles; to go on later, keep the last tile that it gave.
    public struct Iterator: IteratorProtocol, Sendable {
        private let outline: Outline
        private let variant: TileAddress
        private var zooms: Range<Int>
        private var scanner: RowScanner?
        private var rows = 0..<0
        private var runs: [ColumnRun] = []
        private var run = 0
        private var column = 0
        /// Of the first row, what is east of here.
        private var resume: (row: Int, column: Int)?

        init(_ tiles: CoveredTiles) {
            outline = tiles.coverage.outline
            variant = tiles.variant
            let all = tiles.coverage.zooms
            zooms = all.lowerBound..<(all.upperBound + 1)
            guard let last = tiles.last, last.z >= all.lowerBound else { return }
            zooms = Swift.min(last.z + 1, zooms.upperBound)..<zooms.upperBound
            guard last.z <= all.upperBound else { return }
            scanner = RowScanner(outline, zoom: last.z, from: last.y)
            resume = (last.y, last.x + 1)
        }

        /// The next tile.
        public mutating func next() -> TileAddress? {
            while true {
                if run < runs.count, let row = rows.first, let zoom = scanner?.zoom {
                    if column <= runs[run].last {
                        defer { column += 1 }
                        return variant.at(zoom, column, row)
                    }
                    run += 1
                    if run < runs.count { column = runs[run].first }
                    continue
                }
                guard advance() else { return nil }
            }
        }

        /// Goes to the next row that has tiles.
        private mutating func advance() -> Bool {
            rows = rows.dropFirst()
            if rows.isEmpty {
                while true {
                    if let rows = scanner?.next(&runs) {
                        self.rows = rows
                        break
                    }
                    guard let zoom = zooms.first else { return false }
                    zooms = zooms.dropFirst()
                    scanner = RowScanner(outline, zoom: zoom)
                    resume = nil
                }
            }
            run = 0
            column = runs[0].first
            if let from = resume, rows.lowerBound == from.row {
                while run < runs.count, runs[run].last < from.column { run += 1 }
                if run < runs.count { column = Swift.max(runs[run].first, from.column) }
            }
            resume = nil
            return true
        }
    }
}
