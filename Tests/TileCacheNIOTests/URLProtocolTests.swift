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

/// A client that knows URLSession and nothing of caches, over a real server.
@Suite(.timeLimit(.minutes(60)), .serialized)
struct URLProtocolTests {
    /// A cache, a server with a small map, and a session over the cache.
    private final class Rig: Sendable {
        let folder: String
        let cache: TileCache
        let transport = AsyncHTTPClientTransport()
        let origin: LocalOrigin
        let source: TileSource
        let session: URLSession

        init(_ fields: HTTPFields = [.cacheControl: "max-age=3600"]) async throws {
            let made = FileManager.default.temporaryDirectory.appendingPathComponent("url-\(UUID().uuidString)").path
            folder = made
            cache = try TileCache(at: made, transport: transport)
            var site = TileSite(zooms: 0...3, fields: fields)
            site.set("/style.json", Array(#"{"version":8}"#.utf8), type: "application/json", fields: fields)
            site.set("/sprite.png", [0x89, 0x50, 0x4E, 0x47], fields: fields)
            site.set("/fonts/Noto/0-255.pbf", [1, 2, 3], type: "application/x-protobuf", fields: fields)
            let pages = site
            origin = try await LocalOrigin.start { pages.answer($0) }
            source = try TileSource("map", template: origin.url + "/{z}/{x}/{y}.png", zooms: 0...3)
            let configuration = URLSessionConfiguration.ephemeral
            configuration.use(cache, for: [source])
            session = URLSession(configuration: configuration)
        }

        func get(
            _ path: String, _ fields: [String: String] = [:], method: String = "GET",
            policy: URLRequest.CachePolicy = .useProtocolCachePolicy
        ) async throws -> (response: HTTPURLResponse, body: Data) {
            let url = try #require(URL(string: origin.url + path))
            var request = URLRequest(url: url, cachePolicy: policy, timeoutInterval: 300)
            request.httpMethod = method
            for (name, value) in fields { request.setValue(value, forHTTPHeaderField: name) }
            let (body, response) = try await session.data(for: request)
            return (try #require(response as? HTTPURLResponse), body)
        }

        func close() async throws {
            session.invalidateAndCancel()
            try cache.close()
            await transport.shutdown()
            try await origin.stop()
            try FileManager.default.removeItem(atPath: folder)
        }
    }

    private static let map = ["/style.json", "/sprite.png", "/fonts/Noto/0-255.pbf", "/0/0/0.png", "/2/1/3.png"]

    @Test func aMapThatWasSeenIsThereWithoutANetwork() async throws {
        let rig = try await Rig()
        var seen: [String: Data] = [:]
        for path in Self.map {
            let (response, body) = try await rig.get(path)
            #expect(response.statusCode == 200 && !body.isEmpty)
            seen[path] = body
        }
        #expect(rig.origin.requests.count == Self.map.count)
        try await rig.origin.stop()
        for path in Self.map {
            let (response, body) = try await rig.get(path)
            #expect(response.statusCode == 200 && body == seen[path], "\(path)")
        }
        // What nobody has seen is an error, as without a network.
        await #expect(throws: URLError.self) { try await rig.get("/3/1/1.png") }
        await #expect(throws: URLError.self) { try await rig.get("/other.json") }
        try await rig.close()
    }

    /// The tiles of a region are those that the client's URLs name.
    @Test func aRegionThatWasDownloadedIsThereWithoutANetwork() async throws {
        let rig = try await Rig()
        let world = try rig.source.coverage(.box(GeoBox(west: -180, south: -85, east: 180, north: 85)), zooms: 0...3)
        #expect(try await rig.cache.download(rig.source, world, named: "world").report().verdict == .complete)
        #expect(rig.origin.requests.count == 85)
        try await rig.origin.stop()
        for tile in world.tiles() {
            let (response, body) = try await rig.get("/\(tile.z)/\(tile.x)/\(tile.y).png")
            let expected = TileSite.noise(zoom: tile.z, column: tile.x, row: tile.y)
            #expect(response.statusCode == 200 && body == Data(expected))
            #expect(response.value(forHTTPHeaderField: "Content-Type") == "image/png")
        }
        try await rig.close()
    }

    @Test func aTileCarriesWhatAClientNeedsToKeepIt() async throws {
        let rig = try await Rig()
        let (first, body) = try await rig.get("/1/0/0.png")
        let tag = try #require(first.value(forHTTPHeaderField: "ETag"))
        let age = try #require(first.value(forHTTPHeaderField: "Cache-Control")?.dropFirst("max-age=".count))
        #expect((3000...3600).contains(Int(age) ?? 0) && !body.isEmpty)
        let (known, none) = try await rig.get("/1/0/0.png", ["If-None-Match": "\"other\", \(tag)"])
        #expect(known.statusCode == 304 && none.isEmpty)
        let (head, empty) = try await rig.get("/1/0/0.png", method: "HEAD")
        #expect(head.statusCode == 200 && empty.isEmpty && head.value(forHTTPHeaderField: "ETag") == tag)
        #expect(rig.origin.requests.count == 1)
        try await rig.close()
    }

    @Test func whatDoesNotExistAndWhatIsRefusedKeepTheirStatus() async throws {
        let rig = try await Rig()
        #expect(try await rig.get("/nothing.json").response.statusCode == 404)
        let refused = try await LocalOrigin.start { _ in LocalAnswer(.forbidden) }
        let other = try TileSource("refused", template: refused.url + "/{z}/{x}/{y}", zooms: 0...3)
        TileCacheURLProtocol.use(rig.cache, for: [rig.source, other])
        let url = try #require(URL(string: refused.url + "/1/0/0"))
        let (_, response) = try await rig.session.data(from: url)
        #expect((response as? HTTPURLResponse)?.statusCode == 403)
        try await refused.stop()
        try await rig.close()
    }

    @Test func policiesThatForbidTheNetworkAreKept() async throws {
        let rig = try await Rig([.cacheControl: "max-age=0"])
        for path in ["/1/0/0.png", "/style.json"] {
            await #expect(throws: URLError.self) { try await rig.get(path, policy: .returnCacheDataDontLoad) }
            #expect(rig.origin.requests.isEmpty, "\(path)")
            _ = try await rig.get(path)
            for policy in [URLRequest.CachePolicy.returnCacheDataDontLoad, .returnCacheDataElseLoad] {
                #expect(try await rig.get(path, policy: policy).response.statusCode == 200)
            }
            #expect(rig.origin.requests.count == 1, "\(path): stale, and nobody was asked")
            rig.origin.forget()
        }
        try await rig.close()
    }

    /// A session outlives the cache: the network is there as if there had been none.
    @Test func aClosedCacheIsInNobodysWay() async throws {
        let rig = try await Rig()
        _ = try await rig.get("/style.json")
        try rig.cache.close()
        #expect(try await rig.get("/style.json").response.statusCode == 200)
        #expect(rig.origin.requests.count == 2)
        try await rig.close()
    }

    @Test func aRequestThatIsGivenUpIsCancelled() async throws {
        let rig = try await Rig()
        let gate = Gate()
        let slow = try await LocalOrigin.start { _ in LocalAnswer(.ok, text: "late", gate: gate) }
        let url = try #require(URL(string: slow.url + "/late.json"))
        let session = rig.session
        let task = Task { try await session.data(from: url) }
        await slow.arrivals(1)
        task.cancel()
        await #expect(throws: (any Error).self) { try await task.value }
        // The last one who waited has left, so the server is left too.
        await slow.connectionsClosed()
        gate.open()
        try await slow.stop()
        try await rig.close()
    }

    /// An app that uses one configuration for its client and for the cache had the cache ask itself, and wait for itself.
    @Test func aTransportWithTheClientsConfigurationAsksTheServer() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("url-\(UUID().uuidString)").path
        let origin = try await LocalOrigin.start { _ in LocalAnswer(.ok, [.cacheControl: "max-age=60"], text: "{}") }
        let configuration = URLSessionConfiguration.ephemeral
        configuration.protocolClasses = [TileCacheURLProtocol.self] + (configuration.protocolClasses ?? [])
        let cache = try TileCache(at: folder, transport: URLSessionTransport(configuration: configuration))
        TileCacheURLProtocol.use(cache, for: [])
        #expect(try await cache.response(for: origin.request("/style.json"))?.head.status == .ok)
        #expect(origin.counts == ["/style.json": 1])
        // Only the transport's copy was changed.
        #expect(configuration.protocolClasses?.first == TileCacheURLProtocol.self)
        try cache.close()
        try await origin.stop()
        try FileManager.default.removeItem(atPath: folder)
    }
}
