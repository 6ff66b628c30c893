import Foundation
import TileCache
import TileCacheNIO

/// What an app does at its start: goes on with the regions that are not complete, or downloads the first one.
///
/// `region-download CACHE ADDRESS ZOOM [STYLE]`: the region `world` up to a zoom, of all that a style names if there is one. Tests
/// kill it.
@main
struct RegionDownload {
    static func main() async throws {
        let arguments = CommandLine.arguments
        let cache = try TileCache(at: arguments[1], transport: AsyncHTTPClientTransport())
        let source = try TileSource("tiles", template: arguments[2] + "/{z}/{x}/{y}.png")
        let unfinished = try await cache.downloads()
        let download: TileDownload
        let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
        let zooms = 0...(Int(arguments[3]) ?? 0)
        if arguments.count > 4, let style = URL(string: arguments[2] + arguments[4]) {
            let map = StyledRegion(.box(world), zooms: zooms, styles: [style])
            if let first = unfinished.first {
                download = try await first.resume(map)
            } else {
                download = try await cache.download(map, named: "world")
            }
        } else if let first = unfinished.first {
            download = try await first.resume(from: source)
        } else {
            let coverage = try source.coverage(.box(world), zooms: zooms)
            download = try await cache.download(source, coverage, named: "world")
        }
        let report = await download.report()
        let progress = report.progress
        print(
            "resumed=\(!unfinished.isEmpty) total=\(progress.total) fetched=\(progress.fetched) "
                + "unchanged=\(progress.unchanged) complete=\(report.verdict == .complete) "
                + "left=\(try await cache.downloads().count)")
        try cache.close()
    }
}
