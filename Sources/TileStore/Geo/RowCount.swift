/// Counts the tiles of many rows at once, where the same edges go through all of them from north to south.
///
/// Between two neighbouring edges, the columns of a row are a difference of rounded linear functions of the row, whose
/// sum over any number of rows is known in closed form. Where edges cross or come nearer to each other than a tile, the
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
        if let count = sum(rows) { return count }
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

    /// The closed form, or `nil` where it does not hold.
    private func sum(_ rows: Range<Int>) -> Int? {
        let (north, south) = (rows.lowerBound << shift, rows.upperBound << shift)
        var lines = edges.map { Line(edge: $0, top: $0.position(at: north), bottom: $0.position(at: south)) }
        lines.sort {
            let order = Line.order($0, $1)
            return order.top < 0 || order.top == 0 && order.bottom < 0
        }
        for index in lines.indices.dropFirst() where Line.order(lines[index - 1], lines[index]).bottom > 0 {
            return nil  // They cross.
        }
        let strips = strips(lines)
        guard let first = strips.first, let last = strips.last else { return 0 }
        let world = PlaneGrid.side
        for strip in strips {
            let width = min(strip.east.top.cell - strip.west.top.cell, strip.east.bottom.cell - strip.west.bottom.cell)
            if width > world { return rows.count << zoom }
        }
        let west = min(first.west.top.cell, first.west.bottom.cell)
        let east = max(last.east.top.columnFromHere(0), last.east.bottom.columnFromHere(0))
        guard west >= 0 && east <= world || east - west <= world - (2 << shift) else { return nil }
        for index in strips.indices.dropFirst() where !areApart(strips[index - 1].east, strips[index].west) {
            return nil
        }
        var total = 0
        for strip in strips {
            guard let end = columnSum(strip.east.edge, rows, east: true),
                let start = columnSum(strip.west.edge, rows, east: false)
            else { return nil }
            total += end - start
        }
        return total
    }

    /// What lies between edges, from west to east.
    private func strips(_ lines: [Line]) -> [(west: Line, east: Line)] {
        var strips: [(west: Line, east: Line)] = []
        var inside: [Int] = []
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
            if let index = inside.firstIndex(of: line.edge.part) {
                inside.swapAt(index, inside.count - 1)
                inside.removeLast()
            } else {
                inside.append(line.edge.part)
            }
        }
        return strips
    }

    /// Whether no row has a tile that both edges touch.
    private func areApart(_ a: Line, _ b: Line) -> Bool {
        let gap = min(b.top.cell - a.top.cell, b.bottom.cell - a.bottom.cell) - 1
        func slant(_ line: Line) -> Int {
            line.edge.isVertical ? 0 : abs(line.edge.run(over: 1 << shift).cell) + 1
        }
        return gap - slant(a) - slant(b) >= 1 << shift
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
