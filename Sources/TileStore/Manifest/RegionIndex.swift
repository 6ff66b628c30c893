/// The rectangles of regions, arranged so that asking for one tile costs two binary searches a level of a tree, however the
/// rectangles lie.
///
/// For each zoom a segment tree over the rows: a rectangle is entered at the few nodes that together cover its rows. Each node
/// has the columns of its rectangles as sorted, disjoint ranges. A tile is covered if a node on the way from its row to the
/// root has a range with its column. Takes 8 bytes for each node at which a rectangle is entered: one for a rectangle of one
/// row, up to twice the tree's height for a tall one.
struct RegionIndex {
    private struct Columns {
        var first: UInt32
        var last: UInt32
    }

    private struct Zoom {
        /// The rows at which some rectangle begins, or after which one ends, ascending: they part the rows into bands.
        var bounds: [UInt32] = []
        /// For each node of the tree, where its columns begin; the leaves are the last half, one for each bound.
        var starts: [UInt32] = []
        var columns: [Columns] = []

        init(_ spans: [TileSpan]) {
            var rows = Set<UInt32>()
            for span in spans {
                rows.insert(UInt32(span.rows.lowerBound))
                rows.insert(UInt32(span.rows.upperBound) + 1)
            }
            bounds = rows.sorted()
            let leaves = bounds.count
            var entered: [(node: UInt32, columns: Columns)] = []
            entered.reserveCapacity(spans.count)
            for span in spans {
                let columns = Columns(first: UInt32(span.columns.lowerBound), last: UInt32(span.columns.upperBound))
                var low = leaves + place(UInt32(span.rows.lowerBound))
                var high = leaves + place(UInt32(span.rows.upperBound) + 1)
                while low < high {
                    if low & 1 == 1 {
                        entered.append((UInt32(low), columns))
                        low += 1
                    }
                    if high & 1 == 1 {
                        high -= 1
                        entered.append((UInt32(high), columns))
                    }
                    low >>= 1
                    high >>= 1
                }
            }
            entered.sort { ($0.node, $0.columns.first) < ($1.node, $1.columns.first) }
            join(entered, nodes: 2 * leaves)
        }

        /// Takes over what was entered, sorted by node and column, with ranges that touch made one.
        private mutating func join(_ entered: [(node: UInt32, columns: Columns)], nodes: Int) {
            starts.reserveCapacity(nodes + 1)
            for item in entered {
                let isFirst = starts.count <= Int(item.node)
                while starts.count <= Int(item.node) { starts.append(UInt32(columns.count)) }
                if !isFirst, let last = columns.last, item.columns.first <= last.last + 1 {
                    columns[columns.count - 1].last = max(last.last, item.columns.last)
                } else {
                    columns.append(item.columns)
                }
            }
            while starts.count <= nodes { starts.append(UInt32(columns.count)) }
        }

        /// How many bounds are below a row.
        private func place(_ row: UInt32) -> Int { bounds.partitionPoint { $0 < row } }

        /// - Parameter probes: Counts the ranges and bounds that were looked at.
        func contains(_ column: UInt32, _ row: UInt32, _ probes: inout Int) -> Bool {
            let band = bounds.partitionPoint { bound in
                probes += 1
                return bound <= row
            }
            // Above the first rectangle.
            guard band > 0 else { return false }
            var node = bounds.count + band - 1
            while node > 0 {
                let (from, to) = (Int(starts[node]), Int(starts[node + 1]))
                node >>= 1
                if from == to { continue }
                let next = columns[from..<to].partitionPoint { range in
                    probes += 1
                    return range.first <= column
                }
                if next > from, columns[next - 1].last >= column { return true }
            }
            return false
        }
    }

    private var zooms: [Int: Zoom] = [:]

    init(_ spans: [TileSpan]) {
        zooms = Dictionary(grouping: spans, by: \.zoom).mapValues { Zoom($0) }
    }

    func contains(z: Int, x: Int, y: Int) -> Bool {
        var probes = 0
        return contains(z: z, x: x, y: y, probes: &probes)
    }

    /// The same, counting the comparisons that it takes.
    @inline(__always)
    func contains(z: Int, x: Int, y: Int, probes: inout Int) -> Bool {
        guard let zoom = zooms[z] else { return false }
        return zoom.contains(UInt32(truncatingIfNeeded: x), UInt32(truncatingIfNeeded: y), &probes)
    }
}

extension RandomAccessCollection {
    /// The first place whose element does not belong, where all that belong come first.
    @inline(__always)
    fileprivate func partitionPoint(_ belongs: (Element) -> Bool) -> Index {
        var low = startIndex
        var count = count
        while count > 0 {
            let half = count / 2
            let middle = index(low, offsetBy: half)
            if belongs(self[middle]) {
                low = index(after: middle)
                count -= half + 1
            } else {
                count = half
            }
        }
        return low
    }
}
