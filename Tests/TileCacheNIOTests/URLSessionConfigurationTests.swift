import Foundation
import HTTPTypes
import Testing
import TileCache
import TileCacheTesting

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// What of an app's own configuration reaches a server, and what does not.
@Suite(.timeLimit(.minutes(60)))
struct URLSessionConfigurationTests {
    @Test func theAppsFieldsAndCookiesAreSent() async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer() }
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpAdditionalHeaders = ["X-App": "maps", "User-Agent": "app/1"]
        let cookie = try #require(
            HTTPCookie(properties: [
                .name: "login", .value: "a", .domain: "127.0.0.1", .path: "/", .version: "0",
            ]))
        configuration.httpCookieStorage?.setCookie(cookie)
        let transport = URLSessionTransport(configuration: configuration)
        _ = try await transport.get(origin, "/", [.userAgent: "tiles/1"]).get()
        let fields = try #require(origin.requests.first).fields
        #expect(fields[HTTPField.Name("X-App") ?? .server] == "maps")
        #expect(fields[.cookie] == "login=a")
        // The request's own field wins.
        #expect(fields[.userAgent] == "tiles/1")
    }

    /// A condition in every request would make a 304 of tiles that nobody has.
    @Test func fieldsThatTheCacheSetsAreTakenOut() async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer() }
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpAdditionalHeaders = [
            "If-None-Match": "\"a\"", "if-modified-since": "Thu, 01 Jan 2026 00:00:00 GMT", "Range": "bytes=0-1",
            "Accept-Encoding": "br", "Accept-Language": "de",
        ]
        _ = try await URLSessionTransport(configuration: configuration).get(origin, "/").get()
        let fields = try #require(origin.requests.first).fields
        #expect(fields[.ifNoneMatch] == nil && fields[.ifModifiedSince] == nil && fields[.range] == nil)
        #expect(fields[.acceptEncoding] == "identity")
        #expect(fields[.acceptLanguage] == "de")
        // Only the transport's copy was changed.
        #expect(configuration.httpAdditionalHeaders?.count == 5)
        #expect(configuration.urlCache != nil)
    }

    /// The app's own fields, tokens among them, went to whatever host a server named.
    @Test func theAppsFieldsDoNotFollowARedirectToAnotherHost() async throws {
        let other = try await LocalOrigin.start { _ in LocalAnswer(.ok, [.cacheControl: "max-age=60"], text: "a body") }
        let target = "http://localhost:\(other.port)"
        let first = try await LocalOrigin.start { request in
            LocalAnswer(.found, [.location: "\(target)\(request.path)"])
        }
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpAdditionalHeaders = [
            "Authorization": "Bearer secret", "X-Key": "secret", "Accept-Language": "de",
        ]
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("redirect-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let cache = try TileCache(at: folder, transport: URLSessionTransport(configuration: configuration))
        var source = try TileSource("lab", template: "http://127.0.0.1:\(first.port)/{z}/{x}/{y}")
        source.kind = .any
        let tile = try await cache.tile(source, z: 0, x: 0, y: 0)
        #expect(tile?.data == Data("a body".utf8))
        let style = try #require(URL(string: "http://127.0.0.1:\(first.port)/style.json"))
        #expect(try await cache.response(for: style)?.head.status == .ok)
        let secret = HTTPField.Name("X-Key") ?? .server
        #expect(first.requests.count == 2 && other.requests.count == 2)
        for request in first.requests {
            #expect(request.fields[.authorization] == "Bearer secret" && request.fields[secret] == "secret")
        }
        for request in other.requests {
            #expect(request.fields[.authorization] == nil && request.fields[secret] == nil)
            #expect(request.fields[.acceptLanguage] == "de")
        }
        try cache.close()
    }

    @Test func aSecondCacheOfTheAppsAnswersNothing() async throws {
        let origin = try await LocalOrigin.start { _ in
            LocalAnswer(.ok, [.cacheControl: "max-age=3600"], text: "a body")
        }
        let configuration = URLSessionConfiguration.ephemeral
        configuration.urlCache = URLCache(memoryCapacity: 1 << 20, diskCapacity: 0, diskPath: nil)
        configuration.requestCachePolicy = .returnCacheDataElseLoad
        let transport = URLSessionTransport(configuration: configuration)
        for _ in 0..<3 { #expect(await transport.get(origin, "/").text == "a body") }
        #expect(origin.requests.count == 3)
    }

    @Test func theConnectionsAreThoseOfTheConfiguration() async throws {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpMaximumConnectionsPerHost = 3
        #expect(URLSessionTransport(configuration: configuration).requestsPerHost == 3)
        #expect(URLSessionTransport(connectionsPerHost: 5).requestsPerHost == 5)
    }

    #if canImport(FoundationNetworking)
    /// Elsewhere only the system makes such a configuration.
    @Test func aBackgroundConfigurationIsRefusedInWords() async throws {
        let origin = try await LocalOrigin.start { _ in LocalAnswer() }
        let configuration = URLSessionConfiguration.ephemeral
        configuration.identifier = "background"
        let outcome = await URLSessionTransport(configuration: configuration).get(origin, "/")
        #expect(outcome.code == .unsupported)
        #expect(origin.requests.isEmpty)
    }
    #endif
}
