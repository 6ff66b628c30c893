import Foundation
import TileCache

/// A map view's worth of tiles, loaded from a server, shown while the server is gone, and revalidated when it is back.
///
/// ```sh
/// swift run OfflineMap
/// ```
///
/// The server is a ``SampleServer`` inside the program with the map in `Sample/world`; nothing outside the process is
/// asked. An app leaves `transport` out, or on Linux passes the one of `TileCacheNIO`. All else is what an app would do.
@main
struct OfflineMap {
    static func main() async throws {
        let sample = CommandLine.arguments.dropFirst().first ?? "Sample/world"
        let server = try SampleServer(folder: sample)
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("offline-map-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }

        let cache = try TileCache(at: folder.path, transport: server)
        var source = try TileSource("world", template: "https://maps.example/{z}/{x}/{y}.png", zooms: 0...5)
        source.attempts = 1

        try await show("First look: everything comes from the server", cache, source, expect: "network")

        await server.setReachable(false)
        try await show("The server is gone: the map stays, and says that it is old", cache, source, expect: "stale")

        await server.setReachable(true)
        // An app may call this when it learns that the network is back; otherwise the back-off ends by itself.
        cache.forgetFailures()
        let before = await server.bytesSent
        try await show("It is back: one question a tile, no bytes", cache, source, expect: "revalidated")
        print("bytes of bodies that the server sent for that: \(await server.bytesSent - before)")

        let figures = try cache.store.statistics()
        print("in the cache: \(figures.entries) tiles in \(figures.blobs) blobs")
        try cache.close()
    }

    /// Loads twelve tiles of zoom 4 at once, as a map view does, and prints where each came from.
    private static func show(
        _ title: String, _ cache: TileCache, _ source: TileSource, expect: String
    ) async throws {
        print("\n\(title)")
        let origins = try await withThrowingTaskGroup(of: (Int, Int, String).self) { group in
            for y in 4..<7 {
                for x in 7..<11 {
                    group.addTask {
                        let tile = try await cache.tile(source, z: 4, x: x, y: y)
                        return (x, y, name(tile?.origin))
                    }
                }
            }
            var origins: [Int: [Int: String]] = [:]
            for try await (x, y, origin) in group { origins[y, default: [:]][x] = origin }
            return origins
        }
        for (_, row) in origins.sorted(by: { $0.key < $1.key }) {
            let cells = row.sorted { $0.key < $1.key }.map {
                $0.value.padding(toLength: 12, withPad: " ", startingAt: 0)
            }
            print("  " + cells.joined())
        }
        guard origins.values.allSatisfy({ $0.values.allSatisfy { $0 == expect } }) else {
            print("expected \(expect) for every tile")
            exit(1)
        }
    }

    private static func name(_ origin: TileOrigin?) -> String {
        switch origin {
        case .memory: "memory"
        case .disk: "disk"
        case .revalidated: "revalidated"
        case .network: "network"
        case .stale: "stale"
        case .overzoomed: "overzoomed"
        case nil: "nothing"
        }
    }
}
