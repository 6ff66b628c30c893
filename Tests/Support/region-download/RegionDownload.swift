import TileCache
import TileCacheNIO

/// What an app does at its start: goes on with the regions that are not complete, or downloads the first one.
///
/// `region-download CACHE ADDRESS ZOOM`: the region `world` up to a zoom. Tests kill it.
@main
struct RegionDownload {
    static func main() async throws {
        let arguments = CommandLine.arguments
        let cache = try TileCache(at: arguments[1], transport: AsyncHTTPClientTransport())
        let source = try TileSource("tiles", template: arguments[2] + "/{z}/{x}/{y}.png")
        let unfinished = try await cache.downloads()
        let download: TileDownload
        if let first = unfinished.first {
            download = try await first.resume(from: source)
        } else {
            let world = try GeoBox(west: -180, south: -85, east: 180, north: 85)
            let coverage = try source.coverage(.box(world), zooms: 0...(Int(arguments[3]) ?? 0))
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
