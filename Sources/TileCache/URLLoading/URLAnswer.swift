import CacheEngine
import Foundation
import HTTPCaching
import HTTPTypes
import TileStore

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// What URLSession is told of a request.
enum URLAnswer {
    case response(HTTPURLResponse, Data)
    case failure(URLError)

    /// Answers a request from the cache that it belongs to.
    init(_ request: URLRequest) async {
        do {
            switch TileCacheURLProtocol.route(request) {
            case .tile(let cache, let source, let key):
                let mode = LoadMode(request.cachePolicy)
                guard let tile = try await cache.tile(source, key, mode: mode) else {
                    self = .failure(URLError(.resourceUnavailable))
                    return
                }
                self = try Self.of(tile, for: request, at: cache.clock.now())
            case .resource(let cache, let asked):
                let timeout = Duration.seconds(min(max(request.timeoutInterval, 1), 1_000_000))
                guard let response = try await cache.response(for: asked, timeout: timeout) else {
                    self = .failure(URLError(.resourceUnavailable))
                    return
                }
                self = Self.of(response, for: request)
            // It was closed since the request began.
            case nil: self = .failure(URLError(.cancelled))
            }
        } catch { self = Self.of(error, for: request) }
    }

    /// A tile, with what clients need to keep it no longer than the cache would.
    private static func of(_ tile: CachedTile, for request: URLRequest, at now: Timestamp) throws -> URLAnswer {
        var fields = HTTPFields()
        let body = tile.isAbsent ? Data() : try tile.decodedData() ?? Data()
        fields[.contentType] = tile.isAbsent ? nil : tile.mediaType
        fields[.eTag] = tile.etag
        fields[.lastModified] = tile.lastModified.map { HTTPDate($0).description }
        fields[.cacheControl] = "max-age=\(max(0, tile.freshUntil.seconds - now.seconds))"
        let status = tile.isAbsent ? tile.status : isKnown(tile, to: request) ? 304 : 200
        return response(status, fields, status == 200 ? body : Data(), request)
    }

    /// Whether the client has it already.
    private static func isKnown(_ tile: CachedTile, to request: URLRequest) -> Bool {
        var asked = HTTPFields()
        asked[.ifNoneMatch] = request.value(forHTTPHeaderField: "If-None-Match")
        guard let tag = tile.etag.flatMap({ EntityTag($0) }) else { return false }
        return EntityTagList(.ifNoneMatch, in: asked)?.matchesWeakly(tag) ?? false
    }

    private static func of(_ answer: CachedResponse, for request: URLRequest) -> URLAnswer {
        response(answer.head.status.code, answer.head.headerFields, answer.body, request)
    }

    private static func of(_ error: any Error, for request: URLRequest) -> URLAnswer {
        guard let error = error as? TileCacheError else {
            return .failure(URLError(error is CancellationError ? .cancelled : .cannotOpenFile))
        }
        // What the server said is for the client to judge: it may try again later, or ask for a new token.
        if error.code == .badStatus, let status = error.status {
            return response(status, HTTPFields(), Data(), request)
        }
        if let cause = error.cause as? TransportError { return .failure(URLError(cause.code)) }
        switch error.code {
        case .waiting, .noAnswer: return .failure(URLError(.cannotConnectToHost))
        case .badBody: return .failure(URLError(.cannotDecodeContentData))
        case .badRedirect: return .failure(URLError(.redirectToNonExistentLocation))
        case .cancelled, .closed: return .failure(URLError(.cancelled))
        case .outOfBounds: return response(404, HTTPFields(), Data(), request)
        default: return .failure(URLError(.badServerResponse))
        }
    }

    private static func response(
        _ status: Int, _ fields: HTTPFields, _ body: Data, _ request: URLRequest
    ) -> URLAnswer {
        var texts: [String: String] = [:]
        for field in fields {
            texts[field.name.rawName] = texts[field.name.rawName].map { $0 + ", " + field.value } ?? field.value
        }
        guard let url = request.url,
            let response = HTTPURLResponse(url: url, statusCode: status, httpVersion: "HTTP/1.1", headerFields: texts)
        else { return .failure(URLError(.badServerResponse)) }
        return .response(response, request.httpMethod == "HEAD" ? Data() : body)
    }
}

extension LoadMode {
    /// What URLSession's policies mean for a tile.
    fileprivate init(_ policy: URLRequest.CachePolicy) {
        switch policy {
        case .returnCacheDataDontLoad: self = .cacheOnly
        case .returnCacheDataElseLoad: self = .cacheThenServer
        default: self = .standard
        }
    }
}

extension URLError {
    fileprivate init(_ code: TransportError.Code) {
        switch code {
        case .timeout: self.init(.timedOut)
        case .nameNotFound: self.init(.cannotFindHost)
        case .tls: self.init(.secureConnectionFailed)
        case .truncated: self.init(.networkConnectionLost)
        case .cancelled: self.init(.cancelled)
        case .connection: self.init(.cannotConnectToHost)
        default: self.init(.badServerResponse)
        }
    }
}

extension HTTPRequest {
    /// A request that a cache can answer: a GET or HEAD of an absolute URL by http or https.
    init?(cached request: URLRequest) {
        let method: HTTPRequest.Method
        switch request.httpMethod ?? "GET" {
        case "GET": method = .get
        case "HEAD": method = .head
        default: return nil
        }
        guard let url = request.url, let reference = URIReference(url.absoluteString),
            let scheme = reference.scheme?.lowercased(), scheme == "http" || scheme == "https",
            let authority = reference.authority, !authority.isEmpty
        else { return nil }
        self.init(method: method, scheme: scheme, authority: authority, path: reference.requestTarget)
        for (name, value) in request.allHTTPHeaderFields ?? [:] {
            // Bodies come plain: clients of a URL protocol get what it gives them, undecoded.
            guard let name = HTTPField.Name(name), name != .acceptEncoding else { continue }
            headerFields[name] = value
        }
        switch request.cachePolicy {
        case .returnCacheDataDontLoad: headerFields[.cacheControl] = "only-if-cached, max-stale"
        case .returnCacheDataElseLoad: headerFields[.cacheControl] = "max-stale"
        default: break
        }
    }
}
