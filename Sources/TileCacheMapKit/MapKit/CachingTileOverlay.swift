#if canImport(MapKit) && !os(watchOS)
public import MapKit

/// A tile overlay that can say at once what it has of a tile: what ``CachedTileOverlayRenderer`` draws.
///
/// A subclass of `MKTileOverlay` needs nothing but ``cachedData(at:)``; the rest has defaults, or is there already. Every
/// member is used on several threads at a time.
public protocol CachingTileOverlay: MKOverlay {
    /// The bytes of a tile if they are there; must not wait for a network.
    func cachedData(at path: MKTileOverlayPath) -> Data?

    /// Gets a tile and calls `result`, once, on any thread; with neither bytes nor error if there is no such tile.
    func loadTile(at path: MKTileOverlayPath, result: @escaping @Sendable (Data?, (any Error)?) -> Void)

    /// What is there of a tile.
    ///
    /// By default a tile whose bytes are there is fresh, and nothing is known of others. Called for neighbours too, so
    /// it pays to be quick.
    func cachedState(at path: MKTileOverlayPath) -> CachedTileState

    /// Points along a tile's edge.
    var tileSize: CGSize { get }
    /// The first zoom that there is.
    var minimumZ: Int { get }
    /// The last zoom that there is.
    var maximumZ: Int { get }
    /// Whether rows of paths are counted from the south.
    var isGeometryFlipped: Bool { get }
    /// Whether the tiles of the last zoom are enlarged beyond it; they are by default.
    var overzooms: Bool { get }
    /// The pixels per point that there are tiles for; 1 to 3 by default.
    var scales: ClosedRange<Int> { get }
}

extension CachingTileOverlay {
    /// Fresh where there are bytes, else missing.
    public func cachedState(at path: MKTileOverlayPath) -> CachedTileState {
        cachedData(at: path) == nil ? .missing : CachedTileState(.picture)
    }
    /// They are.
    public var overzooms: Bool { true }
    /// All that there are screens for.
    public var scales: ClosedRange<Int> { 1...3 }
}
#endif
