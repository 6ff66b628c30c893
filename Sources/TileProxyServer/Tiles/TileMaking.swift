import CacheEngine
import HTTPCaching
import HTTPListener
import Logging
import NIOCore
import TileCache
import TileImaging
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A tile of this machine, or one that is made from another: made off the event loop.
struct TileMaking: Sendable {
    /// What came of it.
    enum Made: Sendable {
        case tile(ServedTile)
        case refused(Refusal, CacheStatus, Answered.CacheResult)
    }

    let tiles: NIOLoopBound<TileLoop>
    let service: TileService
    let source: ServedSource
    /// The version of a set at a server, if it is not to be the latest one.
    let version: String?
    let key: TileKey
    let request: TileRequest

    func run(_ now: HTTPDate) async -> Made {
        guard let tile = key.tile, source.overzooms(tile.z) else { return await local(now) }
        return await overzoomed(now)
    }

    // MARK: Files and archives

    /// How long clients keep a tile that this machine has, before they ask whether it has changed; at least.
    static let localLifetime: Int64 = 60
    /// How long they keep one of a version of a set, which never changes; a year, as is usual.
    static let immutableLifetime: Int64 = 31_536_000
    static let immutable = [ResponseFields.Header(name: "cache-control", value: "immutable")]

    private func local(_ now: HTTPDate) async -> Made {
        do {
            guard let tile = try await service.cache.tile(source.tiles, key, mode: .serverOnly) else {
                return refused(404, "There is no such tile.", .none)
            }
            return local(tile, now)
        } catch { return localFailure(error) }
    }

    private func local(_ tile: CachedTile, _ now: HTTPDate) -> Made {
        let wanted = source.configuration.lifetimes.minimum?.components.seconds ?? 0
        var status = CacheStatus(cache: source.use.name)
        status.forward = .bypass
        status.detail = source.tiles.local == nil ? "a file" : "an archive"
        if source.version != nil {
            let forever = Timestamp(seconds: now.seconds).adding(seconds: Self.immutableLifetime)
            return .tile(served(tile, expires: forever, status, .bypass, now, Self.immutable))
        }
        let expires = Timestamp(seconds: now.seconds).adding(seconds: max(Self.localLifetime, wanted))
        return .tile(served(tile, expires: expires, status, .bypass, now))
    }

    private func served(
        _ tile: CachedTile, expires: Timestamp, _ status: CacheStatus, _ result: Answered.CacheResult, _ now: HTTPDate,
        _ headers: [ResponseFields.Header] = []
    ) -> ServedTile {
        let metadata = TileMetadata(
            response: ResponseFields(
                status: tile.status, mediaType: tile.mediaType, contentEncoding: tile.contentEncoding,
                headers: headers),
            etag: tile.etag, lastModified: tile.lastModified, storedAt: Timestamp(seconds: now.seconds),
            expires: expires)
        let body = tile.data.map { StoredBody.memory($0) } ?? .none
        return ServedTile(body: body, metadata: metadata, blob: nil, status: status, result: result)
    }

    /// What this machine has and cannot read is no fault of a server's.
    private func localFailure(_ error: any Error) -> Made {
        guard let error = error as? TileCacheError, error.code == .noAnswer else { return failure(error, nil) }
        service.failures.report(
            .error, "a tile cannot be read", kind: source.name.description,
            ["key": "\(key)", "error": "\(error.message)"])
        return refused(500, "The tile cannot be read; see the log.", .none)
    }

    // MARK: Past the last zoom

    /// What became of the ancestors that were looked for.
    private struct Ancestors {
        var found: [TileKey: ServedTile] = [:]
        /// The first refusal.
        var refusal: (Refusal, CacheStatus)?
    }

    /// A tile made from its ancestor: with the ancestor's lifetime, age and fate, under an entity tag of its own.
    private func overzoomed(_ now: HTTPDate) async -> Made {
        let ancestors = Locked(Ancestors())
        do {
            let made =
                if source.isLocal {
                    try await service.cache.overzoomedTile(source.tiles, key, mode: .serverOnly)
                } else {
                    try await service.cache.overzoomedTile(
                        source.tiles, key, mode: request.onlyIfCached ? .cacheOnly : .standard
                    ) { try await ancestor($0, ancestors) }
                }
            guard let made else {
                return refused(504, "The tile is not in the cache, nor is one that it could be made from.", .miss)
            }
            if source.isLocal { return local(made.tile, now) }
            var served =
                try ancestors.withLock { $0.found[made.ancestor.key] } ?? makeshift(made.ancestor, now)
            if let data = made.tile.data {
                served.body = .memory(data)
                // The ancestor's name is not that of what was made of it.
                served.blob = nil
                served.metadata.etag = made.tile.etag
                served.metadata.response = served.metadata.response.with(mediaType: made.tile.mediaType)
                served.mayBeKept = served.mayBeKept && !made.isMakeshift
                served.status.detail = "made from zoom \(made.ancestor.key.tile?.z ?? 0)"
            }
            return .tile(served)
        } catch is StaleAncestor {
            return refused(504, "The tile that it would be made from is stale.", .miss)
        } catch {
            if source.isLocal { return localFailure(error) }
            return failure(error, ancestors.withLock { $0.refusal })
        }
    }

    /// The nearest ancestor is stale, and the server is not to be asked.
    private struct StaleAncestor: Error {}

    /// An ancestor that was in the cache when the server had failed for a nearer one.
    private func makeshift(_ ancestor: CachedTile, _ now: HTTPDate) throws -> ServedTile {
        var status = CacheStatus(cache: source.use.name)
        status.hit = true
        status.timeToLive = Int(clamping: ancestor.freshUntil.seconds &- now.seconds)
        var served = served(ancestor, expires: ancestor.freshUntil, status, .stale, now)
        // Its age is that of what is stored.
        if let entry = try service.store.entry(for: ancestor.key) { served.metadata = entry.metadata }
        return served
    }

    /// An ancestor, as it would be answered itself; `nil` if the server is not to be asked and it is not there.
    private func ancestor(_ key: TileKey, _ ancestors: Locked<Ancestors>) async throws -> CachedTile? {
        let race = Race<TileExchange.Outcome>()
        let (loop, tiles) = (tiles.eventLoop, tiles)
        let outcome = try await race.outcome {
            loop.execute {
                let asking = tiles.value.question(source, key, version: version, onlyIfCached: request.onlyIfCached) {
                    race.end(.success($0))
                }
                race.whenOver { loop.execute { asking.leave() } }
                asking.start()
            }
        }
        switch outcome {
        case .tile(let candidate, let status, let from, let isKept):
            let data = try await service.cache.onFileThread { try candidate.body.data() }
            let served = ServedTile(candidate, status, from, isKept: isKept)
            ancestors.withLock { $0.found[key] = served }
            return CachedTile(key: key, data: data, candidate.entry.metadata, origin: from == .hit ? .disk : .network)
        case .refused(let refusal, let status, let failure):
            guard let failure else {
                // What is there and stale is not to be passed over for a coarser one.
                if try service.store.entry(for: key) != nil { throw StaleAncestor() }
                return nil
            }
            ancestors.withLock { if $0.refusal == nil { $0.refusal = (refusal, status) } }
            throw FetchFailure(failure, key: key, known: nil, now: service.clock.ticks()).error
        }
    }

    // MARK: Failures

    /// - Parameter refusal: What a server's failure was answered with.
    private func failure(_ error: any Error, _ refusal: (Refusal, CacheStatus)?) -> Made {
        guard let error = error as? TileCacheError else {
            if !(error is CancellationError) {
                service.failures.report(.error, "the cache failed", ["key": "\(key)", "error": "\(error)"])
            }
            return refused(500, "The cache failed; see the log.", .miss)
        }
        switch (error.code, (error.cause as? ImagingError)?.code) {
        case (.outOfBounds, _): return refused(404, "The source has no tiles there.", .none)
        case (.badBody, .some(.unsupported)), (.badBody, .some(.invalidCrop)):
            return refused(404, "No tile can be made of the source's pictures there.", .none)
        case (.badBody, .some):
            return refused(502, "The picture that the tile would be made from is damaged or too large.", .miss)
        default: break
        }
        if let (refusal, status) = refusal { return .refused(refusal, status, .miss) }
        return refused(502, "The tile cannot be had.", .miss)
    }

    private func refused(_ status: Int, _ words: String, _ result: Answered.CacheResult) -> Made {
        var cacheStatus = CacheStatus(cache: source.use.name)
        cacheStatus.forward = status == 404 ? nil : .uriMiss
        cacheStatus.detail = status == 404 ? "outside" : "no tile"
        return .refused(Refusal(status: status, words: words), cacheStatus, result)
    }
}

extension ResponseFields {
    /// The same response, but of another media type and without a content coding.
    fileprivate func with(mediaType: String?) -> ResponseFields {
        ResponseFields(
            status: status, mediaType: mediaType, staleWhileRevalidate: staleWhileRevalidate,
            staleIfError: staleIfError, mustRevalidate: mustRevalidate, noCache: noCache, headers: headers)
    }
}
