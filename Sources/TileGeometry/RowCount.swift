/// Counts the tiles of many rows at once, where the same edges go through all of them from north to south.
///
/// Between two neighbouring edges, the columns of a row are a difference of rounded linear functions of the row, whose
/// sum over any number of rows is known in closed form. Where edges cross or come nearer to each other than a tile, their
/// rows are halved until that is not so, or until so few are left that they are counted one by one.
struct RowCount {
    let edges: [PlaneEdge]
    let zoom: Int

    /// As many rows are not worth a closed form.
    private static let few = 8

    private var shift: Int { PlaneGrid.shift(zoom) }

    /// How many tiles the rows have.
    func tiles(_ rows: Range<Int>, _ columns: inout ColumnUnion) -> Int {
        if let first = rows.first, edges.allSatisfy(\.isVertical) {
            return rows.count * oneByOne(first..<(first + 1), &columns)
        }
        guard rows.count > Self.few else { return oneByOne(rows, &columns) }
        let lines = lines(rows)
        if isWithinOneWorld(lines) {
            let groups = groups(lines)
            if groups.count > 1 {
                return groups.reduce(0) { total, group in
                    total
                        + (sum(group, rows)
                            ?? RowCount(edges: group.map(\.edge), zoom: zoom).halves(rows, &columns))
                }
            }
            if let count = sum(lines[...], rows) { return count }
        } else if goesAround(lines) {
            return rows.count << zoom
        }
        return halves(rows, &columns)
    }

    private func halves(_ rows: Range<Int>, _ columns: inout ColumnUnion) -> Int {
        let middle = rows.lowerBound + rows.count / 2
        return tiles(rows.lowerBound..<middle, &columns) + tiles(middle..<rows.upperBound, &columns)
    }

    private func oneByOne(_ rows: Range<Int>, _ columns: inout ColumnUnion) -> Int {
        var total = 0
        for row in rows {
            columns.add(edges, row: row, shift: shift)
            total += columns.count()
        }
        return total
    }

    /// An edge with where it enters the rows and where it leaves them.
    private struct Line {
        let edge: PlaneEdge
        let top, bottom: EdgePosition

        static func order(_ a: Line, _ b: Line) -> (top: Int, bottom: Int) {
            (
                EdgePosition.order(a.top, height: a.edge.height, b.top, height: b.edge.height),
                EdgePosition.order(a.bottom, height: a.edge.height, b.bottom, height: b.edge.height)
            )
        }
    }

    /// The edges from west to east, as they enter the rows.
    private func lines(_ rows: Range<Int>) -> [Line] {
        let (north, south) = (rows.lowerBound << shift, rows.upperBound << shift)
        var lines = edges.map { Line(edge: $0, top: $0.position(at: north), bottom: $0.position(at: south)) }
        lines.sort {
            if $0.top.cell != $1.top.cell { return $0.top.cell < $1.top.cell }
            let order = Line.order($0, $1)
            return order.top < 0 || order.top == 0 && order.bottom < 0
        }
        return lines
    }

    /// Whether no column can be met a second time on the other side of the world.
    private func isWithinOneWorld(_ lines: [Line]) -> Bool {
        var (west, east) = (Int.max, Int.min)
        for line in lines {
            west = min(west, line.top.cell, line.bottom.cell)
            east = max(east, line.top.columnFromHere(0), line.bottom.columnFromHere(0))
        }
        if lines.isEmpty || west >= 0 && east <= PlaneGrid.side { return true }
        return east - west <= PlaneGrid.side - (2 << shift)
    }

    /// Whether something is inside all the way around the world, in all of the rows.
    private func goesAround(_ lines: [Line]) -> Bool {
        for (a, b) in zip(lines, lines.dropFirst()) where Line.order(a, b).bottom > 0 { return false }
        return strips(lines[...]).contains { strip in
            min(strip.east.top.cell - strip.west.top.cell, strip.east.bottom.cell - strip.west.bottom.cell)
                > PlaneGrid.side
        }
    }

    /// Edges apart: no row has a tile that edges of two groups touch, and between groups nothing is inside.
    private func groups(_ lines: [Line]) -> [ArraySlice<Line>] {
        let tile = 1 << shift
        // How far an edge goes within a row, and a cell for its fraction.
        let slants = lines.map { $0.edge.isVertical ? 1 : abs($0.edge.run(over: tile).cell) + 2 }
        // The westernmost of the lines from each one on.
        var rest = Array(repeating: (top: Int.max, bottom: Int.max), count: lines.count + 1)
        for index in lines.indices.reversed() {
            rest[index].top = min(rest[index + 1].top, lines[index].top.cell - slants[index])
            rest[index].bottom = min(rest[index + 1].bottom, lines[index].bottom.cell - slants[index])
        }
        var groups: [ArraySlice<Line>] = []
        var (start, inside) = (0, PartSet())
        var reach = (top: Int.min, bottom: Int.min)
        for index in lines.indices {
            inside.toggle(lines[index].edge.part)
            reach.top = max(reach.top, lines[index].top.cell + slants[index] + tile)
            reach.bottom = max(reach.bottom, lines[index].bottom.cell + slants[index] + tile)
            if inside.isEmpty, reach.top <= rest[index + 1].top, reach.bottom <= rest[index + 1].bottom {
                groups.append(lines[start...index])
                start = index + 1
            }
        }
        return groups
    }

    /// The closed form for lines with nothing but inside between the first and the last, or `nil` where it does not hold.
    private func sum(_ lines: ArraySlice<Line>, _ rows: Range<Int>) -> Int? {
        for (a, b) in zip(lines, lines.dropFirst()) where Line.order(a, b).bottom > 0 { return nil }  // They cross.
        let strips = strips(lines)
        guard let strip = strips.first else { return 0 }
        guard strips.count == 1, let end = columnSum(strip.east.edge, rows, east: true),
            let start = columnSum(strip.west.edge, rows, east: false)
        else { return nil }
        return end - start
    }

    /// What lies between edges, from west to east.
    private func strips(_ lines: ArraySlice<Line>) -> [(west: Line, east: Line)] {
        var strips: [(west: Line, east: Line)] = []
        var inside = PartSet()
        for line in lines {
            if inside.isEmpty {
                if let former = strips.last, Line.order(former.east, line) == (0, 0) {
                    // Two shapes meet along an edge that both have.
                    strips.removeLast()
                    strips.append((former.west, line))
                } else {
                    strips.append((line, line))
                }
            } else {
                strips[strips.count - 1].east = line
            }
            inside.toggle(line.edge.part)
        }
        return strips
    }

    /// The sum over some rows of the first column that an edge touches, or of the one east of the last.
    private func columnSum(_ edge: PlaneEdge, _ rows: Range<Int>, east: Bool) -> Int? {
        // Which end of the edge within a row is the farther one.
        let start = (edge.x1 >= edge.x0) == east ? rows.lowerBound + 1 : rows.lowerBound
        let count = rows.count
        let position = edge.position(at: start << shift)
        if edge.isVertical { return count * (east ? position.columnFromHere(shift) : position.column(shift)) }
        let step = edge.run(over: 1 << shift)
        let tile = 1 << shift
        let (modulus, tooLarge) = edge.height.multipliedReportingOverflow(by: tile)
        // Every intermediate number is below the square of the height of the edge within these rows, and some.
        let (bound, overflow) = edge.height.multipliedReportingOverflow(by: (count + 2) << shift)
        guard !tooLarge, !overflow, modulus < 1 << 60, bound < 1 << 61 else { return nil }
        let slope = (step.cell & (tile - 1)) * edge.height + step.rest
        let offset = (position.cell & (tile - 1)) * edge.height + position.rest + (east ? modulus - 1 : 0)
        return count * (position.cell >> shift) + (step.cell >> shift) * (count * (count - 1) / 2)
            + floorSum(count, modulus, slope, offset)
    }
}

/// Some parts of an outline: few at a time.
private struct PartSet {
    private var parts: [Int] = []
    private var one: Int?

    var isEmpty: Bool { one == nil && parts.isEmpty }

    mutating func toggle(_ part: Int) {
        if one == part {
            one = nil
        } else if let index = parts.firstIndex(of: part) {
            parts.swapAt(index, parts.count - 1)
            parts.removeLast()
        } else if one == nil {
            one = part
        } else {
            parts.append(part)
        }
    }
}

/// The sum of (slope * i + offset) / modulus, rounded down, for i from 0 to below the count, as Euclid would find it.
private func floorSum(_ count: Int, _ modulus: Int, _ slope: Int, _ offset: Int) -> Int {
    var (count, modulus, slope, offset) = (count, modulus, slope, offset)
    var total = 0
    while true {
        total += count * (count - 1) / 2 * (slope / modulus) + count * (offset / modulus)
        slope %= modulus
        offset %= modulus
        let end = slope * count + offset
        if end < modulus { return total }
        (count, offset) = end.quotientAndRemainder(dividingBy: modulus)
        swap(&modulus, &slope)
    }
}
