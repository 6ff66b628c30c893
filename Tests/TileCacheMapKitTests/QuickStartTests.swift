#if canImport(MapKit)
import Foundation
import MapKit
import Testing

@testable import TileCache
@testable import TileCacheMapKit

/// A view controller as MapCache's quick start has it, with another import.
@MainActor
private final class MapController: NSObject, MKMapViewDelegate {
    let map = MKMapView()
    private(set) var mapCache: MapCache?

    func viewDidLoad(at folder: URL) {
        map.delegate = self
        var config = MapCacheConfig(withUrlTemplate: "https://{s}.tiles.example/{z}/{x}/{y}.png")
        // Not in the quick start: tests leave the home folder alone.
        config.baseURL = folder
        let mapCache = MapCache(withConfig: config)
        map.useCache(mapCache)
        self.mapCache = mapCache
    }

    func mapView(_ mapView: MKMapView, rendererFor overlay: any MKOverlay) -> MKOverlayRenderer {
        return mapView.mapCacheRenderer(forOverlay: overlay)
    }
}

@Suite(.timeLimit(.minutes(60)))
@MainActor
struct QuickStartTests {
    private func withFolder(_ body: (URL) async throws -> Void) async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("quick-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        try await body(folder)
    }

    @Test func mapCachesQuickStartWorksWithAnotherImport() async throws {
        try await withFolder { folder in
            let controller = MapController()
            controller.viewDidLoad(at: folder)
            let map = try #require(controller.mapCache)
            #expect(map.openingError == nil)
            let one = try tile(5, 3, 4)
            #expect(map.url(for: one)?.absoluteString == "https://b.tiles.example/5/3/4.png")
            let now = Timestamp(Date())
            try map.cache.store.put(
                picture("kept"), for: map.source.key(z: 5, x: 3, y: 4),
                metadata: TileMetadata(storedAt: now, expires: now.adding(seconds: 600)))
            let overlay = try #require(controller.map.overlays.first)
            let renderer = controller.mapView(controller.map, rendererFor: overlay)
            let context = CGContext()
            renderer.draw(PlaneRect(one).mapRect, zoomScale: 256 * 32 / PlaneRect.world, in: context)
            #expect(context.drawn.count == 1)
            try map.cache.close()
        }
    }

    /// `MapCache(withConfig:)` cannot throw; what it could not do is each tile's error, and nothing traps.
    @Test func aCacheThatCannotBeOpenedIsTheErrorOfEachTile() async throws {
        try await withFolder { folder in
            let file = folder.appendingPathComponent("file")
            try Data("no folder".utf8).write(to: file)
            var underFile = MapCacheConfig(withUrlTemplate: "https://tiles.example/{z}/{x}/{y}.png")
            underFile.baseURL = file
            var badTemplate = MapCacheConfig(withUrlTemplate: "https://tiles.example/{z}/{x}")
            badTemplate.baseURL = folder
            var badZooms = MapCacheConfig(withUrlTemplate: "https://tiles.example/{z}/{x}/{y}.png")
            badZooms.baseURL = folder
            (badZooms.minimumZ, badZooms.maximumZ) = (50, -3)
            // Its tiles said that the source had no such zooms.
            var wrongZooms = MapCacheConfig(withUrlTemplate: "https://tiles.example/{z}/{x}/{y}.png")
            wrongZooms.baseURL = folder
            (wrongZooms.minimumZ, wrongZooms.maximumZ) = (5, 3)
            let elsewhere = try await #require(throws: TileCacheError.self) {
                try await MapCache(withConfig: wrongZooms).loadTile(try tile(2, 0, 0), refreshing: false)
            }
            #expect(elsewhere.message.contains("is beyond the last"))
            for config in [underFile, badTemplate, badZooms, wrongZooms] {
                let map = MapCache(withConfig: config)
                let reason = try #require(map.openingError)
                let tile = try tile(map.layout.zooms.lowerBound, 0, 0)
                do {
                    _ = try await map.loadTile(tile, refreshing: false)
                    Issue.record("a tile out of nothing")
                } catch let error as TileCacheError {
                    #expect(error.code == .noAnswer && error.message.contains("\(reason)"))
                }
                #expect(map.state(of: tile).content == .absent && map.cachedData(for: tile) == nil)
                #expect(map.url(for: tile) == nil)
                await #expect(throws: (any Error).self) { try await map.size() }
                await #expect(throws: (any Error).self) { try await map.clear() }
                let world = RegionShape.box(try GeoBox(west: -180, south: -85, east: 180, north: 85))
                let zoom = map.layout.zooms.lowerBound
                let downloader = try RegionDownloader(world, zooms: zoom...zoom, named: "world", of: map)
                let start = await #expect(throws: (any Error).self) { try await downloader.start() }
                let estimate = await #expect(throws: (any Error).self) { try await downloader.estimateSize() }
                for error in [start, estimate] { #expect(error.map { "\($0)" } == "\(reason)") }
                #expect(throws: StoreError.self) { try map.cache.store.statistics() }
                try map.cache.close()
            }
        }
    }
}
#endif
