extension TileAddress {
    /// The tiles around this one, nearest first: square rings, ring 0 being the tile itself.
    ///
    /// Rings wrap around at the antimeridian and are cut off at the first and the last row. Every tile comes once: its
    /// ring is the larger of its distances in columns, the shorter way around, and in rows. Of this tile's scale and
    /// format. Takes constant memory; negative distances have no tiles.
    public func rings(_ distances: ClosedRange<Int>) -> TileRings { TileRings(center: self, distances: distances) }
}

/// Tiles in square rings around one, nearest first, computed as they are asked for.
public struct TileRings: Sequence, Sendable {
    /// The tile in the middle.
    public let center: TileAddress
    /// Which rings, clamped to those that have tiles.
    public let distances: Range<Int>

    init(center: TileAddress, distances: ClosedRange<Int>) {
        self.center = center
        let side = center.side
        // Beyond the farthest row and half the way around there is nothing left.
        let last = Swift.max(side / 2, Swift.max(center.y, side - 1 - center.y))
        let first = Swift.min(Swift.max(distances.lowerBound, 0), last + 1)
        self.distances = first..<Swift.max(first, Swift.min(distances.upperBound, last) + 1)
    }

    /// Starts with the nearest ring.
    public func makeIterator() -> Iterator { Iterator(self) }

    /// Goes through the rings from north to south, and through each row of a ring from west to east.
    public struct Iterator: IteratorProtocol, Sendable {
        private let center: TileAddress
        private let side: Int
        private var distances: Range<Int>
        private var ring = 0
        private var row = 0
        private var lastRow = -1
        /// What is left of the row: steps to the east of the centre, `stride` apart.
        private var step = 1
        private var lastStep = 0
        private var stride = 1

        init(_ rings: TileRings) {
            center = rings.center
            side = rings.center.side
            distances = rings.distances
        }

        /// Whether no column is as far away as the ring, so that only its own first and last row can have tiles.
        private var isBeyondColumns: Bool { 2 * ring > side }

        /// The next tile.
        public mutating func next() -> TileAddress? {
            while step > lastStep {
                guard advance() else { return nil }
            }
            defer { step += stride }
            return center.at(center.z, (center.x + step) & (side - 1), row)
        }

        /// Goes to the next row that may have tiles.
        private mutating func advance() -> Bool {
            row += 1
            if row > center.y - ring, row < center.y + ring, isBeyondColumns { row = center.y + ring }
            if row > lastRow {
                guard let next = distances.first else { return false }
                distances = distances.dropFirst()
                ring = next
                lastRow = Swift.min(side - 1, center.y + ring)
                row = Swift.max(0, center.y - ring)
                if row > center.y - ring, isBeyondColumns { row = center.y + ring }
                guard row <= lastRow else { return true }
            }
            if abs(row - center.y) == ring {
                stride = 1
                // A row that reaches around the world is that row once.
                (step, lastStep) = 2 * ring + 1 >= side ? (-(side / 2), side - side / 2 - 1) : (-ring, ring)
            } else {
                // Exactly half the way around, east and west are the same column.
                (step, lastStep, stride) = (-ring, 2 * ring == side ? -ring : ring, Swift.max(1, 2 * ring))
            }
            return true
        }
    }
}
