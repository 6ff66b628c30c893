import Testing
import TileStore

@testable import TileCache
@testable import TileCacheMapKit

/// A cache of one's own that is a value.
private struct NoTiles: MapCaching {
    var layout: TileLayout { TileLayout() }
    func cachedData(for tile: TileAddress) -> Data? { nil }
    func loadTile(_ tile: TileAddress, refreshing: Bool) async throws -> Data? { nil }
}

@Suite(.timeLimit(.minutes(60)))
struct MapViewStateTests {
    private func region(_ latitude: Double, span: Double = 1) -> MapRegion {
        MapRegion(latitude: latitude, longitude: 8, latitudeDelta: span, longitudeDelta: span)
    }

    @Test func aCacheIsSwitchedToOnce() throws {
        let (one, other) = (try MapLab().map, try MapLab().map)
        var state = MapViewState()
        // The last is not a new one with every update of a view.
        let caches: [any MapCaching] = [one, one, other, NoTiles(), NoTiles()]
        let switches = caches.map { state.switches(to: CacheIdentity($0)) }
        #expect(switches == [true, false, true, true, false])
    }

    /// A view fits the region that it is given to its shape; what it says then must move nothing again.
    @Test func aViewAndItsBindingComeToRest() {
        var state = MapViewState()
        var steps = [state.moves(to: region(47))]
        // While it is moved, and of the region that it was moved to, the binding hears nothing.
        steps += [state.tells(region(47, span: 1.5)), state.tells(region(47))]
        state.moved()
        steps += [state.tells(region(47)), state.moves(to: region(47))]
        #expect(steps == [true, false, false, false, false])
        // Somebody moves the map: told once, and the binding's new value moves nothing.
        steps = [state.tells(region(48)), state.tells(region(48)), state.moves(to: region(48))]
        #expect(steps == [true, false, false])
        // The app moves it.
        let moves = state.moves(to: region(20))
        #expect(moves && state.isMoving)
    }

    /// MapKit ends an app that asks it for such a region.
    @Test(arguments: [
        MapRegion(latitude: .nan, longitude: 0, latitudeDelta: 1, longitudeDelta: 1),
        MapRegion(latitude: 91, longitude: 0, latitudeDelta: 1, longitudeDelta: 1),
        MapRegion(latitude: 0, longitude: -181, latitudeDelta: 1, longitudeDelta: 1),
        MapRegion(latitude: 0, longitude: 0, latitudeDelta: 181, longitudeDelta: 1),
        MapRegion(latitude: 0, longitude: 0, latitudeDelta: 1, longitudeDelta: .infinity),
    ])
    func aRegionThatIsNoneMovesNothing(region: MapRegion) {
        var state = MapViewState()
        let moves = state.moves(to: region)
        #expect(!moves && !state.isMoving)
    }
}

#if canImport(MapKit) && canImport(SwiftUI)
import MapKit
import SwiftUI

@Suite(.timeLimit(.minutes(60)))
@MainActor
struct CachedMapViewTests {
    private func region(_ latitude: Double) -> MKCoordinateRegion {
        MKCoordinateRegion(
            center: CLLocationCoordinate2D(latitude: latitude, longitude: 8),
            span: MKCoordinateSpan(latitudeDelta: 1, longitudeDelta: 1))
    }

    @Test func itShowsItsCacheAndSwitchesWithIt() throws {
        let (day, night) = (try MapLab().map, try MapLab { $0.maximumZ = 12 }.map)
        let described = CachedMapView(day) { $0.showsUserLocation = true }
        let coordinator = described.makeCoordinator()
        let view = described.makeView(coordinator)
        described.update(view, coordinator)
        #expect(view.delegate === coordinator && view.showsUserLocation)
        let overlay = try #require(view.overlays.first as? CachedTileOverlay)
        #expect(overlay.maximumZ == 19)
        #expect(coordinator.mapView(view, rendererFor: overlay) is CachedTileOverlayRenderer)
        CachedMapView(night).update(view, coordinator)
        #expect(view.overlays.count == 1 && overlay.maximumZ == 12)
    }

    @Test func theBindingMovesTheMapAndFollowsIt() throws {
        var (bound, writes) = (region(47), 0)
        let binding = Binding(get: { bound }) {
            bound = $0
            writes += 1
        }
        let described = CachedMapView(try MapLab().map, region: binding)
        let coordinator = described.makeCoordinator()
        let view = described.makeView(coordinator)
        described.update(view, coordinator)
        #expect(view.region.center.latitude == 47 && writes == 0)
        // A person moves the map.
        view.setRegion(region(48), animated: false)
        #expect(bound.center.latitude == 48 && writes == 1)
        described.update(view, coordinator)
        #expect(view.region.center.latitude == 48 && writes == 1)
        // The app does.
        bound = region(20)
        described.update(view, coordinator)
        #expect(view.region.center.latitude == 20 && writes == 1)
        // A region that is none.
        bound = region(.nan)
        described.update(view, coordinator)
        #expect(view.region.center.latitude == 20)
    }
}
#endif
