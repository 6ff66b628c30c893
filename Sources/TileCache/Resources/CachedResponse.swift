public import HTTPTypes

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A response as the cache gives it, whatever its status: head, body, and where it came from.
public struct CachedResponse: Sendable {
    /// Where a response came from.
    public enum Origin: Hashable, Sendable {
        /// The cache, fresh.
        case stored
        /// The cache, stale: its server allows it (RFC 5861), or gave no answer.
        case stale
        /// The cache, after its server had confirmed it.
        case revalidated
        /// The server.
        case server
    }

    /// The request that was answered: after redirections, the last one.
    public let request: HTTPRequest
    /// Status and header fields, with the `Age` of what came from the cache.
    public let head: HTTPResponse
    /// The body in the content coding that ``head`` names; empty where there is none.
    public let body: Data
    /// Where it came from.
    public let origin: Origin
    /// Why it could not be stored: a full disk, a body of more than 64 MiB or than the whole capacity, an answer that is older
    /// than what is stored.
    ///
    /// `nil` if it is stored, or must not be. All who waited for one answer get the same.
    public internal(set) var notStored: (any Error)?

    init(_ request: HTTPRequest, _ head: HTTPResponse, _ body: Data, _ origin: Origin) {
        self.request = request
        self.head = head
        self.body = body
        self.origin = origin
    }
}
