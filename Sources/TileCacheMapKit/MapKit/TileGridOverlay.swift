#if canImport(MapKit) && !os(watchOS)
public import MapKit

/// A grid over a map that shows each tile's zoom, column and row, and by its colour what the cache has of it.
///
/// Green is fresh, amber stale, grey known not to exist, red missing; a blue dot is pinned by a region. Put it above the
/// overlay that it shows, and give it ``TileGridOverlayRenderer`` for a renderer, or ask
/// `mapView.mapCacheRenderer(forOverlay:)`.
public final class TileGridOverlay: NSObject, MKOverlay {
    /// The overlay whose tiles it shows.
    public let subject: any CachingTileOverlay

    /// A grid over an overlay.
    public init(of subject: any CachingTileOverlay) { self.subject = subject }

    /// Where the overlay under it is.
    public var coordinate: CLLocationCoordinate2D { subject.coordinate }
    /// The area of the overlay under it.
    public var boundingMapRect: MKMapRect { subject.boundingMapRect }
}
#endif
