import HTTPCaching
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TileCache {
    /// The tile of a source whose template names files; nothing of it is stored, since it is at hand already.
    func readFile(_ place: TileURL, _ order: FetchOrder) async throws -> CachedTile {
        let limit = order.source.bodyLimit
        return try await readLocal(order) {
            try LocalFile.read(place.path, limit: limit, key: order.key).map {
                try LocalFile.tile($0, limit: limit, key: order.key)
            }
        }
    }

    /// The tile of a source that has its tiles on this machine.
    ///
    /// - Throws: ``TileCacheError``.
    func read(_ local: any LocalTiles, _ order: FetchOrder) async throws -> CachedTile {
        if flights.isClosed { throw TileCacheError(.closed, "\(order.key): the cache is closed", key: order.key) }
        do {
            let address = try address(of: order)
            @Sendable func reporting<R>(_ body: () throws -> R) throws -> R {
                do { return try body() } catch {
                    throw FetchFailure(
                        error: TileCacheError(.noAnswer, "\(order.key): \(error)", key: order.key, cause: error),
                        failure: .unreachable)
                }
            }
            switch try reporting({ try local.tileNow(address) }) {
            case .tile(let tile): return try cachedTile(Self.tagged(tile), order)
            case .absent: return try cachedTile(nil, order)
            case .mustWait: return try await readLocal(order) { try reporting { try local.tile(address) } }
            }
        } catch let failure as FetchFailure { throw failure.error }
    }

    /// Reads on a thread that may block; of its own, so that a slow archive keeps nobody from the cache.
    private func readLocal(
        _ order: FetchOrder, _ read: @escaping @Sendable () throws -> LocalTile?
    ) async throws -> CachedTile {
        // What nobody waits for any more is not begun: others wait for the threads.
        let isAbandoned = Locked(false)
        let tile = try await withTaskCancellationHandler {
            try await localPool.run { () -> LocalTile? in
                guard !isAbandoned.withLock({ $0 }) else {
                    throw FetchFailure(
                        error: TileCacheError(.cancelled, "\(order.key): the load was cancelled", key: order.key),
                        failure: .refused)
                }
                return try read().map(Self.tagged)
            }
        } onCancel: {
            isAbandoned.withLock { $0 = true }
        }
        return try cachedTile(tile, order)
    }

    /// The tile with an entity tag.
    private static func tagged(_ tile: LocalTile) -> LocalTile {
        var tile = tile
        tile.etag = tile.etag ?? tile.data.withUnsafeBytes { BlobDigest(hashing: $0).entityTag }
        return tile
    }

    private func cachedTile(_ tile: LocalTile?, _ order: FetchOrder) throws -> CachedTile {
        let now = clock.now()
        if let tile {
            guard tile.data.count <= order.source.bodyLimit else {
                throw FetchFailure(
                    .badBody, "it has more than the \(order.source.bodyLimit) bytes that the source allows",
                    key: order.key)
            }
            if let objection = order.source.kind.objection(
                to: tile.data, mediaType: tile.mediaType, contentEncoding: tile.contentEncoding, isWhole: false)
            {
                throw FetchFailure(.badBody, "it is \(objection)", key: order.key)
            }
        }
        let metadata = TileMetadata(
            response: ResponseFields(
                status: tile == nil ? 404 : 200, mediaType: tile?.mediaType, contentEncoding: tile?.contentEncoding),
            etag: tile?.etag, storedAt: now, expires: now.adding(seconds: 1))
        return CachedTile(key: order.key, data: tile?.data, metadata, origin: .disk)
    }
}
