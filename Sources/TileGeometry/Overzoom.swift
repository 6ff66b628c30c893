/// How a tile that nobody has is made from one of a lower zoom: which tile, which part of its picture, how much larger.
///
/// ```swift
/// let tile = try TileAddress(z: 16, x: 35200, y: 21500)
/// if let overzoom = Overzoom(of: tile, from: 14), let crop = overzoom.crop(tileSize: 256) {
///     // Cut `crop` (64 by 64 pixels) out of the picture of `overzoom.ancestor` and draw it 4 times as large.
/// }
/// ```
///
/// Plain integers, no pictures: what draws or encodes is elsewhere. Scale and format of the tile are the ancestor's too.
public struct Overzoom: Hashable, Sendable {
    /// The tile that is wanted.
    public let tile: TileAddress
    /// The tile of a lower zoom that shows it.
    public let ancestor: TileAddress

    /// Pairs a tile with its ancestor of a zoom.
    ///
    /// - Returns: `nil` if the zoom is not below the tile's, or is negative.
    public init?(of tile: TileAddress, from zoom: Int) {
        guard zoom < tile.z, let ancestor = tile.ancestor(zoom: zoom) else { return nil }
        self.tile = tile
        self.ancestor = ancestor
    }

    /// How many zooms the ancestor is below the tile: 1 or more.
    public var depth: Int { tile.z - ancestor.z }

    /// How many times wider and higher the tile shows things: 2 to the power of ``depth``.
    public var magnification: Int { 1 << depth }

    /// Which of the ``magnification`` columns of the ancestor's picture the tile is.
    public var column: Int { tile.x & (magnification - 1) }

    /// Which of the ``magnification`` rows of the ancestor's picture the tile is.
    public var row: Int { tile.y & (magnification - 1) }

    /// The part of the ancestor's picture that shows the tile.
    ///
    /// Exact if ``magnification`` divides the size, as it does for tiles of 256 or 512 pixels; else edges are rounded
    /// down, and neighbours still meet without gap or overlap.
    /// - Parameter tileSize: Pixels along an edge of the ancestor's picture.
    /// - Returns: `nil` if the part is less than one pixel; see ``maximumDepth(tileSize:)``.
    public func crop(tileSize: Int) -> PixelRect? { crop(width: tileSize, height: tileSize) }

    /// The part of the ancestor's picture that shows the tile, for a picture that need not be square.
    ///
    /// - Returns: `nil` if the part is less than one pixel, or the picture larger than 2^31 pixels along an edge.
    public func crop(width: Int, height: Int) -> PixelRect? {
        let sizes = magnification...(1 << 31)
        guard sizes.contains(width), sizes.contains(height) else { return nil }
        let (west, east) = ((column * width) >> depth, ((column + 1) * width) >> depth)
        let (north, south) = ((row * height) >> depth, ((row + 1) * height) >> depth)
        return PixelRect(x: west, y: north, width: east - west, height: south - north)
    }

    /// The largest depth at which a tile is still a pixel of its ancestor's picture: 8 for 256 pixels.
    ///
    /// - Returns: 0 if nothing can be made of such pictures.
    public static func maximumDepth(tileSize: Int) -> Int {
        tileSize > 1 ? Int.bitWidth - 1 - tileSize.leadingZeroBitCount : 0
    }

    /// The tiles that a tile can be made from, the nearest first.
    ///
    /// - Parameters:
    ///   - tile: The tile that is wanted.
    ///   - zooms: Where tiles may be found, such as a source's zooms.
    ///   - depth: No ancestor is further below than that.
    public static func candidates(
        for tile: TileAddress, within zooms: ClosedRange<Int>, maximumDepth depth: Int
    ) -> [Overzoom] {
        guard depth > 0, tile.z > 0 else { return [] }
        let lowest = max(zooms.lowerBound, tile.z - min(depth, tile.z), 0)
        let highest = min(zooms.upperBound, tile.z - 1)
        guard lowest <= highest else { return [] }
        return (lowest...highest).reversed().compactMap { Overzoom(of: tile, from: $0) }
    }

    /// A tile of the next zoom, and where its picture goes in the one of the tile above.
    public struct Quarter: Hashable, Sendable {
        /// The tile of the next zoom.
        public let tile: TileAddress
        /// Where it is drawn, at half its size.
        public let place: PixelRect
    }

    /// The four tiles of the next zoom that a tile can be put together from when one zooms out.
    ///
    /// The places fill the picture without gap or overlap, from the north-west to the south-east; for a picture of 1
    /// pixel, or at zoom 28, there are none.
    /// - Parameters:
    ///   - tile: The tile that is wanted.
    ///   - tileSize: Pixels along an edge of its picture.
    public static func quarters(of tile: TileAddress, tileSize: Int) -> [Quarter] {
        tile.children.compactMap { child in
            guard let overzoom = Overzoom(of: child, from: tile.z) else { return nil }
            return overzoom.crop(tileSize: tileSize).map { Quarter(tile: child, place: $0) }
        }
    }
}
