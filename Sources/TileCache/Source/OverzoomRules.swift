public import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Draws the picture of a tile out of the picture of its ancestor, in the same format.
///
/// `TileImage.magnifier()` of the product TileImaging gives one. Called on a thread of the cache's own, and may compute for
/// a while; what it throws becomes the tile's error.
public typealias TileMagnifier = @Sendable (_ ancestor: Data, _ overzoom: Overzoom) throws -> Data

/// Whether tiles that a source does not have are made from those of lower zooms.
///
/// Only pictures are: a map draws vector tiles at any zoom itself.
public struct OverzoomRules: Hashable, Sendable {
    /// So many zooms past the source's last one tiles are made; 0 for none.
    ///
    /// 8 at most make sense: then a tile is one pixel of a picture of 256. No ancestor further below than that is used.
    public var levels: Int
    /// Whether tiles within the source's zooms that the server says do not exist are made as well.
    ///
    /// For each such tile the one above it is asked for, up to ``levels`` of them.
    public var fillsGaps: Bool

    /// Makes the rules; by default nothing is made.
    public init(levels: Int = 0, fillsGaps: Bool = false) {
        self.levels = levels
        self.fillsGaps = fillsGaps
    }
}

extension TileSource {
    /// How many zooms an ancestor may be below a tile; 0 where no tiles are made.
    @inline(__always)
    var overzoomDepth: Int { overzoom.levels > 0 && (kind == .image || kind == .any) ? min(overzoom.levels, 28) : 0 }

    /// The zooms that tiles can be asked for: the server's, and those that ``overzoom`` adds.
    public var servedZooms: ClosedRange<Int> { zooms.lowerBound...min(28, zooms.upperBound + overzoomDepth) }
}
