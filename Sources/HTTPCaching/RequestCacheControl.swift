package import HTTPTypes

/// What a request's `Cache-Control` asks of a cache.
///
/// A small value without references: making and copying one allocates nothing when the request has no such field.
///
/// They are preferences (RFC 9111 §5.2.1): a cache may disregard them, and one that stands in for an origin does so by
/// passing ``none``. Unlike a response's, an invalid number is passed over, except for `max-age`, where it is 0: who
/// sends it wanted something newer. https://www.rfc-editor.org/rfc/rfc9111.html#section-5.2.1
package struct RequestCacheControl: Hashable, Sendable {
    /// `max-age`: an older response will not do (§5.2.1.1).
    package var maxAge: Int?
    /// `max-stale`: a response this many seconds past its expiry will do; `Int.max` for any (§5.2.1.2).
    package var maxStale: Int?
    /// `min-fresh`: a response that expires sooner will not do (§5.2.1.3).
    package var minFresh: Int?
    /// `stale-if-error`: a response this many seconds past its expiry will do if the origin fails (RFC 5861 §4).
    package var staleIfError: Int?
    /// `no-cache`, or `Pragma: no-cache` without a `Cache-Control` (§5.2.1.4, §5.4).
    package var noCache = false
    /// `no-store` (§5.2.1.5).
    package var noStore = false
    /// `no-transform` (§5.2.1.6).
    package var noTransform = false
    /// `only-if-cached` (§5.2.1.7).
    package var onlyIfCached = false

    /// Asks for nothing.
    package static let none = RequestCacheControl()

    /// Asks for nothing.
    package init() {}

    /// Reads all `Cache-Control` lines of a request, or `Pragma` where there is none.
    package init(_ fields: HTTPFields) {
        var seen = false
        for field in fields where field.name == .cacheControl {
            seen = true
            for member in listMembers(Array(field.value.utf8)) { add(CacheDirective(member)) }
        }
        guard !seen else { return }
        for field in fields where field.name == .pragma {
            noCache = noCache || listMembers(Array(field.value.utf8)).contains { $0.equalsIgnoringCase("no-cache") }
        }
    }

    private mutating func add(_ directive: CacheDirective) {
        switch directive.name {
        case "max-age": maxAge = maxAge ?? directive.seconds ?? 0
        case "max-stale": maxStale = maxStale ?? (directive.value == nil ? .max : directive.seconds)
        case "min-fresh": minFresh = minFresh ?? directive.seconds
        case "stale-if-error": staleIfError = staleIfError ?? directive.seconds
        case "no-cache": noCache = true
        case "no-store": noStore = true
        case "no-transform": noTransform = true
        case "only-if-cached": onlyIfCached = true
        default: break
        }
    }
}

extension HTTPField.Name {
    /// `Pragma`, which is obsolete and still sent (RFC 9111 §5.4).
    static let pragma = HTTPField.Name(known: "Pragma")

    /// A name that is a token for certain: one of this module's own literals.
    init(known name: StaticString) {
        // A literal of this module is a token, and a test reads each of them; `Date` is never reached.
        self = HTTPField.Name("\(name)") ?? .date
    }
}
