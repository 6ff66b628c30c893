import TileStore

/// What a cache has of a rectangle of tiles, as a grid of bounded size: a value.
///
/// Where there are more tiles than cells, a cell counts a square of them. Memory is that of the cells, whatever the zoom.
struct CoverageMap {
    /// What is known of a tile that is there.
    struct Mark: Equatable {
        var isStale: Bool
        /// Whether it is the knowledge that there is no such tile.
        var isNegative: Bool
        var isPinned: Bool
    }

    /// What a tile is drawn as.
    ///
    /// Of a tile's variants the first of these counts.
    enum Look: Int, CaseIterable {
        case pinnedFresh, fresh, pinnedStale, stale, negative

        init(_ mark: Mark) {
            if mark.isNegative {
                self = .negative
            } else if mark.isStale {
                self = mark.isPinned ? .pinnedStale : .stale
            } else {
                self = mark.isPinned ? .pinnedFresh : .fresh
            }
        }
    }

    /// The tiles that are looked at.
    let area: TileSpan
    /// How many tiles a cell is wide and high: a power of two.
    let tilesPerCell: Int
    /// Cells from the west to the east.
    let columns: Int
    /// Cells from the north to the south.
    let rows: Int
    // Cell by cell, a number for each look.
    private var counts: [UInt32]
    private var last: (tile: TileAddress, mark: Mark)?

    /// Tiles that are fresh, negative ones among them.
    private(set) var fresh = 0
    /// Tiles that are stale, negative ones among them.
    private(set) var stale = 0
    /// Tiles that are known not to exist.
    private(set) var negative = 0
    /// Tiles that a region pins.
    private(set) var pinned = 0

    /// Makes an empty map.
    ///
    /// - Parameter cells: The most cells along an edge.
    init(_ area: TileSpan, cells: Int) {
        self.area = area
        var side = 1
        while max(area.columns.count, area.rows.count) > side * max(1, cells) { side *= 2 }
        tilesPerCell = side
        columns = (area.columns.count + side - 1) / side
        rows = (area.rows.count + side - 1) / side
        counts = [UInt32](repeating: 0, count: columns * rows * Look.allCases.count)
    }

    /// How many tiles of the area are not there.
    var missing: Int { area.count - fresh - stale }

    /// Counts a tile; those outside of the area are left out.
    ///
    /// To be called in the order of keys, in which the variants of one tile follow each other.
    mutating func add(_ tile: TileAddress, _ mark: Mark) {
        guard area.contains(z: tile.z, x: tile.x, y: tile.y) else { return }
        if let last, last.tile.x == tile.x, last.tile.y == tile.y {
            guard Look(mark).rawValue < Look(last.mark).rawValue else { return }
            tally(last.tile, last.mark, -1)
        }
        tally(tile, mark, 1)
        last = (tile, mark)
    }

    private mutating func tally(_ tile: TileAddress, _ mark: Mark, _ change: Int) {
        let column = (tile.x - area.columns.lowerBound) / tilesPerCell
        let row = (tile.y - area.rows.lowerBound) / tilesPerCell
        let at = (row * columns + column) * Look.allCases.count + Look(mark).rawValue
        counts[at] = UInt32(clamping: Int(counts[at]) + change)
        if mark.isStale { stale += change } else { fresh += change }
        if mark.isNegative { negative += change }
        if mark.isPinned { pinned += change }
    }

    /// How many tiles of a cell have a look.
    func count(_ look: Look, column: Int, row: Int) -> Int {
        Int(counts[(row * columns + column) * Look.allCases.count + look.rawValue])
    }

    /// How many tiles of the area a cell stands for; fewer at the edges.
    func tiles(column: Int, row: Int) -> Int {
        min(tilesPerCell, area.columns.count - column * tilesPerCell)
            * min(tilesPerCell, area.rows.count - row * tilesPerCell)
    }
}
