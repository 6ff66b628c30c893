import Foundation
import HTTPCaching
import HTTPTypes
import TileStore

@testable import CacheEngine

/// Requests and stored responses for tables.
enum MachineLab {
    static let now = HTTPDate(seconds: 1_000_000)
    static let use = CacheUse(
        policy: CachePolicy(kind: .shared, usesHeuristic: true), storedBodyBytes: 1000, name: "test")
    /// The same where all who ask are one.
    static let oneAsker: CacheUse = {
        var use = CacheUse(
            policy: CachePolicy(kind: .private, usesHeuristic: true), storedBodyBytes: 1000, name: "test")
        use.sharesOutcomes = true
        return use
    }()
    static let scope = ResourceScope(origin: "http://origin") { path, _ in try? TileKey("site:" + path) }

    static func request(
        _ method: HTTPRequest.Method = .get, _ fields: HTTPFields = [:], hasBody: Bool = false
    ) throws -> CacheRequest {
        CacheRequest(method: method, fields: fields, target: "/a", key: try TileKey("site:/a"), hasBody: hasBody)
    }

    /// What is stored: received so many seconds ago, with this `Cache-Control` and the tag `"1"`.
    static func stored(_ cacheControl: String, ago: Int64 = 100) throws -> Candidate {
        let then = now.adding(seconds: -Int(ago))
        let fields: HTTPFields = [.cacheControl: cacheControl, .eTag: "\"1\"", .date: then.description]
        let response = HTTPResponse(status: .ok, headerFields: fields)
        let metadata = use.record(
            response, to: try request().httpRequest, requestedAt: then, receivedAt: then
        ).intent.metadata
        return Candidate(key: try TileKey("site:/a"), metadata, .memory(Data("whole".utf8)), nil)
    }

    static func answer(_ status: Int, _ fields: HTTPFields = [:]) -> HTTPResponse {
        var fields = fields
        fields[.date] = now.description
        return HTTPResponse(status: .init(code: status), headerFields: fields)
    }
}
