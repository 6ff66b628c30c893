package import HTTPTypes

/// For whom a cache stores: one user, or many.
package enum CacheKind: Hashable, Sendable {
    /// One user's cache, such as an app's: it may keep what is `private`.
    case `private`
    /// A cache for many, such as a proxy: it obeys `s-maxage`, `proxy-revalidate`, `private` and targeted fields.
    case shared
}

/// By which rules a cache stores and reuses: whose it is, and what its owner decides where HTTP leaves a choice.
///
/// A value: make one when the cache starts. The rules themselves are methods, one file each: ``storability(of:to:)``,
/// ``freshness(of:requestedAt:receivedAt:)``, ``fieldsToStore(_:)``, ``selection(from:for:)``,
/// ``freshen(_:with:to:requestedAt:receivedAt:)``. Reuse itself is ``StoredFreshness/decision(asking:at:)``.
package struct CachePolicy: Hashable, Sendable {
    /// Whose cache it is.
    package var kind: CacheKind
    /// The targeted fields that the cache obeys, the most specific first (RFC 9213 §2.2).
    ///
    /// The first of them that is valid and not empty replaces `Cache-Control` and `Expires`.
    package var targetedFields: [HTTPField.Name]
    /// Whether a response without a lifetime gets one from its `Last-Modified` (RFC 9111 §4.2.2).
    package var usesHeuristic: Bool
    /// The longest lifetime that the heuristic gives, in seconds.
    package var heuristicLimit: Int
    /// The lifetime in seconds, counted from its receipt, of a 200 that says nothing about caching.
    ///
    /// That is one without `Cache-Control`, targeted field, `Expires` or `Pragma`; validators do not count. `nil`: none.
    package var defaultLifetime: Int?
    /// The least lifetime in seconds of a 200, counted from its receipt; `nil`: none.
    ///
    /// It does not override `no-store`, `no-cache`, `must-revalidate` or, in a shared cache, `private`, unless
    /// ``overridesOrigin`` is set.
    package var minimumLifetime: Int?
    /// Whether ``minimumLifetime`` wins even against what forbids storing or reuse.
    ///
    /// It is then the owner who breaks RFC 9111, and only for a 200: a request's own `no-store` still holds.
    package var overridesOrigin: Bool

    /// Makes a policy; what is left out follows RFC 9111 and adds nothing.
    ///
    /// - Parameter targetedFields: `nil` for the usual ones: `CDN-Cache-Control` in a shared cache, none in a private.
    package init(
        kind: CacheKind, targetedFields: [HTTPField.Name]? = nil, usesHeuristic: Bool = false,
        heuristicLimit: Int = 86400, defaultLifetime: Int? = nil, minimumLifetime: Int? = nil,
        overridesOrigin: Bool = false
    ) {
        self.kind = kind
        self.targetedFields = targetedFields ?? (kind == .shared ? [.cdnCacheControl] : [])
        self.usesHeuristic = usesHeuristic
        self.heuristicLimit = heuristicLimit
        self.defaultLifetime = defaultLifetime
        self.minimumLifetime = minimumLifetime
        self.overridesOrigin = overridesOrigin
    }

    /// The rules of a proxy: shared, `CDN-Cache-Control` obeyed, no lifetime invented.
    package static let shared = CachePolicy(kind: .shared)
    /// The rules of an app: private, no lifetime invented.
    package static let `private` = CachePolicy(kind: .private)

    /// The field that decides on a response, and what it says.
    package struct Directives: Hashable, Sendable {
        /// The targeted field that was obeyed; `nil`: `Cache-Control`, or no field.
        package var targetedField: HTTPField.Name?
        /// Whether there was any field to obey.
        package var isPresent: Bool
        /// What it says; nothing if there is none.
        package var cacheControl: CacheControl
    }

    /// Finds the field that decides: the first valid targeted one, else `Cache-Control` (RFC 9213 §2.2).
    package func directives(of fields: HTTPFields) -> Directives {
        for name in targetedFields {
            if let found = CacheControl(targeted: name, in: fields) {
                return Directives(targetedField: name, isPresent: true, cacheControl: found)
            }
        }
        let found = CacheControl(fields)
        return Directives(isPresent: found != nil, cacheControl: found ?? CacheControl())
    }

    /// Whether the owner's minimum lifetime wins over what forbids storing or reuse.
    func overrides(status: Int) -> Bool { overridesOrigin && status == 200 && (minimumLifetime ?? 0) > 0 }
}
