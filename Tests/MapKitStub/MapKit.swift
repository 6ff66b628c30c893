// swift-format-ignore-file

// What of MapKit an overlay needs, with Apple's signatures, so that the adapter can be compiled and its tests can run on
// Linux. Bodies do what the adapter's tests look at and nothing else.
@_exported public import Foundation

public typealias CLLocationDegrees = Double
public struct CLLocationCoordinate2D: Sendable {
    public var latitude: CLLocationDegrees
    public var longitude: CLLocationDegrees
    public init() { (latitude, longitude) = (0, 0) }
    public init(latitude: CLLocationDegrees, longitude: CLLocationDegrees) {
        (self.latitude, self.longitude) = (latitude, longitude)
    }
}

// MARK: Geometry

public struct MKMapPoint: Sendable {
    public var x, y: Double
    public init() { (x, y) = (0, 0) }
    public init(x: Double, y: Double) { (self.x, self.y) = (x, y) }
}
public struct MKMapSize: Sendable {
    public var width, height: Double
    public init() { (width, height) = (0, 0) }
    public init(width: Double, height: Double) { (self.width, self.height) = (width, height) }
    public static let world = MKMapSize(width: 268_435_456, height: 268_435_456)
}
public struct MKMapRect: Sendable {
    public var origin: MKMapPoint
    public var size: MKMapSize
    public init() { (origin, size) = (MKMapPoint(), MKMapSize()) }
    public init(origin: MKMapPoint, size: MKMapSize) { (self.origin, self.size) = (origin, size) }
    public init(x: Double, y: Double, width: Double, height: Double) {
        self.init(origin: MKMapPoint(x: x, y: y), size: MKMapSize(width: width, height: height))
    }
    public static let world = MKMapRect(origin: MKMapPoint(), size: .world)
    public static let null = MKMapRect(x: .infinity, y: .infinity, width: 0, height: 0)
    public var minX: Double { origin.x }
    public var minY: Double { origin.y }
    public var maxX: Double { origin.x + size.width }
    public var maxY: Double { origin.y + size.height }
    public var width: Double { size.width }
    public var height: Double { size.height }
}
public typealias MKZoomScale = CGFloat
public struct MKCoordinateSpan: Sendable {
    public var latitudeDelta, longitudeDelta: CLLocationDegrees
    public init(latitudeDelta: CLLocationDegrees, longitudeDelta: CLLocationDegrees) {
        (self.latitudeDelta, self.longitudeDelta) = (latitudeDelta, longitudeDelta)
    }
}
public struct MKCoordinateRegion: Sendable {
    public var center: CLLocationCoordinate2D
    public var span: MKCoordinateSpan
    public init(center: CLLocationCoordinate2D, span: MKCoordinateSpan) { (self.center, self.span) = (center, span) }
}

// MARK: Overlays

public protocol MKAnnotation: NSObjectProtocol {
    var coordinate: CLLocationCoordinate2D { get }
}
public protocol MKOverlay: MKAnnotation {
    var coordinate: CLLocationCoordinate2D { get }
    var boundingMapRect: MKMapRect { get }
}

public struct MKTileOverlayPath: BitwiseCopyable, Sendable {
    public var x, y, z: Int
    public var contentScaleFactor: CGFloat
    public init() { (x, y, z, contentScaleFactor) = (0, 0, 0, 0) }
    public init(x: Int, y: Int, z: Int, contentScaleFactor: CGFloat) {
        (self.x, self.y, self.z, self.contentScaleFactor) = (x, y, z, contentScaleFactor)
    }
}

open class MKTileOverlay: NSObject, MKOverlay {
    public init(urlTemplate URLTemplate: String?) {
        urlTemplate = URLTemplate
        super.init()
    }
    open var tileSize = CGSize(width: 256, height: 256)
    open var isGeometryFlipped = false
    open var minimumZ = 0
    open var maximumZ = 21
    public let urlTemplate: String?
    open var canReplaceMapContent = false
    open var coordinate: CLLocationCoordinate2D { CLLocationCoordinate2D() }
    open var boundingMapRect: MKMapRect { .world }
    open func url(forTilePath path: MKTileOverlayPath) -> URL { URL(fileURLWithPath: "/") }
    // Newer SDKs have @Sendable here.
    open func loadTile(at path: MKTileOverlayPath, result: @escaping @Sendable (Data?, (any Error)?) -> Void) {
        result(nil, nil)
    }
}

open class MKMultiPoint: NSObject {
    private let places: UnsafeMutableBufferPointer<MKMapPoint>
    init(places: [MKMapPoint]) {
        self.places = .allocate(capacity: places.count)
        _ = self.places.initialize(from: places)
        super.init()
    }
    deinit { places.deallocate() }
    // Never nil with Apple, whatever the count.
    open func points() -> UnsafeMutablePointer<MKMapPoint> {
        places.baseAddress ?? UnsafeMutablePointer(bitPattern: 8)!
    }
    open var pointCount: Int { places.count }
}
open class MKPolyline: MKMultiPoint, MKOverlay {
    public convenience init(points: UnsafePointer<MKMapPoint>, count: Int) {
        self.init(places: Array(UnsafeBufferPointer(start: points, count: count)))
    }
    open var coordinate: CLLocationCoordinate2D { CLLocationCoordinate2D() }
    open var boundingMapRect: MKMapRect { .world }
}

open class MKOverlayRenderer: NSObject {
    public init(overlay: any MKOverlay) {
        self.overlay = overlay
        super.init()
    }
    public unowned(safe) let overlay: any MKOverlay
    open var alpha: CGFloat = 1
    open var contentScaleFactor: CGFloat { 1 }
    open func rect(for mapRect: MKMapRect) -> CGRect {
        let bounds = overlay.boundingMapRect
        return CGRect(
            x: mapRect.minX - bounds.minX, y: mapRect.minY - bounds.minY, width: mapRect.width, height: mapRect.height)
    }
    open func canDraw(_ mapRect: MKMapRect, zoomScale: MKZoomScale) -> Bool { true }
    open func draw(_ mapRect: MKMapRect, zoomScale: MKZoomScale, in context: CGContext) {}
    open func setNeedsDisplay() {}
    open func setNeedsDisplay(_ mapRect: MKMapRect) {}
    open func setNeedsDisplay(_ mapRect: MKMapRect, zoomScale: MKZoomScale) {}
}
open class MKTileOverlayRenderer: MKOverlayRenderer {
    public convenience init(tileOverlay overlay: MKTileOverlay) { self.init(overlay: overlay) }
    open func reloadData() {}
}

// MARK: The view

public enum MKOverlayLevel: Int, Sendable { case aboveRoads = 0, aboveLabels }

@MainActor open class MKMapView: NSObject {
    private var levels: [MKOverlayLevel: [any MKOverlay]] = [:]
    public override init() { super.init() }
    open weak var delegate: (any MKMapViewDelegate)?
    open var frame = CGRect.zero
    open var visibleMapRect = MKMapRect.world
    open var region = MKCoordinateRegion(
        center: CLLocationCoordinate2D(), span: MKCoordinateSpan(latitudeDelta: 180, longitudeDelta: 360))
    open func setRegion(_ region: MKCoordinateRegion, animated: Bool) {
        self.region = region
        delegate?.mapView(self, regionDidChangeAnimated: animated)
    }
    open var showsUserLocation = false
    open var overlays: [any MKOverlay] { overlays(in: .aboveRoads) + overlays(in: .aboveLabels) }
    open func overlays(in level: MKOverlayLevel) -> [any MKOverlay] { levels[level] ?? [] }
    open func addOverlay(_ overlay: any MKOverlay) { addOverlay(overlay, level: .aboveLabels) }
    open func addOverlay(_ overlay: any MKOverlay, level: MKOverlayLevel) {
        levels[level, default: []].append(overlay)
    }
    open func insertOverlay(_ overlay: any MKOverlay, at index: Int, level: MKOverlayLevel) {
        levels[level, default: []].insert(overlay, at: index)
    }
    open func removeOverlay(_ overlay: any MKOverlay) {
        for level in levels.keys { levels[level]?.removeAll { $0 === overlay } }
    }
}
@MainActor public protocol MKMapViewDelegate: NSObjectProtocol {
    func mapView(_ mapView: MKMapView, rendererFor overlay: any MKOverlay) -> MKOverlayRenderer
    func mapView(_ mapView: MKMapView, regionDidChangeAnimated animated: Bool)
}
// Optional with Apple.
extension MKMapViewDelegate {
    public func mapView(_ mapView: MKMapView, regionDidChangeAnimated animated: Bool) {}
}
