import ContentCoding
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

    /// URLSession was told of a request that it had just ended itself, and ended it a second time: the process was over.
    @Test func aRequestThatIsGivenUpEndsOnce() async throws {
        let rig = try await Rig()
        let wrong = await withTaskGroup(of: Bool.self) { group in
            for number in 0..<1000 {
                group.addTask {
                    let path = Self.map[number % Self.map.count]
                    let task = Task { try await rig.get(path) }
                    if number % 4 == 1 { await Task.yield() }
                    if number % 2 == 1 { task.cancel() }
                    let answer = await task.result
                    return number % 2 == 0 && (try? answer.get())?.response.statusCode != 200
                }
            }
            return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
        }
        #expect(wrong == 0)
        try await rig.close()
    }

    /// A tile waited for as long as its source allows, whatever the client allows; no number at all ended the process.
    @Test func theTimeOfARequestIsKept() async throws {
        let gate = Gate()
        let rig = try await Rig()
        let slow = try await LocalOrigin.start { _ in LocalAnswer(.ok, text: "late", gate: gate) }
        let source = try TileSource("slow", template: slow.url + "/{z}/{x}/{y}")
        TileCacheURLProtocol.use(rig.cache, for: [rig.source, source])
        for path in ["/1/0/0", "/late.json"] {
            let url = try #require(URL(string: slow.url + path))
            await #expect(throws: URLError(.timedOut)) {
                try await rig.session.data(for: URLRequest(url: url, timeoutInterval: 1))
            }
        }
        gate.open()
        let url = try #require(URL(string: rig.origin.url + "/style.json"))
        for interval in [Double.nan, .infinity, -1, 0, 1e300] {
            let (_, response) = try await rig.session.data(for: URLRequest(url: url, timeoutInterval: interval))
            #expect((response as? HTTPURLResponse)?.statusCode == 200)
        }
        try await slow.stop()
        try await rig.close()
    }

    /// Clients of a URL protocol take what they get as it is.
    @Test func bodiesComeWithoutACodingThatNobodyAskedFor() async throws {
        let plain = Data(#"{"version":8,"layers":[]}"#.utf8)
        let packed = try Gzip.encode(plain)
        let rig = try await Rig()
        let origin = try await LocalOrigin.start { request in
            LocalAnswer(
                .ok, [.contentEncoding: "gzip", .cacheControl: "max-age=60", .contentType: "application/json"],
                body: request.path == "/damaged" ? Array(packed.prefix(20)) : Array(packed))
        }
        for _ in 0..<2 {
            let (body, response) = try await rig.session.data(from: try #require(URL(string: origin.url + "/style")))
            #expect(body == plain)
            #expect((response as? HTTPURLResponse)?.value(forHTTPHeaderField: "Content-Encoding") == nil)
        }
        await #expect(throws: URLError(.cannotDecodeContentData)) {
            try await rig.session.data(from: try #require(URL(string: origin.url + "/damaged")))
        }
        try await origin.stop()
        try await rig.close()
    }

    @Test func whatAServerWantsToKnowIsToldToTheClient() async throws {
        let rig = try await Rig()
        let origin = try await LocalOrigin.start { request in
            switch request.path {
            case "/locked": LocalAnswer(.unauthorized, [.wwwAuthenticate: "Basic realm=\"map\""], text: "who is it?")
            case "/old/style.json": LocalAnswer(.found, [.location: "/new/style.json"])
            default: LocalAnswer(.ok, text: request.fields[.authorization] ?? "nobody")
            }
        }
        func get(_ url: String) async throws -> (String, HTTPURLResponse) {
            let (body, response) = try await rig.session.data(from: try #require(URL(string: url)))
            return (String(decoding: body, as: UTF8.self), try #require(response as? HTTPURLResponse))
        }
        let locked = try await get(origin.url + "/locked")
        #expect(locked.0 == "who is it?" && locked.1.statusCode == 401)
        // Relative URLs in it are relative to where it was found.
        #expect(try await get(origin.url + "/old/style.json").1.url?.path == "/new/style.json")
        #expect(try await get(origin.url + "/a#part").1.url?.fragment == "part")
        // Who writes a password into a URL means the server, not the cache.
        let secret = origin.url.replacingOccurrences(of: "http://", with: "http://me:pass@")
        #expect(try await get(secret + "/me.json").0.hasPrefix("Basic "))
        try await origin.stop()
        try await rig.close()
    }

    #if !canImport(Darwin)
    /// URLSession on Linux has no way to take a file from a URL protocol: it ended the process.
    @Test func aDownloadTaskIsAnError() async throws {
        let rig = try await Rig()
        let url = try #require(URL(string: rig.origin.url + "/style.json"))
        await #expect(throws: URLError(.unsupportedURL)) { try await rig.session.download(from: url) }
        try await rig.close()
    }
    #endif

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
