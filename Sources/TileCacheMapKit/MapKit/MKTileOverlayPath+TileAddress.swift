#if canImport(MapKit) && !os(watchOS)
import MapKit
import TileStore

extension TileAddress {
    /// The tile of a path; `nil` for a path outside of the world.
    init?(_ path: MKTileOverlayPath, isFlipped: Bool, layout: TileLayout) {
        let scale = layout.scale(Double(path.contentScaleFactor))
        let tile =
            isFlipped
            ? try? TileAddress(z: path.z, x: path.x, tmsRow: path.y, scale: scale)
            : try? TileAddress(z: path.z, x: path.x, y: path.y, scale: scale)
        guard let tile else { return nil }
        self = tile
    }

    /// Its path.
    func path(isFlipped: Bool) -> MKTileOverlayPath {
        MKTileOverlayPath(x: x, y: isFlipped ? tmsRow : y, z: z, contentScaleFactor: CGFloat(scale))
    }
}

extension PlaneRect {
    init(_ rect: MKMapRect) {
        self.init(x: rect.origin.x, y: rect.origin.y, width: rect.size.width, height: rect.size.height)
    }
    var mapRect: MKMapRect { MKMapRect(x: x, y: y, width: width, height: height) }
}
#endif
