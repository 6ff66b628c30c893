import HTTPCaching
import HTTPTypes
import NIOCore
import TileStore

/// A client's request as the cache sees it: read once, then only looked at.
struct ProxyRequest: Sendable {
    /// The method, with all its spelling.
    var method: HTTPRequest.Method
    /// The client's fields without those of its connection.
    var fields: HTTPFields
    /// What the client asks of caches.
    var asking: RequestCacheControl
    /// The client's conditions and range.
    var conditions: ClientPreconditions
    /// The target at the origin.
    let target: String
    /// The URL's key; `nil` if it has none.
    let key: TileKey?
    /// How its body goes on to the origin.
    let body: UpstreamRequest.Body

    /// Reads a request below a route.
    init(_ head: RequestHead, rest: String, route: ProxyRoute, keys: ResourceKeys) {
        method = HTTPRequest.Method(rawValue: head.methodText) ?? .get
        let all = head.fields.all
        fields = all.withoutConnectionFields
        if method == .options, let left = head.fields.withValue(of: .maxForwards, \.decimal) ?? nil {
            fields[.maxForwards] = String(max(left, 1) - 1)
        }
        asking = RequestCacheControl(all)
        conditions = ClientPreconditions(all)
        target = route.target(rest: rest, query: head.query)
        key = keys.primary(rest: rest, query: head.query)
        switch head.body {
        case .none: body = .none
        case .length(let length): body = .length(length)
        case .chunked: body = .chunked
        }
    }

    /// Whether the cache may answer it at all: a GET or HEAD without a body, for a URL that has a key.
    var isForCache: Bool { (method == .get || method == .head) && body == .none && key != nil }

    /// The request without the client's conditions and range.
    mutating func dropConditions() {
        fields = ConditionalRequest(revalidating: [], for: httpRequest).request.headerFields
        conditions = ClientPreconditions()
    }

    /// The request that refreshes what this one was answered with: a GET that asks nothing of caches.
    var refreshing: ProxyRequest {
        var request = self
        request.method = .get
        request.dropConditions()
        request.asking = .none
        request.fields[.cacheControl] = nil
        return request
    }

    /// As the rules of storing see it.
    var httpRequest: HTTPRequest {
        HTTPRequest(method: method, scheme: nil, authority: nil, path: target, headerFields: fields)
    }

    /// The fields that go on to the origin in place of some.
    ///
    /// Left out besides the connection's: what names the client's connection or rewrites the request behind the cache's
    /// back. No key and no `Vary` knows these, so an origin that heeded them could be made to poison the cache.
    static func forwarded(_ fields: HTTPFields, via: Via) -> HTTPFields {
        var kept = HTTPFields()
        kept.reserveCapacity(fields.count + 1)
        for field in fields where !isUnkeyed(field.name) { kept.append(field) }
        via.add(to: &kept)
        return kept
    }

    /// Fields by which intermediaries and frameworks override what the request line and `Host` say.
    private static func isUnkeyed(_ name: HTTPField.Name) -> Bool {
        switch name.canonicalName {
        case "host", "content-length", "expect", "forwarded", "x-forwarded-for", "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-port", "x-forwarded-scheme", "x-forwarded-server", "x-forwarded-prefix", "x-forwarded-ssl",
            "x-host", "x-original-url", "x-original-host", "x-rewrite-url", "x-http-host-override",
            "x-http-method-override", "x-http-method", "x-method-override", "http2-settings":
            true
        default: false
        }
    }
}
