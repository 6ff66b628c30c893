#if canImport(MapKit) && !os(watchOS)
public import MapKit
import TileCache

/// A tile overlay that can say at once what it has of a tile: what ``CachedTileOverlayRenderer`` draws.
///
/// A subclass of `MKTileOverlay` needs nothing but ``cachedData(at:)``; the rest has defaults, or is there already. Any other
/// overlay needs one of the two forms of `loadTile` and a tile size besides. Every member is used on several threads at a
/// time.
public protocol CachingTileOverlay: MKOverlay {
    /// The bytes of a tile if they are there; must not wait for a network.
    func cachedData(at path: MKTileOverlayPath) -> Data?

    /// Gets a tile and calls `result`, once, on any thread; with neither bytes nor error if there is no such tile.
    ///
    /// By default it is ``loadTile(at:)``.
    func loadTile(at path: MKTileOverlayPath, result: @escaping @Sendable (Data?, (any Error)?) -> Void)

    /// Gets a tile, or throws why there is none; for overlays that do not have the form with a closure.
    func loadTile(at path: MKTileOverlayPath) async throws -> Data

    /// What is there of a tile.
    ///
    /// By default a tile whose bytes are there is fresh, and nothing is known of others. Called for neighbours too, so
    /// it pays to be quick.
    func cachedState(at path: MKTileOverlayPath) -> CachedTileState

    /// Points along a tile's edge.
    var tileSize: CGSize { get }
    /// The first zoom that there is; 0 by default.
    var minimumZ: Int { get }
    /// The last zoom that there is; 21 by default, as for an `MKTileOverlay`.
    var maximumZ: Int { get }
    /// Whether rows of paths are counted from the south; they are not by default.
    var isGeometryFlipped: Bool { get }
    /// Whether the tiles of the last zoom are enlarged beyond it; they are by default.
    var overzooms: Bool { get }
    /// The pixels per point that there are tiles for; 1 to 3 by default.
    var scales: ClosedRange<Int> { get }
}

extension CachingTileOverlay {
    /// What ``loadTile(at:)`` gets.
    public func loadTile(at path: MKTileOverlayPath, result: @escaping @Sendable (Data?, (any Error)?) -> Void) {
        let source = OverlaySource(overlay: self)
        Task {
            do { result(try await source.overlay.loadTile(at: path), nil) } catch { result(nil, error) }
        }
    }
    /// An error: this overlay has nothing but what ``cachedData(at:)`` gives.
    public func loadTile(at path: MKTileOverlayPath) async throws -> Data {
        throw TileCacheError(
            .noAnswer, "\(type(of: self)) has no loadTile: tile \(path.z)/\(path.x)/\(path.y) is not in its cache")
    }
    /// Fresh where there are bytes, else missing.
    public func cachedState(at path: MKTileOverlayPath) -> CachedTileState {
        cachedData(at: path) == nil ? .missing : CachedTileState(.picture)
    }
    /// 0.
    public var minimumZ: Int { 0 }
    /// 21.
    public var maximumZ: Int { 21 }
    /// They are counted from the north.
    public var isGeometryFlipped: Bool { false }
    /// They are.
    public var overzooms: Bool { true }
    /// All that there are screens for.
    public var scales: ClosedRange<Int> { 1...3 }
}
#endif
