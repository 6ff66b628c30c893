import Foundation
import HTTPTypes
import Testing
import TileCache
import TileCacheNIO
import TileCacheTesting
import TileStore

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

extension URLProtocolTests {
    /// A map's style with all that it names, as a client of the MapLibre style specification asks for it.
    ///
    /// One after the other with the rest: which cache has what is no tile is the same for all sessions of a process.
    @Suite struct OfflineStyleTests {
        /// Asks for a style, and then for what stands in it, as a map view does for the tiles that it shows.
        private struct StyleClient {
            let session: URLSession
            private(set) var seen: [String: Data] = [:]

            init(_ session: URLSession) { self.session = session }

            private mutating func get(_ text: String) async throws -> Data {
                let url = try #require(URL(string: text))
                var request = URLRequest(url: url, timeoutInterval: 300)
                // As clients do that keep a cache of their own.
                request.cachePolicy = .reloadIgnoringLocalCacheData
                let (body, response) = try await session.data(for: request)
                guard (response as? HTTPURLResponse)?.statusCode == 200 else { throw URLError(.badServerResponse) }
                seen[text] = body
                return body
            }

            mutating func show(_ style: String, zooms: ClosedRange<Int>, scale: Int) async throws {
                let ratio = scale == 1 ? "" : "@\(scale)x"
                let root = try JSONDecoder().decode(Style.self, from: try await get(style))
                for sprite in [root.sprite + ratio + ".json", root.sprite + ratio + ".png"] {
                    _ = try await get(sprite)
                }
                for fonts in Set(root.layers.compactMap { $0.layout?.textFont?.joined(separator: ",") }) {
                    // As MapLibre Native does.
                    let name = fonts.replacingOccurrences(of: " ", with: "%20").replacingOccurrences(
                        of: ",", with: "%2c")
                    for range in ["0-255", "256-511", "8192-8447"] {
                        let glyphs = root.glyphs.replacingOccurrences(of: "{fontstack}", with: name)
                        _ = try await get(glyphs.replacingOccurrences(of: "{range}", with: range))
                    }
                }
                for source in root.sources.values {
                    var tiles = source.tiles
                    if let url = source.url {
                        tiles = try JSONDecoder().decode(Style.Source.self, from: try await get(url)).tiles
                    }
                    for zoom in zooms {
                        for column in 0..<(1 << zoom) {
                            for row in 0..<(1 << zoom) {
                                var url = try #require(tiles?.first)
                                for (name, value) in [("z", zoom), ("x", column), ("y", row)] {
                                    url = url.replacingOccurrences(of: "{\(name)}", with: "\(value)")
                                }
                                _ = try await get(url.replacingOccurrences(of: "{ratio}", with: ratio))
                            }
                        }
                    }
                }
            }
        }

        private struct Style: Decodable {
            struct Source: Decodable {
                var url: String?
                var tiles: [String]?
            }
            struct Layer: Decodable {
                struct Layout: Decodable {
                    var textFont: [String]?
                    enum CodingKeys: String, CodingKey { case textFont = "text-font" }
                }
                var layout: Layout?
            }
            var sprite: String
            var glyphs: String
            var sources: [String: Source]
            var layers: [Layer]
        }

        /// A style with two sources, one of them by way of a TileJSON, with signs and letters.
        private static func site(_ root: String) -> [String: LocalAnswer] {
            var site: [String: LocalAnswer] = [:]
            func set(_ path: String, _ type: String, _ body: some Sequence<UInt8>, _ more: HTTPFields = [:]) {
                var fields = more
                (fields[.contentType], fields[.eTag]) = (type, "\"\(path.utf8.count)-\(path)\"")
                if fields[.cacheControl] == nil { fields[.cacheControl] = "public, max-age=600" }
                site[path] = LocalAnswer(.ok, fields, body: Array(body))
            }
            let style = """
                {"version": 8, "name": "Streets", "sprite": "\(root)/sprites/streets",
                "glyphs": "\(root)/fonts/{fontstack}/{range}.pbf",
                "sources": {
                "base": {"type": "vector", "url": "\(root)/data/base.json"},
                "relief": {"type": "raster", "tileSize": 256, "tiles": ["\(root)/relief/{z}/{x}/{y}{ratio}.png"]}},
                "layers": [{"id": "sea", "type": "background"},
                {"id": "relief", "type": "raster", "source": "relief"},
                {"id": "names", "type": "symbol", "source": "base", "source-layer": "place",
                "layout": {"text-font": ["Noto Sans Regular", "Arial Unicode MS Regular"]}},
                {"id": "roads", "type": "symbol", "source": "base", "source-layer": "road",
                "layout": {"text-font": ["Noto Sans Italic"]}}]}
                """
            // As servers of styles have it: what names the rest is asked about each time, while there is a network.
            set("/styles/streets.json", "application/json", style.utf8, [.cacheControl: "max-age=0"])
            set(
                "/data/base.json", "application/json",
                #"{"tilejson": "3.0.0", "minzoom": 0, "maxzoom": 3, "tiles": ["\#(root)/base/{z}/{x}/{y}.pbf?key=secret"]}"#
                    .utf8,
                [.vary: "Origin"])
            for ratio in ["", "@2x"] {
                set("/sprites/streets\(ratio).json", "application/json", #"{"pin": {"x": 0, "y": 0}}"#.utf8)
                set("/sprites/streets\(ratio).png", "image/png", TileSite.noise(zoom: 1, column: ratio.count, row: 9))
            }
            for (i, fonts) in ["Noto%20Sans%20Regular%2cArial%20Unicode%20MS%20Regular", "Noto%20Sans%20Italic"]
                .enumerated()
            {
                for (j, range) in ["0-255", "256-511", "8192-8447"].enumerated() {
                    set("/fonts/\(fonts)/\(range).pbf", "application/x-protobuf", [0x0A, UInt8(i), UInt8(j)])
                }
            }
            for zoom in 0...3 {
                for column in 0..<(1 << zoom) {
                    for row in 0..<(1 << zoom) {
                        let bytes = TileSite.noise(zoom: zoom, column: column, row: row)
                        // A layer with a version and a name.
                        let name = Array("base-\(zoom)-\(column)-\(row)".utf8)
                        let layer: [UInt8] = [0x78, 2, 0x0A, UInt8(name.count)] + name
                        let path = "/base/\(zoom)/\(column)/\(row).pbf?key=secret"
                        set(path, "application/x-protobuf", [0x1A, UInt8(layer.count)] + layer)
                        for ratio in ["", "@2x"] {
                            set("/relief/\(zoom)/\(column)/\(row)\(ratio).png", "image/png", bytes + ratio.utf8)
                        }
                    }
                }
            }
            return site
        }

        /// An app that is started anew on the folder: a cache and a session over it.
        private static func start(
            at folder: String, _ sources: [TileSource], _ settings: TileCacheConfiguration = TileCacheConfiguration(),
            _ body: (TileCache, URLSession) async throws -> Void
        ) async throws {
            let transport = AsyncHTTPClientTransport()
            let cache = try TileCache(at: folder, transport: transport, configuration: settings)
            let configuration = URLSessionConfiguration.ephemeral
            configuration.use(cache, for: sources)
            let session = URLSession(configuration: configuration)
            try await body(cache, session)
            session.invalidateAndCancel()
            try cache.close()
            await transport.shutdown()
        }

        /// - Parameter isKnown: Whether the app names the style's sources; else their tiles are resources like the rest.
        @Test(arguments: [false, true], [1, 2])
        func aStyleThatWasShownIsWholeWithoutItsServer(isKnown: Bool, scale: Int) async throws {
            let folder = FileManager.default.temporaryDirectory.appendingPathComponent("style-\(UUID().uuidString)")
                .path
            let pages = Locked<[String: LocalAnswer]>([:])
            let origin = try await LocalOrigin.start { request in
                pages.withLock { $0[request.path] }?.conditional(to: request) ?? LocalAnswer(.notFound)
            }
            pages.withLock { $0 = Self.site(origin.url) }
            let ratio = scale == 1 ? "" : "@2x"
            var base = try TileSource("base", template: origin.url + "/base/{z}/{x}/{y}.pbf?key=secret", zooms: 0...3)
            base.kind = .vector
            let relief = try TileSource(
                "relief", template: origin.url + "/relief/{z}/{x}/{y}\(ratio).png", zooms: 0...3)
            let sources = isKnown ? [base, relief] : []
            var online: [String: Data] = [:]
            try await Self.start(at: folder, sources) { cache, session in
                if isKnown {
                    let world = RegionShape.box(try GeoBox(west: -180, south: -85, east: 180, north: 85))
                    for source in sources {
                        let coverage = try source.coverage(world, zooms: 0...3)
                        let report = try await cache.download(source, coverage, named: "world-\(source.name)").report()
                        #expect(report.verdict == .complete)
                    }
                }
                origin.forget()
                var client = StyleClient(session)
                try await client.show(origin.url + "/styles/streets.json", zooms: 0...3, scale: scale)
                online = client.seen
                // Each was asked for once, and none of the tiles that a region had brought.
                let tiles = isKnown ? 2 * 85 : 0
                #expect(origin.requests.count == online.count - tiles)
            }
            // A style, a TileJSON, a sheet of signs in two files, two fonts in three ranges, and tiles.
            #expect(online.count == 180)
            try await origin.stop()
            try await Self.start(at: folder, sources) { _, session in
                var client = StyleClient(session)
                try await client.show(origin.url + "/styles/streets.json", zooms: 0...3, scale: scale)
                #expect(client.seen == online)
            }
            try FileManager.default.removeItem(atPath: folder)
        }

        /// - Parameter isKnown: Whether the app names the style's sources; else their tiles are resources like the rest.
        @Test(arguments: [false, true], [1, 2])
        func aStyleThatWasDownloadedIsWholeWithoutItsServer(isKnown: Bool, scale: Int) async throws {
            let folder = FileManager.default.temporaryDirectory.appendingPathComponent("style-\(UUID().uuidString)")
                .path
            let pages = Locked<[String: LocalAnswer]>([:])
            let origin = try await LocalOrigin.start { request in
                pages.withLock { $0[request.path] }?.conditional(to: request) ?? LocalAnswer(.notFound)
            }
            var site = Self.site(origin.url)
            // What is seen besides, and is no part of the map.
            site["/news.json"] = LocalAnswer(.ok, [.cacheControl: "max-age=600"], text: "{}")
            pages.withLock { [site] in $0 = site }
            let ratio = scale == 1 ? "" : "@2x"
            var base = try TileSource("base", template: origin.url + "/base/{z}/{x}/{y}.pbf?key=secret", zooms: 0...3)
            base.kind = .vector
            let relief = try TileSource(
                "relief", template: origin.url + "/relief/{z}/{x}/{y}\(ratio).png", zooms: 0...3)
            let sources = isKnown ? [base, relief] : []
            let style = try #require(URL(string: origin.url + "/styles/streets.json"))
            var map = StyledRegion(
                .box(try GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...3, styles: [style])
            map.scale = scale
            map.glyphs = [0...511, 0x2000...0x20FF]
            try await Self.start(at: folder, sources) { cache, session in
                _ = try await session.data(from: try #require(URL(string: origin.url + "/news.json")))
                origin.forget()
                let download = try await cache.download(map, named: "world")
                let report = await download.report()
                // A style, a TileJSON, a sheet of signs in four files, two fonts in three ranges, and tiles.
                #expect(report.verdict == .complete && report.progress.total == 12 + 170 && report.present == 182)
                #expect(origin.requests.count == 182)
                let figures = try #require(try await cache.regions().first)
                #expect(figures.region.tiles.map(\.source.description) == (isKnown ? ["base", "relief"] : []))
                #expect(figures.tiles == (isKnown ? 170 : 0) && figures.present == figures.tiles)
                #expect(figures.region.resources.count == (isKnown ? 12 : 182))
                #expect(figures.presentResources == figures.region.resources.count)
            }
            try await origin.stop()
            var limited = TileCacheConfiguration()
            limited.store.capacity = 0
            limited.store.entryLimit = 0
            try await Self.start(at: folder, sources, limited) { cache, session in
                #expect(try cache.store.statistics().entries == cache.store.statistics().pinnedEntries)
                var client = StyleClient(session)
                try await client.show(style.absoluteString, zooms: 0...3, scale: scale)
                #expect(client.seen.count == 180)
                for (url, body) in client.seen {
                    let path = String(url.dropFirst(origin.url.count))
                    #expect(site[path]?.body == Array(body), "\(path)")
                }
                await #expect(throws: URLError.self) {
                    try await session.data(from: try #require(URL(string: origin.url + "/news.json")))
                }
                _ = try await cache.removeRegion("world")
                #expect(try cache.store.statistics().entries == 0)
            }
            try FileManager.default.removeItem(atPath: folder)
        }
    }
}
