#if canImport(MapKit) && !os(watchOS)
public import MapKit

extension MKMapView {
    /// Shows a cache's tiles on this map.
    ///
    /// ```swift
    /// let overlay = mapView.useCache(cache, canReplaceMapContent: true, overlayLevel: .aboveLabels)
    /// ```
    /// - Parameters:
    ///   - cache: A ``MapCache``, or a cache of your own.
    ///   - canReplaceMapContent: Whether the tiles are opaque, so that MapKit need not draw its own map below them.
    ///   - overlayLevel: Where it goes: at the bottom of this level, under overlays that are there.
    /// - Returns: The overlay, to switch, reload or remove it.
    @discardableResult
    public func useCache(
        _ cache: any MapCaching, canReplaceMapContent: Bool = true, overlayLevel: MKOverlayLevel = .aboveLabels
    ) -> CachedTileOverlay {
        let overlay = CachedTileOverlay(cache)
        overlay.canReplaceMapContent = canReplaceMapContent
        insertOverlay(overlay, at: 0, level: overlayLevel)
        return overlay
    }

    /// The renderer of an overlay, for `mapView(_:rendererFor:)` of the map view's delegate.
    ///
    /// ``CachedTileOverlayRenderer`` for what can say what it has, ``TileGridOverlayRenderer`` for a grid, MapKit's own for
    /// other tile overlays, and one that draws nothing for anything else.
    public func mapCacheRenderer(forOverlay overlay: any MKOverlay) -> MKOverlayRenderer {
        switch overlay {
        case let overlay as any CachingTileOverlay: CachedTileOverlayRenderer(overlay: overlay)
        case let overlay as TileGridOverlay: TileGridOverlayRenderer(overlay: overlay)
        case let overlay as MKTileOverlay: MKTileOverlayRenderer(tileOverlay: overlay)
        default: MKOverlayRenderer(overlay: overlay)
        }
    }

    /// The zoom of tiles of 256 points that fits what is shown now; 0 before the view has a size.
    public var zoomLevel: Int {
        let width = Double(frame.size.width)
        guard width > 0, visibleMapRect.size.width > 0 else { return 0 }
        let layout = TileLayout(zooms: 0...28)
        return TileGrid(layout, zoomScale: width / visibleMapRect.size.width)?.zoom ?? 0
    }
}
#endif
