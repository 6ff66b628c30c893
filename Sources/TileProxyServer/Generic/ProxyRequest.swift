import HTTPCaching
import HTTPListener
import HTTPTypes
import HTTPWire
import NIOCore
import OriginClient
import TileStore

/// A client's request as the cache sees it: read once, then only looked at.
struct ProxyRequest: Sendable {
    /// The method, with all its spelling.
    var method: HTTPRequest.Method
    /// The client's fields that may go on to the origin.
    ///
    /// Not those of its connection, nor those that are no client's to set. What is not sent cannot select a variant either.
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
        fields = all.withoutConnectionFields.forwardable
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

    /// The fields that go on to the origin.
    static func forwarded(_ fields: HTTPFields, via: Via) -> HTTPFields {
        var kept = fields
        via.add(to: &kept)
        return kept
    }
}

extension HTTPFields {
    /// Without the fields that the proxy writes or answers itself, and without those of trusted fronts.
    fileprivate var forwardable: HTTPFields {
        var kept = HTTPFields()
        kept.reserveCapacity(count)
        for field in self where !isOwn(field.name) && !field.name.isForTrustedFronts { kept.append(field) }
        return kept
    }

    private func isOwn(_ name: HTTPField.Name) -> Bool {
        switch name.canonicalName {
        case "host", "content-length", "expect", "http2-settings": true
        default: false
        }
    }
}
