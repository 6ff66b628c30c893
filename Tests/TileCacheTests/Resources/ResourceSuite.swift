import CacheEngine
import Foundation
import HTTPTypes
import Testing
import TileStore

@testable import TileCache

/// What the tests of resources share.
protocol ResourceSuite {}

extension ResourceSuite {
    func request(
        _ path: String = "/style.json", _ fields: HTTPFields = [:], host: String = "tiles.example",
        method: HTTPRequest.Method = .get
    ) -> HTTPRequest {
        HTTPRequest(method: method, scheme: "https", authority: host, path: path, headerFields: fields)
    }

    func body(_ text: String) -> Data { Data(text.utf8) }

    func text(_ response: CachedResponse?) -> String? {
        response.map { String(decoding: $0.body, as: UTF8.self) }
    }

    func code(_ work: () async throws -> Void) async -> TileCacheError.Code? {
        do { try await work(); return nil } catch { return (error as? TileCacheError)?.code }
    }

    /// Waits until nothing is under way, and checks that nothing is left.
    func settled(_ lab: CacheLab) async {
        await until {
            lab.cache.resources.drivers.count == 0 && lab.cache.resources.flights.count == 0
                && lab.cache.resources.changes.count == 0
        }
        #expect(lab.cache.resources.drivers.count == 0)
        #expect(lab.cache.resources.flights.count == 0)
        #expect(lab.cache.resources.changes.count == 0)
    }

    /// The key of the flight of a request for which nothing is stored.
    func key(of request: HTTPRequest, _ lab: CacheLab) throws -> TileKey {
        let keys = ResourceKeys(store: lab.store, name: try SourceName("resources"))
        return try #require(try Resource(request, keys, userAgent: "", bodyLimit: 0, timeout: .zero).request.key)
    }

    /// What became of the first request and of those that waited for its answer.
    ///
    /// The server answers by the script once all the others wait.
    func herd(
        _ lab: CacheLab, _ first: HTTPRequest, others: [HTTPRequest], bodyLimit: Int = 32 << 20,
        _ script: @escaping ScriptedTransport.Script
    ) async throws -> [Result<CachedResponse?, any Error>] {
        let latch = Latch()
        lab.transport.script { request in
            try await latch.pass()
            return try await script(request)
        }
        let cache = lab.cache
        let key = try key(of: first, lab)
        let (before, leader) = (
            lab.transport.count, Task { try await cache.response(for: first, bodyLimit: bodyLimit) }
        )
        await until { lab.transport.count > before }
        let followers = others.map { request in Task { try await cache.response(for: request) } }
        // Whoever asks by itself instead has to be found out, and not to hang the test.
        await until {
            lab.cache.resources.flights.followers(of: key) == others.count || lab.transport.count > before + 1
        }
        latch.open()
        var results = [await leader.result]
        for follower in followers { results.append(await follower.result) }
        await settled(lab)
        return results
    }
}
