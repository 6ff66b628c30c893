import CacheEngine
import HTTPCaching
import HTTPListener
import HTTPTypes
import Logging
import TileCache
import TileImaging
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// One tile that could not be answered at once: asks the cache, and makes the answer, off the event loop.
struct TileFetch: Sendable {
    let service: TileService
    let source: ServedSource
    let key: TileKey
    let request: TileRequest

    func run(_ now: HTTPDate) async -> TileReply {
        if let tile = key.tile, source.overzooms(tile.z) { return await overzoomed(now) }
        if source.isLocal { return await local(now) }
        do {
            let known = try service.cache.store.entry(for: key)
            if request.onlyIfCached { return try await cached(known, now) }
            guard let tile = try await service.cache.tile(source.tiles, key) else {
                return failure(504, "The tile is not there.", .miss)
            }
            return try await outcome(tile, wasKnown: known != nil, now)
        } catch {
            return failure(error)
        }
    }

    /// Answers `only-if-cached`: what is fresh, or 504 (RFC 9111 §5.2.1.7).
    private func cached(_ known: TileEntry?, _ now: HTTPDate) async throws -> TileReply {
        guard let known, StoredFreshness(known.metadata).isFresh(at: now), !known.metadata.response.noCache,
            let tile = try await service.cache.tile(source.tiles, key, mode: .cacheOnly)
        else { return failure(504, "The tile is not in the cache, or is stale.", .miss) }
        return try await outcome(tile, wasKnown: true, now)
    }

    private func outcome(_ tile: CachedTile, wasKnown: Bool, _ now: HTTPDate) async throws -> TileReply {
        await outcome(try served(tile, wasKnown: wasKnown, now), now)
    }

    /// The answer, with the tile decoded for a client that does not take gzip.
    private func outcome(_ tile: ServedTile, _ now: HTTPDate) async -> TileReply {
        var tile = tile
        if let data = tile.data, tile.needsDecoding(for: request, of: source) {
            let digest = tile.blob ?? data.withUnsafeBytes { BlobDigest(hashing: $0) }
            switch await service.decoder.decode(data, digest) {
            case .decoded(let decoded): tile.decoded = decoded
            case .undecodable: break
            case .busy:
                return failure(
                    503, "Too many tiles are being decoded; ask again, or accept gzip.", .miss, retryAfter: 1)
            }
        }
        return TileReply(tile, of: source, to: request, now: now, boundary: Self.boundary())
    }

    /// What is known of a tile from the cache.
    private func served(_ tile: CachedTile, wasKnown: Bool, _ now: HTTPDate) throws -> ServedTile {
        // The entry tells more than the tile, as long as it is the same one.
        let entry = try service.cache.store.entry(for: tile.key).flatMap { entry -> TileEntry? in
            let metadata = entry.metadata
            let isSame =
                metadata.etag == tile.etag && metadata.expires == tile.freshUntil
                && metadata.lastModified == tile.lastModified && entry.size == (tile.data?.count ?? 0)
            return isSame ? entry : nil
        }
        var status = CacheStatus(cache: "tileproxy")
        let result: Answered.CacheResult
        let metadata = entry?.metadata ?? Self.metadata(of: tile, now)
        status.timeToLive = Int(clamping: tile.freshUntil.seconds &- now.seconds)
        switch tile.origin {
        case .memory, .disk, .overzoomed:
            status.hit = true
            result = .hit
        case .stale(.error):
            status.forward = .stale
            status.detail = "the origin failed"
            result = .stale
        case .stale:
            status.hit = true
            result = .stale
        case .revalidated:
            status.forward = .stale
            status.forwardStatus = 304
            status.stored = entry != nil
            result = .revalidated
        case .network:
            status.forward = wasKnown ? .stale : .uriMiss
            status.forwardStatus = tile.status
            status.stored = entry != nil
            result = .miss
        }
        return ServedTile(
            body: tile.body, metadata: metadata, blob: nil, status: status, result: result,
            mayBeKept: entry != nil || result == .hit || result == .stale)
    }

    private static func metadata(of tile: CachedTile, _ now: HTTPDate) -> TileMetadata {
        TileMetadata(
            response: ResponseFields(
                status: tile.status, mediaType: tile.mediaType, contentEncoding: tile.contentEncoding),
            etag: tile.etag, lastModified: tile.lastModified, storedAt: Timestamp(seconds: now.seconds),
            expires: tile.freshUntil)
    }

    // MARK: Files and archives

    /// How long clients keep a tile that this machine has, before they ask whether it has changed; at least.
    static let localLifetime: Int64 = 60

    private func local(_ now: HTTPDate) async -> TileReply {
        do {
            guard let tile = try await service.cache.tile(source.tiles, key, mode: .serverOnly) else {
                return failure(404, "There is no such tile.", .none)
            }
            return await local(tile, now)
        } catch { return localFailure(error) }
    }

    /// What this machine has and cannot read is no fault of a server's.
    private func localFailure(_ error: any Error) -> TileReply {
        guard let error = error as? TileCacheError, error.code == .noAnswer else { return failure(error) }
        service.failures.report(
            .error, "a tile cannot be read", kind: source.name.description,
            ["key": "\(key)", "error": "\(error.message)"])
        return failure(500, "The tile cannot be read; see the log.", .none)
    }

    private func local(_ tile: CachedTile, _ now: HTTPDate) async -> TileReply {
        var metadata = Self.metadata(of: tile, now)
        let wanted = source.configuration.lifetimes.minimum?.components.seconds ?? 0
        metadata.expires = metadata.storedAt.adding(seconds: max(Self.localLifetime, wanted))
        var status = CacheStatus(cache: "tileproxy")
        status.forward = .bypass
        status.detail = source.tiles.local == nil ? "a file" : "an archive"
        return await outcome(
            ServedTile(body: tile.body, metadata: metadata, blob: nil, status: status, result: .bypass), now)
    }

    // MARK: Past the last zoom

    /// A tile made from its ancestor: with the ancestor's lifetime, age and fate, under an entity tag of its own.
    private func overzoomed(_ now: HTTPDate) async -> TileReply {
        let isLocal = source.isLocal
        let mode: LoadMode = isLocal ? .serverOnly : request.onlyIfCached ? .cacheOnly : .standard
        do {
            guard let made = try await service.cache.overzoomedTile(source.tiles, key, mode: mode) else {
                return failure(504, "The tile is not in the cache, nor is one that it could be made from.", .miss)
            }
            if isLocal { return await local(made.tile, now) }
            var served = try served(made.ancestor, wasKnown: false, now)
            if request.onlyIfCached, served.metadata.response.noCache || !served.isFresh(at: now) {
                return failure(504, "The tile is not in the cache, or is stale.", .miss)
            }
            if let data = made.tile.data {
                served.body = .memory(data)
                served.metadata.etag = made.tile.etag
                served.metadata.response = served.metadata.response.with(mediaType: made.tile.mediaType)
                served.mayBeKept = served.mayBeKept && !made.isMakeshift
                served.status.detail = "made from zoom \(made.ancestor.key.tile?.z ?? 0)"
            }
            return await outcome(served, now)
        } catch { return isLocal ? localFailure(error) : failure(error) }
    }

    // MARK: Failures

    private func failure(_ error: any Error) -> TileReply {
        guard let error = error as? TileCacheError else {
            if !(error is CancellationError) {
                service.failures.report(.error, "the cache failed", ["key": "\(key)", "error": "\(error)"])
            }
            return failure(500, "The cache failed; see the log.", .miss)
        }
        // Those that only wait for a server that has failed say nothing new, and may be many.
        service.logger.log(
            level: error.code == .waiting ? .debug : .info,
            "no tile", metadata: ["key": "\(key)", "code": "\(error.code)", "error": "\(error.message)"])
        let wait = error.retryAfter.map { Int(clamping: max(1, $0.components.seconds)) }
        switch error.code {
        case .outOfBounds: return failure(404, "The source has no tiles there.", .none)
        case .noAnswer:
            let isTimeout = (error.cause as? TransportError)?.code == .timeout
            return failure(isTimeout ? 504 : 502, "The tile server gives no answer.", .miss, retryAfter: wait)
        case .waiting:
            return failure(504, "The tile server has failed; it is left alone for a while.", .miss, retryAfter: wait)
        case .badStatus:
            let status = error.status.map { " (\($0))" } ?? ""
            return failure(502, "The tile server answers with an error\(status).", .miss, retryAfter: wait)
        case .badBody: return badBody(error)
        default: return failure(502, "The tile cannot be had from the tile server.", .miss)
        }
    }

    private func badBody(_ error: TileCacheError) -> TileReply {
        switch (error.cause as? ImagingError)?.code {
        case nil: failure(502, "The tile server sent something that is no tile.", .miss)
        case .unsupported, .invalidCrop: failure(404, "No tile can be made of the source's pictures there.", .none)
        default: failure(502, "The picture that the tile would be made from is damaged or too large.", .miss)
        }
    }

    private func failure(
        _ status: Int, _ words: String, _ result: Answered.CacheResult, retryAfter: Int? = nil
    ) -> TileReply {
        var cacheStatus = CacheStatus(cache: "tileproxy")
        cacheStatus.forward = status == 404 ? nil : .uriMiss
        cacheStatus.detail = status == 404 ? "outside" : "no tile"
        var reply = TileReply(
            status, words, allowedOrigin: source.allowedOrigin, cacheStatus: cacheStatus, retryAfter: retryAfter)
        reply.result = result
        return reply
    }

    /// A random text that parts several ranges.
    static func boundary() -> String { String(UInt64.random(in: 0...UInt64.max), radix: 36) }
}

extension CachedTile {
    fileprivate var body: StoredBody { data.map { .memory($0) } ?? .none }
}

extension ServedTile {
    fileprivate func isFresh(at now: HTTPDate) -> Bool { StoredFreshness(metadata).isFresh(at: now) }
}

extension ResponseFields {
    /// The same response, but of another media type and without a content coding.
    fileprivate func with(mediaType: String?) -> ResponseFields {
        ResponseFields(
            status: status, mediaType: mediaType, staleWhileRevalidate: staleWhileRevalidate,
            staleIfError: staleIfError,
            mustRevalidate: mustRevalidate, noCache: noCache, headers: headers)
    }
}
