/// A rectangle of tiles of one zoom, both ends included.
public struct TileSpan: Hashable, Sendable {
    /// The zoom, 0 to 28.
    public let zoom: Int
    /// The columns.
    public let columns: ClosedRange<Int>
    /// The rows, from the north.
    public let rows: ClosedRange<Int>

    /// Checks and takes a rectangle.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue`` if it is outside of its zoom.
    public init(zoom: Int, columns: ClosedRange<Int>, rows: ClosedRange<Int>) throws {
        guard (0...28).contains(zoom), columns.lowerBound >= 0, rows.lowerBound >= 0, columns.upperBound < 1 << zoom,
            rows.upperBound < 1 << zoom
        else {
            throw StoreError(
                .invalidValue, "tiles \(columns) x \(rows) are not all in zoom \(zoom) (zooms are 0 to 28)")
        }
        self.zoom = zoom
        self.columns = columns
        self.rows = rows
    }

    /// How many tiles it covers.
    public var count: Int { columns.count * rows.count }

    /// Whether it covers a tile.
    @inlinable
    @inline(__always)
    public func contains(z: Int, x: Int, y: Int) -> Bool { z == zoom && columns.contains(x) && rows.contains(y) }
}
