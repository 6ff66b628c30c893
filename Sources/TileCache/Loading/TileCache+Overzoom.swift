import CacheEngine
import ContentCoding
package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A tile that was made from its ancestor, or the knowledge that none of its ancestors exists.
package struct OverzoomedTile: Sendable {
    /// The tile; absent if its ancestors are.
    package var tile: CachedTile
    /// What it was made from, as the cache gave it.
    package var ancestor: CachedTile
    /// Whether a nearer ancestor could not be had: such a tile is to be asked for again soon.
    package var isMakeshift: Bool
}

/// Makes two pieces of work the same: the tile, and the very bytes that it is made from.
struct MagnificationKey: Hashable, Sendable {
    var key: TileKey
    var tag: String
}

extension TileCache {
    /// The tile under a key of a source that makes what it does not have.
    func tileOrOverzoomed(
        _ source: TileSource, _ key: TileKey, _ mode: LoadMode, _ priority: FetchPriority
    ) async throws -> CachedTile? {
        if let tile = key.tile, tile.z > source.zooms.upperBound {
            return try await overzoomedTile(source, key, mode: mode, priority: priority)?.tile
        }
        let exact = try await exactTile(source, key, mode: mode, priority: priority)
        guard source.overzoom.fillsGaps, let exact, exact.isAbsent, configuration.magnifier != nil else { return exact }
        // The tile's absence is an answer too: a failure on the way to its ancestors does not take it away.
        do {
            return try await overzoomedTile(source, key, mode: mode, priority: priority)?.tile ?? exact
        } catch let error as TileCacheError where error.code != .cancelled && error.code != .closed {
            return exact
        }
    }

    /// Makes a tile from the nearest ancestor that there is.
    ///
    /// What was made is stored beside the tiles, under `source:overzoom/z/x/y`, with the digest of the ancestor's bytes in
    /// its entity tag. It is used only while that is what the ancestor has: a changed ancestor makes it a miss. It is as
    /// fresh as its ancestor, and is not stored where the ancestor is not.
    /// - Parameter exact: How a server gets a tile of its source; `nil` for the cache's own way.
    /// - Returns: `nil` only with `LoadMode.cacheOnly`.
    /// - Throws: As ``tile(_:_:mode:priority:)``; ``TileCacheError/Code/outOfBounds`` for a tile too far past the source's
    ///   last zoom, ``TileCacheError/Code/badBody`` if no picture can be made of any ancestor, with the magnifier's error for
    ///   the nearest one as its cause.
    package func overzoomedTile(
        _ source: TileSource, _ key: TileKey, mode: LoadMode, priority: FetchPriority = .visible,
        exact: ((TileKey) async throws -> CachedTile?)? = nil
    ) async throws -> OverzoomedTile? {
        guard let tile = key.tile, key.source == source.name, source.servedZooms.contains(tile.z) else {
            throw TileCacheError(
                .outOfBounds,
                "\(key): source \(source.name) has zooms \(source.servedZooms.lowerBound) to "
                    + "\(source.servedZooms.upperBound), overzoom included", key: key)
        }
        guard let magnifier = configuration.magnifier else {
            throw TileCacheError(
                .outOfBounds, "\(key): the cache has no magnifier to make it from a lower zoom with", key: key)
        }
        let candidates = Overzoom.candidates(
            for: tile, within: source.zooms, maximumDepth: source.overzoomDepth)
        var failure: (any Error)?
        /// Why no picture could be made of an ancestor, and until when that ancestor holds.
        var damage: (error: any Error, until: Timestamp)?
        var absent: CachedTile?
        for overzoom in candidates {
            let ancestorKey = TileKey(source: source.name, tile: overzoom.ancestor)
            let ancestor: CachedTile?
            do {
                // Once a server has failed, only what is here already can help.
                if let exact, failure == nil {
                    ancestor = try await exact(ancestorKey)
                } else {
                    ancestor = try await exactTile(
                        source, ancestorKey, mode: failure == nil ? mode : .cacheOnly, priority: priority)
                }
            } catch let error as TileCacheError where error.code == .badBody {
                // About this tile alone: the server may well have a sound one above it.
                damage = damage ?? (error, clock.now())
                continue
            } catch let error as TileCacheError
                where error.code != .cancelled && error.code != .closed && mode != .serverOnly
            {
                failure = failure ?? error
                continue
            }
            guard let ancestor else { continue }
            guard let bytes = ancestor.data else {
                absent = absent ?? ancestor
                continue
            }
            var made: CachedTile
            do {
                made = try await magnified(overzoom, of: ancestor, bytes, key, mode, priority, magnifier)
            } catch let error as TileCacheError where error.code == .badBody {
                // A damaged picture is no more use than an absent one: the next ancestor may be sound.
                damage = damage ?? (error, ancestor.freshUntil)
                continue
            }
            if failure != nil { made = made.with(freshUntil: min(made.freshUntil, clock.now())) }
            if let damage { made = made.with(freshUntil: min(made.freshUntil, damage.until)) }
            return OverzoomedTile(tile: made, ancestor: ancestor, isMakeshift: failure != nil || damage != nil)
        }
        if let failure { throw failure }
        if let damage { throw damage.error }
        guard let absent else {
            if mode == .cacheOnly { return nil }
            throw TileCacheError(.outOfBounds, "\(key): it has no ancestor within the source's zooms", key: key)
        }
        return OverzoomedTile(tile: absent.under(key), ancestor: absent, isMakeshift: false)
    }

    /// A tile made from its ancestor's bytes, or as it was made from the same bytes before.
    private func magnified(
        _ overzoom: Overzoom, of ancestor: CachedTile, _ bytes: Data, _ key: TileKey, _ mode: LoadMode,
        _ priority: FetchPriority, _ magnifier: @escaping TileMagnifier
    ) async throws -> CachedTile {
        let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
        let tag = "W/\"overzoom-\(overzoom.ancestor.z)-\(digest)\""
        let isKept = mode != .serverOnly
        let derived = try Self.derivedKey(key, overzoom.tile)
        if isKept, let data = try await magnifiedBefore(derived, tag) {
            return ancestor.enlarged(data, key, tag)
        }
        let work = MagnificationKey(key: key, tag: tag)
        let data = try await magnification(work, priority) {
            // Who looked before the last one was stored and comes here after it would draw it again.
            if isKept, let data = try await self.magnifiedBefore(derived, tag) { return data }
            let data: Data
            do {
                let picture = try ancestor.decodedData() ?? bytes
                data = try await self.drawing.run { try magnifier(picture, overzoom) }
            } catch {
                throw TileCacheError(
                    .badBody, "\(key): it cannot be made from \(ancestor.key): \(error)", key: key, cause: error)
            }
            if isKept { await self.keep(data, derived, tag, digest, of: ancestor) }
            return data
        }
        return ancestor.enlarged(data, key, tag)
    }

    /// Draws once, however many ask for it.
    private func magnification(
        _ work: MagnificationKey, _ priority: FetchPriority, _ draw: @escaping @Sendable () async throws -> Data
    ) async throws -> Data {
        do {
            return try await magnifications.value(for: work, priority: priority) { _ in try await draw() }
        } catch is CancellationError {
            // The caller's own task, or the whole cache being closed.
            if Task.isCancelled { throw CancellationError() }
            throw TileCacheError(.closed, "\(work.key): the cache was closed before the tile was made", key: work.key)
        }
    }

    /// Where a tile that was made is stored: not among the tiles, so that nobody takes it for one, exports it or pins it.
    static func derivedKey(_ key: TileKey, _ tile: TileAddress) throws -> TileKey {
        let scale = tile.scale > 1 ? "@\(tile.scale)x" : ""
        let format = tile.format.map { "." + $0 } ?? ""
        return TileKey(
            source: key.source,
            resource: try ResourceAddress(path: "overzoom/\(tile.z)/\(tile.x)/\(tile.y)\(scale)\(format)"))
    }

    private func magnifiedBefore(_ derived: TileKey, _ tag: String) async throws -> Data? {
        do {
            guard let stored = try await read(derived), stored.entry.metadata.etag == tag else { return nil }
            return stored.data
        } catch let error as StoreError where error.code != .closed {
            configuration.onEvent?(.notRead(derived, error))
            return nil
        }
    }

    private func keep(
        _ data: Data, _ derived: TileKey, _ tag: String, _ digest: BlobDigest, of ancestor: CachedTile
    ) async {
        let store = self.store
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: BodySignature(data).pictureType ?? ancestor.mediaType), etag: tag,
            storedAt: clock.now(), expires: ancestor.freshUntil)
        do {
            try await pool.run {
                // What may not be stored has no children in the store either.
                guard try store.entry(for: ancestor.key)?.blob == digest else { return }
                _ = try store.put(data, for: derived, metadata: metadata)
            }
        } catch { configuration.onEvent?(.notStored(derived, error)) }
    }
}

extension CachedTile {
    /// The same absence under another key.
    fileprivate func under(_ key: TileKey) -> CachedTile {
        CachedTile(
            key: key, data: nil, status: status, mediaType: mediaType, contentEncoding: nil, etag: nil,
            lastModified: lastModified, origin: origin, freshUntil: freshUntil)
    }

    /// A part of this tile, as a tile of its own.
    fileprivate func enlarged(_ data: Data, _ key: TileKey, _ tag: String) -> CachedTile {
        CachedTile(
            key: key, data: data, status: status, mediaType: BodySignature(data).pictureType ?? mediaType,
            contentEncoding: nil, etag: tag, lastModified: lastModified, origin: .overzoomed, freshUntil: freshUntil)
    }

    fileprivate func with(freshUntil: Timestamp) -> CachedTile {
        CachedTile(
            key: key, data: data, status: status, mediaType: mediaType, contentEncoding: contentEncoding, etag: etag,
            lastModified: lastModified, origin: origin, freshUntil: freshUntil)
    }
}
