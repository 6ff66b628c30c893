/// A straight edge in the plane, from north to south.
///
/// All arithmetic on it is exact: a place on it is whole cells and a fraction whose denominator is its height.
struct PlaneEdge: Sendable {
    let x0, y0, x1, y1: Int
    /// Which part of the outline it belongs to.
    let part: Int

    init(from a: PlaneVertex, to b: PlaneVertex, part: Int) {
        let (top, bottom) = a.y <= b.y ? (a, b) : (b, a)
        (x0, y0, x1, y1) = (top.x, top.y, bottom.x, bottom.y)
        self.part = part
    }

    var isVertical: Bool { x0 == x1 }
    var isHorizontal: Bool { y0 == y1 }
    var height: Int { y1 - y0 }

    /// Where it is at a height between its ends.
    func position(at y: Int) -> EdgePosition {
        isVertical ? EdgePosition(x0, 0) : EdgePosition(x0, 0) + run(over: y - y0)
    }

    /// How far east it goes over a height of at most its own.
    func run(over height: Int) -> EdgePosition {
        let whole = self.height
        guard whole > 0, height > 0 else { return EdgePosition(0, 0) }
        let product = (x1 - x0).magnitude.multipliedFullWidth(by: min(height, whole).magnitude)
        // The height is at most the whole, so the quotient is at most the width, which fits.
        let (cells, rest) = whole.magnitude.dividingFullWidth(product)
        if x1 >= x0 { return EdgePosition(Int(cells), Int(rest)) }
        return rest == 0 ? EdgePosition(-Int(cells), 0) : EdgePosition(-Int(cells) - 1, whole - Int(rest))
    }

    /// The sum of two positions on it.
    @inline(__always)
    func sum(_ a: EdgePosition, _ b: EdgePosition) -> EdgePosition {
        let rest = a.rest + b.rest
        return rest >= height
            ? EdgePosition(a.cell + b.cell + 1, rest - height) : EdgePosition(a.cell + b.cell, rest)
    }
}

/// A corner of an outline, in cells of the plane.
///
/// Columns beyond the world's edges are those of its next copy to the east or west.
struct PlaneVertex: Hashable, Sendable {
    var x, y: Int
}

/// A place on an edge: whole cells from the west, and a fraction of a cell in units of 1 / (height of the edge).
struct EdgePosition: Equatable, Sendable {
    var cell: Int
    var rest: Int

    @inline(__always) init(_ cell: Int, _ rest: Int) {
        self.cell = cell
        self.rest = rest
    }

    @inline(__always) static func + (start: EdgePosition, run: EdgePosition) -> EdgePosition {
        // The start is a corner, so there is no fraction to carry.
        EdgePosition(start.cell + run.cell, run.rest)
    }

    /// The column that it is in; its own column if it is on a tile's west edge.
    @inline(__always) func column(_ shift: Int) -> Int { cell >> shift }

    /// The first column that begins here or east of here.
    @inline(__always) func columnFromHere(_ shift: Int) -> Int {
        (cell + (rest > 0 ? 1 : 0) + (1 << shift) - 1) >> shift
    }

    /// Whether it is west of a place on the same edge.
    @inline(__always) func precedes(_ other: EdgePosition) -> Bool {
        cell != other.cell ? cell < other.cell : rest < other.rest
    }

    /// -1, 0 or 1: west of, at, or east of a place on another edge.
    static func order(_ a: EdgePosition, height: Int, _ b: EdgePosition, height other: Int) -> Int {
        if a.cell != b.cell { return a.cell < b.cell ? -1 : 1 }
        let left = a.rest.magnitude.multipliedFullWidth(by: max(1, other).magnitude)
        let right = b.rest.magnitude.multipliedFullWidth(by: max(1, height).magnitude)
        if left.high != right.high { return left.high < right.high ? -1 : 1 }
        return left.low == right.low ? 0 : left.low < right.low ? -1 : 1
    }
}
