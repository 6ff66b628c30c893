#if canImport(MapKit) && !os(watchOS)
public import MapKit
public import TileStore

extension RegionShape {
    /// The box around a region, such as what a map view shows; across the antimeridian too.
    ///
    /// - Throws: `StoreError` with `StoreError.Code.invalidValue` for a region whose numbers are none.
    public init(_ region: MKCoordinateRegion) throws { self = .box(try MapRegion(region).box()) }

    /// The box of a rectangle of map points, such as `mapView.visibleMapRect` or an overlay's `boundingMapRect`.
    ///
    /// - Throws: `StoreError` with `StoreError.Code.invalidValue` for one that is empty (`MKMapRect.null`) or outside of the
    ///   world.
    public init(_ rect: MKMapRect) throws { self = .box(try PlaneRect(rect).box()) }

    /// A corridor along a line, such as a route.
    ///
    /// - Parameters:
    ///   - line: 1 to 20,000 points; each step goes the shorter way around the world.
    ///   - width: In metres on the ground, half of it on each side; up to 1,000 km.
    /// - Throws: `StoreError` with `StoreError.Code.invalidValue`.
    public init(along line: MKPolyline, width: Double) throws {
        let points = UnsafeBufferPointer(start: line.points(), count: line.pointCount)
        try self.init(along: points.map { PlanePoint(x: $0.x, y: $0.y) }, width: width)
    }
}

extension MapRegion {
    init(_ region: MKCoordinateRegion) {
        self.init(
            latitude: region.center.latitude, longitude: region.center.longitude,
            latitudeDelta: region.span.latitudeDelta, longitudeDelta: region.span.longitudeDelta)
    }
}
#endif
