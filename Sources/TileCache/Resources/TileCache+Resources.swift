import CacheEngine
import HTTPCaching
public import HTTPTypes
public import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TileCache {
    /// The response to a request for any resource: a style, glyphs, sprites, a TileJSON.
    ///
    /// Stored, reused and revalidated by the rules of a private cache (RFC 9111), `Vary`, ranges and conditions included.
    /// What the request asks of caches is heeded: with `Cache-Control: only-if-cached` nobody is asked, with `max-stale`
    /// what is stale will do, with `no-cache` the server is asked first. A stale response stands in for a server that
    /// gives no answer, unless it says itself that it must not (`must-revalidate`).
    ///
    /// However many ask for one resource at once, one request is sent, where its answer is for all of them: one that may be
    /// stored and reused. It is theirs too if it may be stored but not used again without asking (`no-cache`), where their
    /// requests are equal in all fields; and if there is no answer, that is the answer to all of them. A host that has failed,
    /// or asks for it by `Retry-After`, is left alone as with tiles. Redirections are followed, at most five, never from
    /// `https` to `http`; to another host go only fields that hold no secret. A caller whose task is cancelled leaves; the last
    /// one to leave cancels the request.
    ///
    /// Each caller holds the whole body; of what is stored each reads a copy of its own. So many callers at once for one large
    /// resource take so many times its size of memory.
    ///
    /// Responses share the tiles' budget and eviction. A request's query is never written to disk, nor are its fields; a
    /// response's fields are, cookies included that its server allows to be stored.
    /// - Parameters:
    ///   - request: A GET or HEAD with scheme, authority and path. Without an `Accept-Encoding` the body comes plain.
    ///   - source: The name that it is stored under, beside the tiles of a source of that name; `nil` for `resources`.
    ///   - bodyLimit: So many bytes of body are read from a server at most. What is larger than 64 MiB is not stored.
    ///   - timeout: How long each exchange with a server may take; one that somebody else has begun may take the time which that
    ///     one gave.
    /// - Returns: The response, whatever its status; `nil` if it was wanted only if it is stored, and it is not.
    /// - Throws: ``TileCacheError``: ``TileCacheError/Code/invalidRequest``, ``TileCacheError/Code/noAnswer``,
    ///   ``TileCacheError/Code/waiting``, ``TileCacheError/Code/badRedirect``, ``TileCacheError/Code/closed``; `CancellationError`.
    public func response(
        for request: HTTPRequest, source: SourceName? = nil, bodyLimit: Int = 32 << 20,
        timeout: Duration = .seconds(30)
    ) async throws -> CachedResponse? {
        let keys = ResourceKeys(store: store, name: source ?? .resources)
        var request = request
        var redirects = 0
        var firstOrigin: String?
        while true {
            try Task.checkCancellation()
            var resource = try Resource(request, keys, userAgent: userAgent, bodyLimit: bodyLimit, timeout: timeout)
            resource.isRedirected = firstOrigin.map { $0 != resource.origin } ?? false
            firstOrigin = firstOrigin ?? resource.origin
            guard let response = try await respond(resource) else { return nil }
            guard Redirect.isOne(response.head.status.code), response.head.headerFields[.location] != nil else {
                return response
            }
            guard redirects < Redirect.most else {
                throw TileCacheError(.badRedirect, "\(resource.origin): more than \(Redirect.most) redirections")
            }
            redirects += 1
            switch Redirect.next(response.head, to: resource.head, harmless: .harmless) {
            case .follow(let next): request = next
            case .refuse(let why): throw TileCacheError(.badRedirect, "\(resource.origin) sent \(why)")
            }
        }
    }

    /// The response to a GET of a URL; otherwise as ``response(for:source:bodyLimit:timeout:)``.
    public func response(
        for url: URL, source: SourceName? = nil, bodyLimit: Int = 32 << 20, timeout: Duration = .seconds(30)
    ) async throws -> CachedResponse? {
        guard let request = HTTPRequest(getting: url) else {
            throw TileCacheError(.invalidRequest, "a request for a resource must have an absolute URL")
        }
        return try await response(for: request, source: source, bodyLimit: bodyLimit, timeout: timeout)
    }

    /// The response to a request as it is: a redirection is one, too.
    func respond(_ resource: Resource) async throws -> CachedResponse? {
        let inbox = Inbox<ResourceExchange.Event>()
        guard let number = resources.drivers.began({ inbox.close() }) else {
            throw TileCacheError(.closed, "\(resource.origin): the cache is closed")
        }
        defer { resources.drivers.isOver(number) }
        return try await ResourceExchange(self, resource, inbox).run()
    }
}
