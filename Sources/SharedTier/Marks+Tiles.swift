package import TileStore

extension Marks {
    /// There are at most so many marks for a list of tiles: lists come often, and an index has room for ``mostMarks``.
    static let mostOfList = 64

    /// What expires listed tiles of a source, and some others between them where there are many.
    ///
    /// Tiles of a zoom that lie in one square become one mark, for squares as large as it takes to have few.
    /// - Parameters:
    ///   - tiles: In their order, each once.
    ///   - now: By the bucket's clock.
    /// - Throws: What is wrong with the time.
    package static func expiring(_ source: SourceName, tiles: [PackedTile], at now: Timestamp) throws -> Marks {
        var marks = Marks()
        let zooms = Dictionary(grouping: tiles, by: \.z)
        for (zoom, tiles) in zooms {
            for square in squares(tiles, zoom, most: max(1, mostOfList / zooms.count)) {
                let (columns, rows) = (square.map(\.x), square.map(\.y))
                guard let west = columns.min(), let east = columns.max(), let north = rows.min(),
                    let south = rows.max(),
                    let mark = Mark(
                        source: source, zooms: zoom...zoom, columns: west...east, rows: north...south, time: now)
                else { throw StoreError(.invalidValue, "the bucket's clock says \(now): set it") }
                marks.add(mark)
            }
        }
        return marks
    }

    /// Divides tiles of a zoom by the smallest squares of which there are not too many.
    private static func squares(_ tiles: [PackedTile], _ zoom: Int, most: Int) -> [ArraySlice<PackedTile>] {
        for level in stride(from: zoom, through: 0, by: -1) {
            // In their order, those of a square follow one another.
            var squares: [ArraySlice<PackedTile>] = []
            var begin = 0
            for place in 1...tiles.count where squares.count <= most {
                guard place == tiles.count || tiles[place].ancestor(zoom: level) != tiles[begin].ancestor(zoom: level)
                else {
                    continue
                }
                squares.append(tiles[begin..<place])
                begin = place
            }
            if squares.count <= most { return squares }
        }
        return [tiles[...]]
    }
}
