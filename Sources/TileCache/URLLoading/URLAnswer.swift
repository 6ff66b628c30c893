import CacheEngine
import ContentCoding
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
        let limit = Duration.seconds(request.boundedTimeout)
        do {
            switch TileCacheURLProtocol.route(request) {
            case .tile(let cache, let source, let key):
                let mode = LoadMode(request.cachePolicy)
                let found = try await withDeadline(limit, cache.clock) { try await cache.tile(source, key, mode: mode) }
                guard let tile = found else {
                    self = .failure(URLError(.resourceUnavailable))
                    return
                }
                self = try Self.of(tile, for: request, at: cache.clock.now())
            case .resource(let cache, let asked):
                let found = try await withDeadline(limit, cache.clock) {
                    try await cache.response(for: asked, timeout: limit)
                }
                guard let response = found else {
                    self = .failure(URLError(.resourceUnavailable))
                    return
                }
                self = Self.of(response, to: asked, for: request)
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

    private static func of(_ answer: CachedResponse, to asked: HTTPRequest, for request: URLRequest) -> URLAnswer {
        var (fields, body) = (answer.head.headerFields, answer.body)
        // Some servers send gzip to those who did not ask for it.
        let codings = ContentCodings.applied(fields[.contentEncoding])
        if codings == ["gzip"] || codings == ["x-gzip"], answer.head.status != .partialContent, Gzip.isMarked(body) {
            guard let plain = Gzip.decode(body, limit: 64 << 20) else {
                return .failure(URLError(.cannotDecodeContentData))
            }
            (fields[.contentEncoding], fields[.contentLength], body) = (nil, nil, plain)
        }
        let isRedirected =
            answer.request.path != asked.path || answer.request.authority != asked.authority?.lowercased()
        return response(
            answer.head.status.code, fields, body, request, isRedirected ? answer.request.url : request.url)
    }

    private static func of(_ error: any Error, for request: URLRequest) -> URLAnswer {
        if error is DeadlineError { return .failure(URLError(.timedOut)) }
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
        _ status: Int, _ fields: HTTPFields, _ body: Data, _ request: URLRequest, _ url: URL? = nil
    ) -> URLAnswer {
        var texts: [String: String] = [:]
        for field in fields {
            #if !canImport(Darwin)
            // URLSession would look for credentials, and never end.
            if field.name == .wwwAuthenticate { continue }
            #endif
            texts[field.name.rawName] = texts[field.name.rawName].map { $0 + ", " + field.value } ?? field.value
        }
        guard let url = url ?? request.url,
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
        case .bodyTooLarge: self.init(.dataLengthExceedsMaximum)
        case .connection: self.init(.cannotConnectToHost)
        default: self.init(.badServerResponse)
        }
    }
}

extension URLRequest {
    /// In seconds.
    fileprivate var boundedTimeout: Double { timeoutInterval > 0 ? min(max(timeoutInterval, 1), 1_000_000) : 60 }
}

extension HTTPRequest {
    /// Its URL, as a client names it.
    fileprivate var url: URL? {
        guard let scheme, let authority else { return nil }
        return URL(string: "\(scheme)://\(authority)\(path ?? "/")")
    }

    /// A request that a cache can answer: a GET or HEAD of an absolute URL by http or https, without a user or password.
    init?(cached request: URLRequest) {
        let method: HTTPRequest.Method
        switch request.httpMethod ?? "GET" {
        case "GET": method = .get
        case "HEAD": method = .head
        default: return nil
        }
        guard let url = request.url, let reference = URIReference(url.absoluteString),
            let scheme = reference.scheme?.lowercased(), scheme == "http" || scheme == "https",
            let authority = reference.authority, !authority.isEmpty, !authority.contains("@")
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
