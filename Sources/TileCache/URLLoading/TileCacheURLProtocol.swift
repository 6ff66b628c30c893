import CacheEngine
import HTTPTypes
import TileStore

#if canImport(FoundationNetworking)
import Foundation
public import FoundationNetworking
#else
public import Foundation
#endif

/// Puts a cache under any client that loads by URLSession: MapLibre Native, a player of archives, your own code.
///
/// ```swift
/// let configuration = URLSessionConfiguration.default
/// configuration.use(cache, for: [source])
/// MLNNetworkConfiguration.sharedManager.sessionConfiguration = configuration
/// ```
///
/// A GET or HEAD of a URL that a source's template gives is answered with that tile, as ``TileCache/tile(_:z:x:y:scale:mode:priority:)``
/// has it: what a region has downloaded is there without a network. Every other GET or HEAD by http or https (a style, glyphs,
/// sprites, a TileJSON) is answered as ``TileCache/response(for:source:bodyLimit:timeout:)`` does, by the rules of a private cache. Other
/// methods go to the network as if there were no cache, and so does everything once the cache is closed.
///
/// What the request's cache policy asks for: `returnCacheDataDontLoad` asks no server; `returnCacheDataElseLoad` takes what is
/// stale. All others mean the cache's own rules: clients that keep a cache of their own ask for `reloadIgnoringLocalCacheData`,
/// which is about theirs. A header field `Cache-Control` is obeyed for what is no tile.
///
/// Tiles and resources are held whole in memory while they are handed over; one of more than 32 MiB is an error. Bodies come without
/// content coding. A request has the time that its `timeoutInterval` gives; others who wait for the same go on waiting.
///
/// What a session adds to its requests by itself (`httpAdditionalHeaders`, cookies, credentials) does not reach this class on Linux, and is
/// not sent. Nor can it answer a download task there, which fails with `unsupportedURL`, and `WWW-Authenticate` is left out of a 401.
public final class TileCacheURLProtocol: URLProtocol {
    private let answering = Answering()

    /// Which caches requests are answered from, the one that was named last first.
    private static let caches = Locked<[URLCaches]>([])

    /// Has requests answered from a cache.
    ///
    /// A cache that is closed or gone answers none. For a session that is made with a configuration, use
    /// `URLSessionConfiguration.use(_:for:)`; this alone is for `URLProtocol.registerClass`, which puts it under
    /// `URLSession.shared`. On Linux that has to be registered before the first URLSession is made, and so before a cache with
    /// its default transport is opened; else Foundation passes it over.
    /// - Parameters:
    ///   - cache: The cache. It is not kept alive.
    ///   - sources: Whose URLs are tiles. Sources that were named for this cache before are forgotten.
    public static func use(_ cache: TileCache, for sources: [TileSource]) {
        caches.withLock { caches in
            caches.removeAll { $0.cache == nil || $0.cache === cache }
            caches.insert(URLCaches(cache: cache, sources: sources), at: 0)
        }
    }

    /// What answers a request, if a cache does.
    static func route(_ request: URLRequest) -> URLRoute? {
        let caches = caches.withLock { $0.filter { $0.cache.map { !$0.isClosed } ?? false } }
        guard !caches.isEmpty, let asked = HTTPRequest(cached: request) else { return nil }
        for entry in caches {
            guard let cache = entry.cache else { continue }
            if let (source, key) = entry.tile(asked) { return .tile(cache, source, key) }
        }
        return caches.first?.cache.map { .resource($0, asked) }
    }

    /// The tile of a cache that a request is for.
    static func tile(_ request: HTTPRequest, of cache: TileCache) -> (TileSource, TileKey)? {
        caches.withLock { $0.first { $0.cache === cache } }?.tile(request)
    }

    /// Whether a cache answers it.
    public override class func canInit(with request: URLRequest) -> Bool { route(request) != nil }

    /// The request as it is.
    public override class func canonicalRequest(for request: URLRequest) -> URLRequest { request }

    /// Begins to answer; URLSession calls it.
    public override func startLoading() {
        let answering = answering
        let client = URLClient(self)
        #if !canImport(Darwin)
        // There is no way to hand a file over there, and URLSession would trap for the want of one.
        if task is URLSessionDownloadTask {
            answering.begin(Task { answering.end { client.tell(.failure(URLError(.unsupportedURL))) } })
            return
        }
        #endif
        let request = request
        answering.begin(
            Task {
                let answer = await URLAnswer(request)
                client.onItsThread { answering.end { client.tell(answer) } }
            })
    }

    /// Gives the request up; URLSession calls it.
    public override func stopLoading() { answering.stop() }
}

extension URLSessionConfiguration {
    /// Has sessions that are made with this answer from a cache; see ``TileCacheURLProtocol``.
    ///
    /// The sessions get no `URLCache`, which would keep everything a second time. What is said of caches and sources is for all
    /// such sessions of the process: a tile's URL leads to the cache that has its source, every other one to the cache that was
    /// named last.
    /// - Parameters:
    ///   - cache: The cache. It is not kept alive.
    ///   - sources: Whose URLs are tiles.
    public func use(_ cache: TileCache, for sources: [TileSource] = []) {
        TileCacheURLProtocol.use(cache, for: sources)
        let others = (protocolClasses ?? []).filter { $0 != TileCacheURLProtocol.self }
        protocolClasses = [TileCacheURLProtocol.self] + others
        urlCache = nil
    }
}

/// A cache and whose tiles it answers with.
private struct URLCaches: Sendable {
    weak var cache: TileCache?
    var sources: [TileSource]

    /// The tile that a URL is of.
    func tile(_ request: HTTPRequest) -> (TileSource, TileKey)? {
        guard let scheme = request.scheme.flatMap(TileURL.Scheme.init(rawValue:)), let authority = request.authority,
            let path = request.path
        else { return nil }
        for source in sources where source.local == nil && source.remote == nil {
            if let tile = source.template.tile(scheme, authority: authority, path: path, format: source.format),
                source.servedZooms.contains(tile.z)
            {
                return (source, TileKey(source: source.name, tile: tile))
            }
        }
        return nil
    }
}

/// What answers a request.
enum URLRoute {
    case tile(TileCache, TileSource, TileKey)
    case resource(TileCache, HTTPRequest)
}

/// A request that is being answered: URLSession is told once, and never after it has given the request up.
///
/// Unchecked: `lock` guards both variables. It is held while URLSession is told, so that nobody gives up meanwhile: URLSession on Linux
/// would end the request a second time. It may be taken again by the thread that has it, as URLSession may give up in a call to it.
private final class Answering: @unchecked Sendable {
    private let lock = NSRecursiveLock()
    private var work: Task<Void, Never>?
    private var isOver = false

    func begin(_ work: Task<Void, Never>) {
        let isOver = lock.withLock {
            self.work = work
            return self.isOver
        }
        if isOver { work.cancel() }
    }

    func end(_ tell: () -> Void) {
        lock.withLock {
            guard !isOver else { return }
            isOver = true
            tell()
        }
    }

    func stop() {
        let work = lock.withLock {
            isOver = true
            return self.work
        }
        work?.cancel()
    }
}

/// Calls URLSession as it wants to be called.
///
/// Unchecked: nothing changes after it was made, and the protocol's client is only called where it may be.
private final class URLClient: @unchecked Sendable {
    private let owner: TileCacheURLProtocol
    #if canImport(Darwin)
    // Apple's documentation asks for the thread that began.
    private let loop = RunLoop.current
    #endif

    init(_ owner: TileCacheURLProtocol) { self.owner = owner }

    func onItsThread(_ work: @escaping @Sendable () -> Void) {
        #if canImport(Darwin)
        loop.perform(work)
        CFRunLoopWakeUp(loop.getCFRunLoop())
        #else
        work()
        #endif
    }

    func tell(_ answer: URLAnswer) {
        switch answer {
        case .response(let response, let body):
            owner.client?.urlProtocol(owner, didReceive: response, cacheStoragePolicy: .notAllowed)
            if !body.isEmpty { owner.client?.urlProtocol(owner, didLoad: body) }
            owner.client?.urlProtocolDidFinishLoading(owner)
        case .failure(let error): owner.client?.urlProtocol(owner, didFailWithError: error)
        }
    }
}
