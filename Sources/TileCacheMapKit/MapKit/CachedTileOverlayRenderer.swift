#if canImport(MapKit) && !os(watchOS)
public import MapKit
import TileCache
public import TileStore

#if canImport(CoreGraphics)
public import CoreGraphics
#endif

// Safe to share: its own state is behind locks, or set before MapKit draws; `setNeedsDisplay` is called on the main actor.
/// Draws a tile overlay without flicker: what the cache has is there at once, and what stands in for the rest.
///
/// For each tile: its own picture, stale or not; else the share of the nearest tile further out that the cache has,
/// however far, under those of the next zoom that it has. What is missing is asked for once, what is stale is refreshed,
/// what fails is left alone for as long as its back-off says. Only the place of what has changed is drawn again. Beyond
/// the last zoom its tiles are enlarged.
///
/// MapKit calls it on several threads at a time. Decoded pictures are kept within ``init(overlay:pictureMemory:)``.
open class CachedTileOverlayRenderer: MKOverlayRenderer, @unchecked Sendable {
    /// Draws on top of a tile, for a watermark or a frame.
    ///
    /// Called on any thread.
    public typealias DrawingHook = @Sendable (_ context: CGContext, _ rect: CGRect, _ tile: TileAddress) -> Void

    private let hook = Locked<DrawingHook?>(nil)
    private var painter: TilePainter<DecodedPicture>?
    // Kept here, since it is not said whether MapKit's own class keeps it.
    private let source: OverlaySource
    private var watch: UInt64?
    private var pressure: MemoryPressure?

    /// Draws an overlay.
    ///
    /// - Parameters:
    ///   - overlay: A ``CachedTileOverlay`` or your own.
    ///   - pictureMemory: Bytes of decoded pictures that are kept.
    public init(overlay: any CachingTileOverlay, pictureMemory: Int = 48 << 20) {
        source = OverlaySource(overlay: overlay)
        super.init(overlay: overlay)
        painter = TilePainter(
            source, memory: pictureMemory, decode: { PictureDecoder.picture($0) },
            onChange: { [weak self] rect in
                Task { @MainActor in self?.setNeedsDisplay(rect.mapRect) }
            })
        watch = (overlay as? CachedTileOverlay)?.watch { [weak self] in self?.reloadData() }
        pressure = MemoryPressure { [weak self] in self?.trimMemory() }
    }

    deinit { if let watch { (source.overlay as? CachedTileOverlay)?.unwatch(watch) } }

    /// Drawn on top of every tile that is drawn; `nil` for nothing.
    public var decorate: DrawingHook? {
        get { hook.withLock { $0 } }
        set { hook.withLock { $0 = newValue } }
    }

    /// Bytes of decoded pictures that are kept now.
    public var pictureMemoryUse: Int { painter?.memoryUse ?? 0 }

    /// Gives up the decoded pictures; what is on the screen stays there, and what is drawn next is decoded anew.
    ///
    /// Done by itself when the system says that memory is short.
    public func trimMemory() { painter?.trimMemory() }

    /// Whether nothing is being loaded.
    var isIdle: Bool { painter?.isIdle ?? true }

    /// Forgets pictures and failures and draws everything anew.
    public func reloadData() {
        painter?.reset()
        Task { @MainActor in self.setNeedsDisplay() }
    }

    /// Everything can be drawn at any time: what is missing has stand-ins, or nothing in its place.
    open override func canDraw(_ mapRect: MKMapRect, zoomScale: MKZoomScale) -> Bool { true }

    /// Draws what there is, and asks for the rest.
    open override func draw(_ mapRect: MKMapRect, zoomScale: MKZoomScale, in context: CGContext) {
        let decorate = self.decorate
        painter?.paint(
            PlaneRect(mapRect), zoomScale: Double(zoomScale), contentScale: Double(contentScaleFactor)
        ) { layer in
            let whole = rect(for: layer.rect.mapRect)
            let seen = layer.clip.map { rect(for: $0.mapRect) }
            context.saveGState()
            if let seen { context.clip(to: seen) }
            // Rows of the context go down and those of a picture go up.
            context.translateBy(x: whole.origin.x, y: whole.origin.y + whole.size.height)
            context.scaleBy(x: 1, y: -1)
            context.draw(layer.picture.image, in: CGRect(origin: .zero, size: whole.size))
            context.restoreGState()
            if let decorate {
                context.saveGState()
                decorate(context, seen ?? whole, layer.tile)
                context.restoreGState()
            }
        }
    }
}

/// The name that the library CachingTileOverlay (stadiamaps) has for ``CachedTileOverlayRenderer``.
public typealias CachingTileOverlayRenderer = CachedTileOverlayRenderer
#endif
