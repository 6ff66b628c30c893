#if canImport(MapKit) && !os(watchOS)
public import MapKit
import TileStore

#if canImport(CoreGraphics)
public import CoreGraphics
#endif

/// Draws a ``TileGridOverlay``.
///
/// Shows what the cache has at the time of drawing; call `setNeedsDisplay()` for a look at it later.
public final class TileGridOverlayRenderer: MKOverlayRenderer {
    private struct Shade {
        let red, green, blue: CGFloat

        init(_ state: CachedTileState) {
            (red, green, blue) =
                switch (state.content, state.isStale) {
                case (.picture, false): (0.10, 0.60, 0.20)
                case (.picture, true): (0.90, 0.60, 0.00)
                case (.absent, _): (0.45, 0.45, 0.45)
                case (.missing, _): (0.80, 0.10, 0.10)
                }
        }
    }

    private let source: OverlaySource

    /// Draws a grid.
    public init(overlay: TileGridOverlay) {
        source = OverlaySource(overlay: overlay.subject)
        super.init(overlay: overlay)
    }

    /// Draws the frames and labels of the tiles that the rectangle touches.
    public override func draw(_ mapRect: MKMapRect, zoomScale: MKZoomScale, in context: CGContext) {
        let layout = source.layout
        guard zoomScale > 0, let grid = TileGrid(layout, zoomScale: Double(zoomScale)) else { return }
        let scale = layout.scale(Double(contentScaleFactor))
        // A point of the screen in the renderer's coordinates.
        let point = 1 / zoomScale
        for placement in grid.placements(in: PlaneRect(mapRect), scale: scale) {
            let (tile, state) = (placement.tile, source.state(of: placement.tile))
            let (shade, frame) = (Shade(state), rect(for: placement.rect.mapRect))
            context.setStrokeColor(red: shade.red, green: shade.green, blue: shade.blue, alpha: 0.9)
            context.stroke(frame, width: 2 * point)
            context.setFillColor(red: shade.red, green: shade.green, blue: shade.blue, alpha: 0.9)
            let label = "\(tile.z)/\(tile.x)/\(tile.y)" + (tile.scale > 1 ? "@\(tile.scale)x" : "")
            let dot = 2 * point
            let origin = CGPoint(x: frame.origin.x + 4 * dot, y: frame.origin.y + 4 * dot)
            context.fill(
                DotFont.dots(label).map {
                    CGRect(
                        x: origin.x + CGFloat($0.x) * dot, y: origin.y + CGFloat($0.y) * dot, width: dot, height: dot)
                })
            if state.isPinned {
                context.setFillColor(red: 0.1, green: 0.3, blue: 0.9, alpha: 0.9)
                context.fill(
                    CGRect(
                        x: origin.x, y: origin.y + CGFloat(DotFont.height + 2) * dot, width: 4 * dot, height: 4 * dot))
            }
        }
    }
}
#endif
