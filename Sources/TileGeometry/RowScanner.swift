/// Columns of a row, both ends included.
struct ColumnRun: Equatable, Sendable {
    var first, last: Int
}

/// Goes through the rows of a zoom from north to south and finds the columns that an outline covers.
///
/// A tile is covered if an edge goes through its open inside, or if it is within a part altogether; the latter is
/// decided where no edge goes through, by the number of edges to its west. Neither needs to know where edges cross.
/// Memory grows with the number of edges that a row has, not with rows or tiles.
struct RowScanner: Sendable {
    let outline: Outline
    let zoom: Int
    private let shift: Int
    private let side: Int
    /// The next row.
    private(set) var row: Int
    private var nextEdge = 0
    private var active: [ActiveEdge] = []
    private var columns: ColumnUnion

    init(_ outline: Outline, zoom: Int, from row: Int = 0) {
        self.outline = outline
        self.zoom = zoom
        shift = PlaneGrid.shift(zoom)
        side = 1 << zoom
        self.row = row
        columns = ColumnUnion(parts: outline.parts, side: side)
    }

    /// The next rows with tiles and the columns that each of them has; `nil` when there are no more.
    mutating func next(_ runs: inout [ColumnRun]) -> Range<Int>? {
        while let rows = begin() {
            scanRow()
            let same = isUpright(rows) ? rows : rows.lowerBound..<(rows.lowerBound + 1)
            finish(same)
            columns.take(&runs)
            if !runs.isEmpty { return same }
        }
        return nil
    }

    /// How many tiles the rest of the zoom has; each stretch of rows is shown to a visitor with its edges and count.
    ///
    /// Does not go through rows where edges only go on: costs of the order of (corners x edges in a row).
    mutating func count(visit: ((_ rows: Range<Int>, _ edges: [PlaneEdge], _ count: Int) -> Void)? = nil) -> Int {
        var total = 0
        while let stretch = begin() {
            // A few rows are counted sooner than they are summed up.
            let isFew = stretch.count <= 16 && !isUpright(stretch)
            let rows = isFew ? stretch.lowerBound..<(stretch.lowerBound + 1) : stretch
            // What a row has of edges that end in it is gone once the row is finished.
            let edges = rows.count > 1 || visit != nil ? active.map(\.edge) : []
            let count: Int
            if rows.count > 1 {
                count = RowCount(edges: edges, zoom: zoom).tiles(rows, &columns)
            } else {
                scanRow()
                count = columns.count()
            }
            finish(rows)
            visit?(rows, edges, count)
            total += count
        }
        return total
    }

    /// Lets in the edges that the next row has.
    ///
    /// - Returns: That row, and those after it to which the same edges go on all the way through.
    private mutating func begin() -> Range<Int>? {
        let edges = outline.edges
        if active.isEmpty {
            guard nextEdge < edges.count else { return nil }
            row = max(row, edges[nextEdge].y0 >> shift)
        }
        guard row < side else { return nil }
        let (top, bottom) = (row << shift, (row + 1) << shift)
        while nextEdge < edges.count, edges[nextEdge].y0 < bottom {
            if edges[nextEdge].y1 > top { active.append(ActiveEdge(edges[nextEdge], from: top, shift: shift)) }
            nextEdge += 1
        }
        var end = nextEdge < edges.count ? min(side, edges[nextEdge].y0 >> shift) : side
        for item in active {
            if item.edge.y0 > top || item.edge.y1 < bottom || item.edge.isHorizontal { return row..<(row + 1) }
            end = min(end, item.edge.y1 >> shift)
        }
        return row..<max(row + 1, end)
    }

    private mutating func scanRow() {
        for index in active.indices {
            let item = active[index]
            active[index].top = columns.add(item.edge, top: item.top, step: item.step, row: row, shift: shift)
        }
    }

    /// Whether all edges go straight south, so that all of the rows have the same columns.
    private func isUpright(_ rows: Range<Int>) -> Bool { rows.count > 1 && active.allSatisfy(\.edge.isVertical) }

    /// Leaves rows behind.
    private mutating func finish(_ rows: Range<Int>) {
        row = rows.upperBound
        let top = row << shift
        active.removeAll { $0.edge.y1 <= top }
        guard rows.count > 1 else { return }
        for index in active.indices { active[index].top = active[index].edge.position(at: top) }
    }
}

/// An edge that the current row has.
private struct ActiveEdge: Sendable {
    let edge: PlaneEdge
    /// Where it is at the row's north edge, or where it begins.
    var top: EdgePosition
    /// How far east it goes over a row, if it ever crosses a whole one.
    let step: EdgePosition?

    init(_ edge: PlaneEdge, from top: Int, shift: Int) {
        self.edge = edge
        self.top = edge.position(at: max(edge.y0, top))
        step = edge.height >= 1 << shift ? edge.run(over: 1 << shift) : nil
    }
}

/// Collects the columns of one row.
struct ColumnUnion: Sendable {
    private struct Flip { var column, part: Int }

    private let side: Int
    private var runs: [ColumnRun] = []
    private var flips: [Flip] = []
    /// For each part whether the columns from here on are inside.
    private var inside: [Bool]

    init(parts: Int, side: Int) {
        self.side = side
        inside = Array(repeating: false, count: parts)
    }

    /// Adds what an edge covers of a row.
    ///
    /// - Parameters:
    ///   - edge: An edge that the row has.
    ///   - top: Where it is at the row's north edge, or where it begins.
    ///   - step: How far east it goes over a whole row, if that is known.
    ///   - row: The row.
    ///   - shift: The zoom's.
    /// - Returns: Where it is at the row's south edge, or where it ends.
    @inline(__always)
    mutating func add(
        _ edge: PlaneEdge, top: EdgePosition, step: EdgePosition?, row: Int, shift: Int
    ) -> EdgePosition {
        let (north, south) = (row << shift, (row + 1) << shift)
        if edge.isHorizontal {
            // On the row's own edge it goes through no tile of it.
            if edge.y0 > north, edge.y0 < south {
                let (west, east) = (min(edge.x0, edge.x1), max(edge.x0, edge.x1))
                add(EdgePosition(west, 0), EdgePosition(east, 0), shift)
            }
            return top
        }
        let bottom: EdgePosition
        if edge.isVertical {
            bottom = top
        } else if edge.y1 <= south {
            bottom = EdgePosition(edge.x1, 0)
        } else if let step, edge.y0 <= north {
            bottom = edge.sum(top, step)
        } else {
            bottom = edge.position(at: south)
        }
        if bottom.precedes(top) { add(bottom, top, shift) } else { add(top, bottom, shift) }
        if edge.y0 <= north { flips.append(Flip(column: top.columnFromHere(shift), part: edge.part)) }
        return bottom
    }

    /// Adds all the edges that a row has.
    mutating func add(_ edges: [PlaneEdge], row: Int, shift: Int) {
        for edge in edges {
            _ = add(edge, top: edge.position(at: max(edge.y0, row << shift)), step: nil, row: row, shift: shift)
        }
    }

    @inline(__always)
    private mutating func add(_ west: EdgePosition, _ east: EdgePosition, _ shift: Int) {
        let (first, last) = (west.column(shift), east.columnFromHere(shift) - 1)
        if first <= last { add(ColumnRun(first: first, last: last)) }
    }

    /// Adds columns, some of which may be in the next copies of the world.
    @inline(__always)
    private mutating func add(_ run: ColumnRun) {
        if run.first >= 0, run.last < side { return runs.append(run) }
        if run.last - run.first + 1 >= side { return runs.append(ColumnRun(first: 0, last: side - 1)) }
        let (first, last) = (run.first & (side - 1), run.last & (side - 1))
        if first <= last { return runs.append(ColumnRun(first: first, last: last)) }
        runs.append(ColumnRun(first: 0, last: last))
        runs.append(ColumnRun(first: first, last: side - 1))
    }

    /// Turns what was collected into runs, sorted and disjoint, and forgets it.
    mutating func take(_ result: inout [ColumnRun]) {
        collect()
        swap(&result, &runs)
        runs.removeAll(keepingCapacity: true)
    }

    /// Counts what was collected, and forgets it.
    mutating func count() -> Int {
        collect()
        defer { runs.removeAll(keepingCapacity: true) }
        return runs.reduce(0) { $0 + $1.last - $1.first + 1 }
    }

    private mutating func collect() {
        order(&flips) { $0.column < $1.column }
        var (parts, start) = (0, 0)
        for flip in flips {
            if inside[flip.part] {
                inside[flip.part] = false
                parts -= 1
                if parts == 0, start < flip.column { add(ColumnRun(first: start, last: flip.column - 1)) }
            } else {
                inside[flip.part] = true
                if parts == 0 { start = flip.column }
                parts += 1
            }
        }
        flips.removeAll(keepingCapacity: true)
        guard runs.count > 1 else { return }
        order(&runs) { $0.first < $1.first }
        var kept = 0
        for index in 1..<runs.count {
            if runs[index].first <= runs[kept].last + 1 {
                runs[kept].last = max(runs[kept].last, runs[index].last)
            } else {
                kept += 1
                runs[kept] = runs[index]
            }
        }
        runs.removeLast(runs.count - kept - 1)
    }
}

/// Sorts; most rows have a handful of edges, for which inserting is fastest.
@inline(__always)
private func order<T>(_ items: inout [T], by precedes: (T, T) -> Bool) {
    guard items.count <= 16 else { return items.sort(by: precedes) }
    for index in items.indices.dropFirst() {
        var place = index
        while place > 0, precedes(items[place], items[place - 1]) {
            items.swapAt(place, place - 1)
            place -= 1
        }
    }
}
