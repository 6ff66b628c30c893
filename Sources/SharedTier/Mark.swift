package import TileStore

/// Says of some tiles of a source that what was asked for before a time is stale.
package struct Mark: Hashable, Sendable {
    /// The source's name: a mark is about all sources of that name.
    package let source: SourceName
    /// The zooms.
    package let zooms: ClosedRange<Int>
    /// The columns and rows of the last of these zooms.
    ///
    /// On a lower one it is about every tile that has one of them below it.
    package let columns: ClosedRange<Int>
    package let rows: ClosedRange<Int>
    /// The time, by the bucket's clock.
    package let time: Timestamp

    /// - Returns: `nil` if the rectangle is not in the zoom.
    package init?(
        source: SourceName, zooms: ClosedRange<Int>, columns: ClosedRange<Int>, rows: ClosedRange<Int>, time: Timestamp
    ) {
        guard zooms.lowerBound >= 0, zooms.upperBound <= 28 else { return nil }
        let side = 0..<(1 << zooms.upperBound)
        guard side.contains(columns.lowerBound), side.contains(columns.upperBound), side.contains(rows.lowerBound),
            side.contains(rows.upperBound), (1...Timestamp.distantFuture.seconds).contains(time.seconds)
        else { return nil }
        self.init(checked: source, zooms, columns, rows, time)
    }

    private init(
        checked source: SourceName, _ zooms: ClosedRange<Int>, _ columns: ClosedRange<Int>, _ rows: ClosedRange<Int>,
        _ time: Timestamp
    ) {
        (self.source, self.zooms, self.columns, self.rows, self.time) = (source, zooms, columns, rows, time)
    }

    /// Whether it is about a tile of its source.
    package func covers(z: Int, x: Int, y: Int) -> Bool {
        guard zooms.contains(z) else { return false }
        let shift = zooms.upperBound - z
        return x << shift <= columns.upperBound && (x + 1) << shift > columns.lowerBound
            && y << shift <= rows.upperBound && (y + 1) << shift > rows.lowerBound
    }

    /// Whether it says at least as much as another one.
    package func includes(_ other: Mark) -> Bool {
        guard source == other.source, time >= other.time, zooms.lowerBound <= other.zooms.lowerBound,
            zooms.upperBound >= other.zooms.upperBound
        else { return false }
        let there = other.raised(to: zooms)
        return columns.lowerBound <= there.columns.lowerBound && columns.upperBound >= there.columns.upperBound
            && rows.lowerBound <= there.rows.lowerBound && rows.upperBound >= there.rows.upperBound
    }

    /// One that says all that both say, and mostly more; `nil` for another source.
    package func joined(_ other: Mark) -> Mark? {
        guard source == other.source else { return nil }
        let all =
            min(zooms.lowerBound, other.zooms.lowerBound)...max(zooms.upperBound, other.zooms.upperBound)
        let (a, b) = (raised(to: all), other.raised(to: all))
        return Mark(
            checked: source, all,
            min(a.columns.lowerBound, b.columns.lowerBound)...max(a.columns.upperBound, b.columns.upperBound),
            min(a.rows.lowerBound, b.rows.lowerBound)...max(a.rows.upperBound, b.rows.upperBound),
            max(time, other.time))
    }

    /// How much of the map it is about, as a share of it for each zoom.
    var extent: Double {
        let side = Double(1 << zooms.upperBound)
        return Double(columns.count) / side * Double(rows.count) / side * Double(zooms.count)
    }

    /// The same about more zooms; no less.
    private func raised(to all: ClosedRange<Int>) -> Mark {
        let shift = all.upperBound - zooms.upperBound
        guard shift > 0 else { return Mark(checked: source, all, columns, rows, time) }
        func below(_ range: ClosedRange<Int>) -> ClosedRange<Int> {
            range.lowerBound << shift...((range.upperBound + 1) << shift) - 1
        }
        return Mark(checked: source, all, below(columns), below(rows), time)
    }
}
