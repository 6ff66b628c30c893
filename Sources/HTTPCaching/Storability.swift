package import HTTPTypes

/// Whether a response may be stored, and why.
///
/// https://www.rfc-editor.org/rfc/rfc9111.html#section-3
package enum Storability: Hashable, Sendable {
    /// It may be stored.
    case store(Ground)
    /// It must not be, or it would be of no use.
    case doNotStore(Obstacle)

    /// What permits storing.
    package enum Ground: Hashable, Sendable {
        /// It has a lifetime of its own: `s-maxage` (shared), `max-age`, `Expires`.
        case explicitLifetime
        /// It is `public`, or `private` in a private cache.
        case explicitPermission
        /// Its status is cacheable by default (RFC 9110 §15.1); without a lifetime it is revalidated before use.
        case status
        /// The policy's owner overrides the origin.
        case owner
    }

    /// What forbids storing.
    package enum Obstacle: Hashable, Sendable {
        /// The method is not GET.
        case method
        /// More than 4096 fields: nobody means that.
        case fields
        /// An interim status, or none that HTTP has.
        case notFinal
        /// 206: parts are not combined here (§3.3).
        case partialContent
        /// 304: it updates what is stored and is not itself a response to keep (§4.3.4).
        case notModified
        /// 412, 416, 428, 429, 431, 511: it judges the one request, by fields that no key knows, and not the resource
        /// (RFC 9110 §13, §14.2; RFC 6585 §3 to §6 forbid it).
        case oneRequest
        /// `must-understand` on a status whose caching rules are not known here (§5.2.2.3).
        case notUnderstood
        /// The request's `no-store` (§5.2.1.5).
        case requestNoStore
        /// The response's `no-store` (§5.2.2.5).
        case noStore
        /// `private` in a shared cache (§5.2.2.7).
        case `private`
        /// `Authorization` in a shared cache, without `public`, `must-revalidate` or `s-maxage` (§3.5).
        case authorization
        /// `Vary: *`, or one that cannot be read: no request could ever be served from it (§4.1).
        case varyAny
        /// Neither a lifetime, nor a permission, nor a status that needs none (§3).
        case noPermission
    }

    /// Whether it may be stored.
    package var isStorable: Bool {
        if case .store = self { true } else { false }
    }
}

extension CachePolicy {
    /// Decides whether a response may be stored under the request that it answers.
    ///
    /// Only responses to GET are ever stored. The request is the one sent to the origin; fields that the cache's owner
    /// adds on its own account, such as an API key in `Authorization`, do not belong in it: §3.5 protects one user from
    /// another. That the body was complete is for the caller to see to.
    @inlinable
    package func storability(of response: HTTPResponse, to request: HTTPRequest) -> Storability {
        storability(of: response, to: request, directives(of: response.headerFields))
    }

    /// The same, where the directives have been read already.
    package func storability(
        of response: HTTPResponse, to request: HTTPRequest, _ directives: Directives
    ) -> Storability {
        storability(
            of: response, method: request.method, authorized: request.headerFields.contains(.authorization),
            asking: RequestCacheControl(request.headerFields), directives)
    }

    /// The same, from what has been read of the request already.
    package func storability(
        of response: HTTPResponse, method: HTTPRequest.Method, authorized: Bool, asking: RequestCacheControl,
        _ directives: Directives
    ) -> Storability {
        let status = response.status.code
        guard method == .get else { return .doNotStore(.method) }
        guard (200...599).contains(status) else { return .doNotStore(.notFinal) }
        if status == 206 { return .doNotStore(.partialContent) }
        if status == 304 { return .doNotStore(.notModified) }
        if aboutOneRequest.contains(status) { return .doNotStore(.oneRequest) }
        guard response.headerFields.count <= 4096 else { return .doNotStore(.fields) }
        if asking.noStore { return .doNotStore(.requestNoStore) }

        let fields = response.headerFields
        let control = directives.cacheControl
        let overrides = overrides(status: status)
        if control.mustUnderstand, !understood.contains(status), !overrides { return .doNotStore(.notUnderstood) }
        // must-understand on a status that is understood takes no-store's place (§5.2.2.3).
        if control.noStore, !control.mustUnderstand, !overrides { return .doNotStore(.noStore) }
        if kind == .shared {
            if isPrivate(control), !overrides { return .doNotStore(.private) }
            let permits =
                control.public || control.mustRevalidate
                || (control.sharedMaxAge != nil && !control.invalidSharedMaxAge)
            if authorized, !permits { return .doNotStore(.authorization) }
        }
        if case .any = Vary(fields) { return .doNotStore(.varyAny) }

        if kind == .shared, control.sharedMaxAge != nil { return .store(.explicitLifetime) }
        if control.maxAge != nil { return .store(.explicitLifetime) }
        if directives.targetedField == nil, fields.contains(.expires) { return .store(.explicitLifetime) }
        if control.public || (kind == .private && control.private != .none) { return .store(.explicitPermission) }
        if heuristicallyCacheable.contains(status) { return .store(.status) }
        if overrides { return .store(.owner) }
        return .doNotStore(.noPermission)
    }

    /// Whether a shared cache must leave the response alone because of `private`.
    private func isPrivate(_ control: CacheControl) -> Bool {
        switch control.private {
        case .none: false
        case .response: true
        // Without these fields the rest could not be served as what it is.
        case .fields(let names): names.contains(where: isIndispensable)
        }
    }
}

/// The statuses that say something about a request and nothing about what it asked for.
private let aboutOneRequest: Set<Int> = [412, 416, 428, 429, 431, 511]

/// The statuses whose meaning for a cache is implemented here: they are served as they were stored.
private let understood: Set<Int> = [
    200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 406, 409, 410, 411, 413, 414, 415, 417, 421,
    422, 426, 451, 500, 501, 502, 503, 504, 505,
]
