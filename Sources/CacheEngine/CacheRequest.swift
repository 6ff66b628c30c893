package import HTTPCaching
package import HTTPTypes
package import TileStore

/// A client's request as the cache sees it: read once, then only looked at.
package struct CacheRequest: Sendable {
    /// The method, with all its spelling.
    package var method: HTTPRequest.Method
    /// The client's fields that may go on to the origin.
    ///
    /// Not those of its connection, nor those that are no client's to set. What is not sent cannot select a variant either.
    package var fields: HTTPFields
    /// What the client asks of caches.
    package var asking: RequestCacheControl
    /// The client's conditions and range.
    package var conditions: ClientPreconditions
    /// The target at the origin: path and query.
    package let target: String
    /// The URL's key; `nil` if it has none.
    package let key: TileKey?
    /// Whether it has a body.
    package let hasBody: Bool
    /// Whether the client takes trailers (`TE: trailers`).
    package let takesTrailers: Bool

    /// Reads a request.
    ///
    /// - Parameters:
    ///   - all: All fields as the client sent them.
    ///   - target: Path and query at the origin.
    ///   - key: The URL's key in the store.
    ///   - isOwners: Whether it is of the one whose cache it is, who may set any field.
    package init(
        method: HTTPRequest.Method, fields all: HTTPFields, target: String, key: TileKey?, hasBody: Bool,
        takesTrailers: Bool = false, isOwners: Bool = false
    ) {
        self.method = method
        self.target = target
        self.key = key
        self.hasBody = hasBody
        self.takesTrailers = takesTrailers
        fields = all.withoutConnectionFields.forwardable(isOwners: isOwners)
        asking = RequestCacheControl(all)
        conditions = ClientPreconditions(all)
    }

    /// Whether the cache may answer it at all: a GET or HEAD without a body, for a URL that has a key.
    package var isForCache: Bool { (method == .get || method == .head) && !hasBody && key != nil }

    /// The request without the client's conditions and range.
    package mutating func dropConditions() {
        fields = ConditionalRequest(revalidating: [], for: httpRequest).request.headerFields
        conditions = ClientPreconditions()
    }

    /// The request that refreshes what this one was answered with: a GET that asks nothing of caches.
    package var refreshing: CacheRequest {
        var request = self
        request.method = .get
        request.dropConditions()
        request.asking = .none
        request.fields[.cacheControl] = nil
        return request
    }

    /// What tells one question to an origin from another, for ``OriginHealth``.
    package func question(to origin: String) -> Int {
        var hasher = Hasher()
        hasher.combine(origin)
        hasher.combine(target)
        return hasher.finalize()
    }

    /// As the rules of storing see it.
    package var httpRequest: HTTPRequest {
        HTTPRequest(method: method, scheme: nil, authority: nil, path: target, headerFields: fields)
    }
}

extension HTTPFields {
    /// Without the fields that the cache writes or answers itself, and without those that only trusted fronts may set.
    fileprivate func forwardable(isOwners: Bool) -> HTTPFields {
        var kept = HTTPFields()
        kept.reserveCapacity(count)
        for field in self where !isOwn(field.name) && (isOwners || !field.name.isForTrustedFronts) {
            kept.append(field)
        }
        return kept
    }

    private func isOwn(_ name: HTTPField.Name) -> Bool {
        switch name.canonicalName {
        case "host", "content-length", "expect", "http2-settings": true
        default: false
        }
    }
}
