/// A coverage map as a picture: a colour for each state, mixed where a pixel stands for several tiles.
struct CoveragePicture {
    /// Red, green, blue.
    typealias Colour = (Int, Int, Int)

    /// The longest edge in pixels.
    static let longest = 1024
    static let missing: Colour = (32, 34, 40)

    static func colour(of look: CoverageMap.Look) -> Colour {
        switch look {
        case .pinnedFresh: (64, 145, 255)
        case .fresh: (60, 180, 85)
        case .pinnedStale: (165, 110, 245)
        case .stale: (235, 165, 45)
        case .negative: (120, 125, 135)
        }
    }

    let width: Int
    let height: Int
    /// Rows of pixels, three bytes each.
    let pixels: [UInt8]

    /// Draws a map; few cells are drawn large, with dark lines between them.
    init(_ map: CoverageMap) {
        let side = max(1, min(32, 512 / max(map.columns, map.rows)))
        (width, height) = (map.columns * side, map.rows * side)
        var pixels: [UInt8] = []
        pixels.reserveCapacity(width * height * 3)
        for row in 0..<map.rows {
            var line: [UInt8] = []
            line.reserveCapacity(width * 3)
            for column in 0..<map.columns {
                let (red, green, blue) = Self.colour(map, column, row)
                let pixel = [UInt8(clamping: red), UInt8(clamping: green), UInt8(clamping: blue)]
                for x in 0..<side { line += side >= 8 && x == side - 1 ? [0, 0, 0] : pixel }
            }
            for y in 0..<side {
                pixels += side >= 8 && y == side - 1 ? [UInt8](repeating: 0, count: line.count) : line
            }
        }
        self.pixels = pixels
    }

    /// The mean of the colours of a cell's tiles.
    static func colour(_ map: CoverageMap, _ column: Int, _ row: Int) -> Colour {
        let whole = max(1, map.tiles(column: column, row: row))
        var sum: Colour = (0, 0, 0)
        var left = whole
        func add(_ colour: Colour, _ count: Int) {
            sum.0 += colour.0 * count
            sum.1 += colour.1 * count
            sum.2 += colour.2 * count
        }
        for look in CoverageMap.Look.allCases {
            let count = map.count(look, column: column, row: row)
            add(colour(of: look), count)
            left -= count
        }
        add(missing, max(0, left))
        return (sum.0 / whole, sum.1 / whole, sum.2 / whole)
    }
}

/// A coverage map in characters, two for each cell, which makes cells about square.
enum CoverageText {
    /// The most cells along an edge, so that a line fits into 80 columns.
    static let cells = 39

    static func mark(of look: CoverageMap.Look) -> Character {
        switch look {
        case .pinnedFresh: "@"
        case .fresh: "#"
        case .pinnedStale: "%"
        case .stale: "+"
        case .negative: "-"
        }
    }

    /// The lines: what most tiles of a cell are, then the same again, or a point if some are missing.
    static func lines(_ map: CoverageMap) -> [String] {
        (0..<map.rows).map { row in
            var line = ""
            for column in 0..<map.columns {
                var (best, most, present): (CoverageMap.Look?, Int, Int) = (nil, 0, 0)
                for look in CoverageMap.Look.allCases {
                    let count = map.count(look, column: column, row: row)
                    present += count
                    if count > most { (best, most) = (look, count) }
                }
                let first = best.map(mark) ?? "."
                line.append(first)
                line.append(present < map.tiles(column: column, row: row) ? "." : first)
            }
            return line
        }
    }

    static let legend = "@ pinned  # fresh  % pinned and stale  + stale  - known to be absent  . missing"
}
