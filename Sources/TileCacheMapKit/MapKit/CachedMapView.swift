#if canImport(SwiftUI) && canImport(MapKit) && !os(watchOS)
public import MapKit
public import SwiftUI

/// A map in SwiftUI whose tiles come from a cache.
///
/// ```swift
/// CachedMapView(cache, region: $region) { $0.showsUserLocation = true }
/// ```
/// Given another cache it shows that, without another view.
public struct CachedMapView {
    private let cache: any MapCaching
    private let region: Binding<MKCoordinateRegion>?
    private let configure: @MainActor (MKMapView) -> Void

    /// Describes a map.
    ///
    /// - Parameters:
    ///   - cache: A ``MapCache``, or a cache of your own.
    ///   - region: What is shown; follows the person who moves the map. `nil` leaves that to the view.
    ///   - configure: Called once with the view, for what else it should show. Its delegate must stay what it is.
    public init(
        _ cache: any MapCaching, region: Binding<MKCoordinateRegion>? = nil,
        configure: @escaping @MainActor (MKMapView) -> Void = { _ in }
    ) {
        self.cache = cache
        self.region = region
        self.configure = configure
    }

    /// The view's delegate.
    @MainActor public final class Coordinator: NSObject, MKMapViewDelegate {
        fileprivate var region: Binding<MKCoordinateRegion>?
        fileprivate var overlay: CachedTileOverlay?
        fileprivate var state = MapViewState()

        /// The renderer of the cache's tiles, and of what else the package can draw.
        public func mapView(_ mapView: MKMapView, rendererFor overlay: any MKOverlay) -> MKOverlayRenderer {
            mapView.mapCacheRenderer(forOverlay: overlay)
        }

        /// Tells the binding.
        public func mapView(_ mapView: MKMapView, regionDidChangeAnimated animated: Bool) {
            guard state.tells(MapRegion(mapView.region)) else { return }
            region?.wrappedValue = mapView.region
        }
    }

    /// Makes the view's delegate.
    @MainActor public func makeCoordinator() -> Coordinator { Coordinator() }

    @MainActor func makeView(_ coordinator: Coordinator) -> MKMapView {
        let view = MKMapView()
        // First: it is asked for the renderer of what is added.
        view.delegate = coordinator
        coordinator.overlay = view.useCache(cache)
        _ = coordinator.state.switches(to: CacheIdentity(cache))
        configure(view)
        return view
    }

    @MainActor func update(_ view: MKMapView, _ coordinator: Coordinator) {
        if coordinator.state.switches(to: CacheIdentity(cache)) { coordinator.overlay?.use(cache) }
        coordinator.region = region
        if let wanted = region?.wrappedValue, coordinator.state.moves(to: MapRegion(wanted)) {
            view.setRegion(wanted, animated: false)
            coordinator.state.moved()
        }
    }
}

#if os(macOS)
extension CachedMapView: NSViewRepresentable {
    /// Makes the map view.
    public func makeNSView(context: Context) -> MKMapView { makeView(context.coordinator) }
    /// Shows what has changed.
    public func updateNSView(_ view: MKMapView, context: Context) { update(view, context.coordinator) }
}
#else
extension CachedMapView: UIViewRepresentable {
    /// Makes the map view.
    public func makeUIView(context: Context) -> MKMapView { makeView(context.coordinator) }
    /// Shows what has changed.
    public func updateUIView(_ view: MKMapView, context: Context) { update(view, context.coordinator) }
}
#endif
#endif
