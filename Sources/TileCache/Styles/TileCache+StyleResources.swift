import CacheEngine
import HTTPCaching
import HTTPTypes
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Makes the keys of resources of their URLs, as a request for them does.
struct ResourceKeyMaker: Sendable {
    private let keys: ResourceKeys

    init(store: TileStore) { keys = ResourceKeys(store: store, name: .resources) }

    func key(of url: URL) -> TileKey? { resource(url)?.request.key }

    func resource(_ url: URL, userAgent: String = "") -> Resource? {
        guard let request = HTTPRequest(getting: url) else { return nil }
        // What is refused has no key.
        return try? Resource(
            request, keys, userAgent: userAgent, bodyLimit: ResourceParts.bodyLimit, timeout: ResourceParts.timeout)
    }
}

// What a download does with a resource.
extension TileCache {
    /// A resource as a download asks for it; `nil` for a URL that cannot be asked for.
    func resource(_ url: URL, _ options: DownloadOptions, _ meter: RequestMeter) -> Resource? {
        var resource = ResourceKeyMaker(store: store).resource(url, userAgent: userAgent)
        resource?.terms = Resource.Terms(priority: options.priority, networks: options.networks, meter: meter)
        return resource
    }

    /// The body of a resource that needs no request: it is fresh or was stored since a time.
    ///
    /// Read as a whole, so that its file is there.
    func settled(_ resource: Resource, ifFresh: Bool, since: Timestamp?) async throws -> Data? {
        guard let found = try await stored(resource), found.isContent,
            isSettled(found.entry.metadata, ifFresh, since)
        else { return nil }
        if case .memory(let data) = found.body { return data }
        return Data()
    }

    /// Whether a resource of a map needs no request: what is stored is settled, or that there is none.
    func needsNoRequest(_ resource: Resource, ifFresh: Bool, since: Timestamp?) async throws -> Bool {
        guard let found = try await stored(resource) else { return false }
        return (found.isContent || found.isAbsence) && isSettled(found.entry.metadata, ifFresh, since)
    }

    private func isSettled(_ metadata: TileMetadata, _ ifFresh: Bool, _ since: Timestamp?) -> Bool {
        let now = clock.now()
        let isNew = since.map { metadata.storedAt >= $0 && metadata.storedAt <= now } ?? false
        return isNew || ifFresh && !metadata.isStale(at: now) && !metadata.response.noCache
    }

    /// Whether what a map needs is stored, its file included; may block.
    ///
    /// Of a style or a TileJSON that is what was read: another one may name other things.
    func isThere(_ key: TileKey, _ contents: StyleContents?) throws -> Bool {
        guard let contents, let url = contents.urls[key] else { return try store.entryWithBlob(key) != nil }
        guard let resource = ResourceKeyMaker(store: store).resource(url) else { return false }
        let store = self.store
        let found = try Lookup.find(resource.request, resource.keys) { key in
            // Bodies are not read.
            try store.open(key, wholeUpTo: 0).map { .tile($0) } ?? .miss
        }
        guard case .found(let candidate) = found else { return false }
        if let digest = contents.documents[key] { return candidate.isContent && candidate.entry.blob == digest }
        return candidate.isContent || candidate.isAbsence
    }

    /// What is stored for a resource.
    private func stored(_ resource: Resource) async throws -> Candidate? {
        let store = self.store
        do {
            let found = try await pool.run {
                try Lookup.find(resource.request, resource.keys) { key in
                    try store.open(key, wholeUpTo: .max).map { .tile($0) } ?? .miss
                }
            }
            if case .found(let candidate) = found { return candidate }
            return nil
        } catch let error as StoreError where error.code != .closed {
            // What cannot be read is fetched again.
            if let key = resource.request.key { configuration.onEvent?(.notRead(key, error)) }
            return nil
        }
    }

    /// Asks the server for a resource, by a conditional request if there is something to ask about.
    ///
    /// - Returns: An answer by which the resource is settled: with a body, or that there is none.
    /// - Throws: ``FetchFailure``; `CancellationError`; never what is stale instead.
    func update(_ resource: Resource) async throws -> CachedResponse {
        var asked = resource
        // Whatever is stored, the server is asked about it; where nothing is, others may wait for the same answer.
        if try await stored(resource) != nil { asked.asksServer() }
        let before = clock.now()
        var response: CachedResponse
        do {
            guard let answer = try await respond(asked) else {
                throw FetchFailure(error: resource.failure(.noAnswer, "there is no answer"), failure: .unreachable)
            }
            response = answer
        } catch let error as TileCacheError {
            throw FetchFailure(error, of: resource)
        }
        let status = response.head.status.code
        switch status {
        case 200:
            if isPage(response.head.headerFields[.contentType]) {
                throw FetchFailure(error: resource.failure(.badBody, "sent a page instead"), failure: .refused)
            }
            let found = try await stored(resource)
            // An old copy that is left says nothing about this one.
            let isThere = found.map { response.origin != .server || $0.entry.metadata.storedAt >= before } ?? false
            if !isThere, response.notStored == nil {
                response.notStored = resource.failure(
                    .notStored,
                    "forbids storing it (no-store, or nothing to ask about it by), so that it cannot be kept")
            }
        case 204, 404, 410:
            if try await stored(resource)?.isContent ?? true {
                response.notStored = resource.failure(.notStored, "says that it does not exist, for now alone")
            }
        default:
            throw FetchFailure(response, of: resource, now: HTTPDate(clock.now()))
        }
        return response
    }
}

extension Candidate {
    /// Whether it is what a style can use: no error, no redirect, and no page that stands in for it.
    fileprivate var isContent: Bool {
        entry.metadata.response.status == 200 && !isPage(entry.metadata.response.mediaType)
    }

    /// Whether it says that there is nothing.
    fileprivate var isAbsence: Bool { [204, 404, 410].contains(entry.metadata.response.status) }
}

/// Whether an answer is a page for people, as the gates of some networks give them: nothing that a style names is one.
private func isPage(_ mediaType: String?) -> Bool {
    mediaType?.lowercased().hasPrefix("text/html") ?? false
}

extension Resource {
    fileprivate func failure(
        _ code: TileCacheError.Code, _ words: String, status: Int? = nil, retryAfter: Duration? = nil
    ) -> TileCacheError {
        let name = request.key.map { "\($0): " } ?? ""
        return TileCacheError(
            code, "\(name)\(origin) \(words)", key: request.key, status: status, retryAfter: retryAfter)
    }
}

extension FetchFailure {
    /// A request for a resource that was not answered.
    fileprivate init(_ error: TileCacheError, of resource: Resource) {
        let meaning = (error.cause as? TransportError)?.meaning
        self.init(
            error: error, failure: .unreachable, mayPass: meaning?.mayPass ?? (error.code == .waiting),
            retryAfter: nil)
    }

    /// An answer that is of no use.
    fileprivate init(_ response: CachedResponse, of resource: Resource, now: HTTPDate) {
        let status = response.head.status.code
        if (300..<400).contains(status) {
            let words = "sent the request elsewhere: name the last URL in the style, so that it can be kept under that"
            self.init(error: resource.failure(.badRedirect, words), failure: .refused)
            return
        }
        let pause = [429, 503].contains(status) ? CacheEngine.retryAfter(response.head.headerFields, now: now) : nil
        self.init(
            error: resource.failure(.badStatus, "answered with status \(status)", status: status, retryAfter: pause),
            failure: .status(status), mayPass: status == 429 || (500...504).contains(status) && status != 501,
            retryAfter: pause)
    }
}
