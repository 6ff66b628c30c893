#if canImport(MapKit) && !os(watchOS)
import Foundation
import MapKit
import TileCache
import TileCacheMapKit

/// What both hosts show: a map with an overlay from a cache, a grid over it, an offline switch and a region's download.
///
/// Put your own server's template and your app's name here: the terms of most public servers forbid downloads.
@MainActor
final class DemoMap: NSObject {
    enum Style: String, CaseIterable {
        case day, night
    }

    let view = MKMapView()
    private(set) var overlay: CachedTileOverlay?
    private var grid: TileGridOverlay?
    private var caches: [Style: (online: MapCache, offline: MapCache)] = [:]
    private var downloader: RegionDownloader?

    /// The style that is shown.
    var style = Style.day { didSet { showCurrent() } }
    /// Whether nobody is asked for tiles.
    var isOffline = false { didSet { showCurrent() } }
    /// Whether each tile's address and state are shown.
    var showsGrid = false { didSet { updateGrid() } }
    /// Called with the share of a download that is done, and with a line on its end.
    var onProgress: ((Double, String?) -> Void)?

    /// Opens the cache.
    func start() throws {
        var configuration = MapCacheConfiguration(urlTemplate: "https://tiles.example/day/{z}/{x}/{y}{r}.png")
        configuration.name = "Demo"
        configuration.capacity = 200_000_000
        configuration.maximumZ = 18
        configuration.userAgent = "MapKitDemo/1.0 (demo@tiles.example)"
        let shared = try MapCache(configuration)
        for style in Style.allCases {
            configuration.urlTemplate = "https://tiles.example/\(style.rawValue)/{z}/{x}/{y}{r}.png"
            configuration.loadMode = .standard
            let online = try MapCache(configuration, cache: shared.cache)
            configuration.loadMode = .cacheOnly
            caches[style] = (online, try MapCache(configuration, cache: shared.cache))
        }
        view.delegate = self
        guard let first = caches[style]?.online else { return }
        overlay = view.useCache(first, canReplaceMapContent: true, overlayLevel: .aboveLabels)
    }

    private var current: MapCache? {
        caches[style].map { isOffline ? $0.offline : $0.online }
    }

    private func showCurrent() {
        guard let current else { return }
        overlay?.use(current)
    }

    private func updateGrid() {
        if let grid { view.removeOverlay(grid) }
        grid = nil
        guard showsGrid, let overlay else { return }
        let grid = TileGridOverlay(of: overlay)
        view.addOverlay(grid, level: .aboveLabels)
        self.grid = grid
    }

    // MARK: A region

    /// Downloads what is on the screen, three zooms deep, and keeps it.
    func downloadVisible() async {
        guard let cache = caches[style]?.online else { return }
        do {
            let zoom = min(view.zoomLevel, cache.layout.zooms.upperBound)
            let downloader = try RegionDownloader(
                RegionShape(view.region), zooms: zoom...min(zoom + 3, cache.layout.zooms.upperBound), named: "visible",
                of: cache)
            downloader.delegate = self
            self.downloader = downloader
            let size = try await downloader.estimateSize(samples: 8)
            onProgress?(0, "\(size.tiles) tiles, about \(size.bytes / 1_000_000) MB")
            try await downloader.start()
        } catch {
            onProgress?(0, "\(error)")
        }
    }

    func pause() { downloader?.pause() }
    func resume() { downloader?.resume() }
    func cancel() { downloader?.cancel() }
    func retryFailed() { downloader?.retryFailed() }

    /// Empties the map's cache, regions included, and shows that.
    func clear() async throws {
        try await caches[style]?.online.clear(includingRegions: true)
        overlay?.reload()
    }
}

extension DemoMap: MKMapViewDelegate {
    func mapView(_ mapView: MKMapView, rendererFor overlay: any MKOverlay) -> MKOverlayRenderer {
        let renderer = mapView.mapCacheRenderer(forOverlay: overlay)
        // A watermark: a line along the upper edge of every tile.
        (renderer as? CachedTileOverlayRenderer)?.decorate = { context, rect, _ in
            context.setFillColor(red: 0, green: 0, blue: 0, alpha: 0.1)
            context.fill(CGRect(x: rect.minX, y: rect.minY, width: rect.width, height: rect.height / 128))
        }
        return renderer
    }
}

extension DemoMap: RegionDownloaderDelegate {
    func regionDownloader(_ downloader: RegionDownloader, didReach percentage: Double) {
        onProgress?(percentage / 100, nil)
    }

    func regionDownloader(_ downloader: RegionDownloader, didFinish report: DownloadReport) {
        let missing = report.shortfalls.reduce(0) { $0 + $1.tiles }
        onProgress?(report.progress.fraction, "\(report.progress.fetched) tiles came, \(missing) are missing")
        overlay?.reload()
    }

    func regionDownloader(_ downloader: RegionDownloader, didFail error: any Error) { onProgress?(0, "\(error)") }
}
#endif
