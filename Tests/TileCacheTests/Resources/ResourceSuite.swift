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
                && lab.cache.resources.changes.count == 0 && lab.cache.resources.budget.isUnused
        }
        #expect(lab.cache.resources.drivers.count == 0)
        #expect(lab.cache.resources.flights.count == 0)
        #expect(lab.cache.resources.changes.count == 0)
        #expect(lab.cache.resources.budget.isUnused)
    }
}
