import CacheEngine
import HTTPCaching
import TileArchive
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The tiles of a PMTiles archive at a server.
///
/// Its parts are entries of the cache, as ``ArchiveParts`` says, and its tiles entries under their own keys. Here is only the version
/// that was made of them last.
final class ArchiveAtServer: TilesAtServer {
    private struct State {
        var version: ArchiveVersion?
        /// Until when it needs no look.
        var freshUntil = Timestamp.distantPast
        /// When its server was asked for it last.
        var checkedAt = Timestamp.distantPast
    }

    /// A directory whose bytes are made a value: once for all who wait in a cache, which may be closed.
    private struct Reading: Hashable, Sendable {
        let cache: UInt64
        let version: String
        let number: UInt64
    }

    private let parts: ArchiveParts
    private let state = Locked(State())
    private let leaves = SingleFlight<Reading, Void>()

    /// So many directories are learnt for one tile at most: twice as many as may lead to one.
    private static let mostDirectories = 8

    init(_ parts: ArchiveParts) { self.parts = parts }

    var isPinnable: Bool { true }

    // MARK: A tile

    func tile(_ loader: PartLoader) async throws -> CachedTile? {
        // What is here counts, of whatever version, where the one that the server has cannot be known.
        do {
            if let tile = try await tileOfVersion(loader) { return tile }
            return try await loader.storedTile()
        } catch let failure as FetchFailure {
            guard let stored = try await loader.storedTile(after: failure) else { throw failure }
            return stored
        }
    }

    private func tileOfVersion(_ loader: PartLoader) async throws -> CachedTile? {
        let address = try loader.address()
        guard let opening = try await loader.part(parts.start) else { return nil }
        do { return try await tile(address, of: opening, isRepeated: false, loader) } catch let failure as FetchFailure
        {
            guard failure.isOtherVersion, loader.mode != .cacheOnly else { throw failure }
            // Thrown away and opened anew, once. Somebody else may have done so meanwhile.
            let reloads = state.withLock { $0.version?.id } == ArchiveOpening(opening.metadata, opening.blob)?.id
            guard let anew = try await loader.part(parts.start, reloads: reloads) else { throw failure }
            return try await tile(address, of: anew, isRepeated: true, loader)
        }
    }

    private func tile(
        _ address: TileAddress, of opening: LoadedPart, isRepeated: Bool, _ loader: PartLoader
    ) async throws -> CachedTile? {
        let version = try await version(of: opening, loader)
        if let stored = try await loader.storedPart(of: version.id) {
            return answer(stored, version, opening, loader)
        }
        var learned = 0
        while true {
            switch version.place(of: address) {
            case .damaged(let why): throw FetchFailure(.badBody, why, key: loader.key)
            case .absent: return answer(nil, version, opening, loader)
            case .tile(let bytes):
                guard let part = try await loader.part(tile(bytes, of: version, isRepeated, loader)) else { return nil }
                return answer(part, version, opening, loader)
            case .leaf(let leaf):
                // More are so large that they put each other out of memory.
                guard learned < Self.mostDirectories else {
                    throw FetchFailure(.badBody, "its directories are too large together", key: loader.key)
                }
                guard try await learn(leaf, of: version, loader) else { return nil }
                learned += 1
            }
        }
    }

    /// A tile's bytes, which are an entry under its own key.
    private func tile(
        _ bytes: Range<Int64>, of version: ArchiveVersion, _ isRepeated: Bool, _ loader: PartLoader
    ) throws -> ArchivePart {
        let (limit, own) = (loader.source.bodyLimit, loader.source.kind)
        guard bytes.count <= limit else {
            throw FetchFailure(
                .badBody, "it has \(bytes.count) bytes, more than the \(limit) that the source allows", key: loader.key)
        }
        let kind = own == .any ? version.kind : own
        var part = ArchivePart(
            key: loader.key,
            question: FileQuestion(bytes, of: version.file, mark: version.id, isRepeated: isRepeated)
        ) { data, _ in
            let (type, coding) = version.content(of: data)
            return kind.objection(to: data, mediaType: type, contentEncoding: coding)
        }
        part.isTile = true
        part.content = { version.content(of: $0) }
        return part
    }

    private func learn(
        _ leaf: ArchiveVersion.Leaf, of version: ArchiveVersion, _ loader: PartLoader
    ) async throws -> Bool {
        if let objection = version.objection(to: leaf) { throw FetchFailure(.badBody, objection, key: loader.key) }
        let part = parts.leaf(leaf, of: version)
        guard let data = try await loader.part(part)?.data else { return false }
        let name = Reading(cache: loader.cacheNumber, version: version.id, number: leaf.number)
        try await leaves.value(for: name, priority: loader.priority) { _ in
            do { try await loader.compute { try version.take(data, as: leaf) } } catch let error as ArchiveError {
                throw FetchFailure(.badBody, error.message, key: part.key)
            }
        }
        return true
    }

    private func version(of opening: LoadedPart, _ loader: PartLoader) async throws -> ArchiveVersion {
        guard let found = ArchiveOpening(opening.metadata, opening.blob) else {
            throw FetchFailure(.badBody, "the archive's beginning was stored without its length", key: parts.start.key)
        }
        let (freshUntil, checkedAt) = (opening.metadata.expires, opening.metadata.storedAt)
        let known = state.withLock { state -> ArchiveVersion? in
            guard state.version?.id == found.id else { return nil }
            (state.freshUntil, state.checkedAt) = (freshUntil, checkedAt)
            return state.version
        }
        if let known { return known }
        let (data, name) = (opening.data, loader.source.name)
        let version: ArchiveVersion
        do { version = try await loader.compute { try found.version(data, of: name) } } catch let error as ArchiveError
        {
            throw FetchFailure(.badBody, error.message, key: parts.start.key)
        }
        return state.withLock { state in
            // Who was as fast has learnt directories already.
            if let other = state.version, other.id == version.id { return other }
            state = State(version: version, freshUntil: freshUntil, checkedAt: checkedAt)
            return version
        }
    }

    /// A tile, or that there is none; as fresh as the version is.
    private func answer(
        _ part: LoadedPart?, _ version: ArchiveVersion, _ opening: LoadedPart, _ loader: PartLoader
    ) -> CachedTile {
        let now = Timestamp(seconds: loader.now.seconds)
        // What leads to it, or the tile itself, which may be of a former version.
        let stale = [opening.origin, part?.origin].compactMap { $0 }.first {
            if case .stale = $0 { true } else { false }
        }
        let metadata = TileMetadata(
            response: ResponseFields(
                status: part == nil ? 404 : 200, mediaType: part?.metadata.response.mediaType,
                contentEncoding: part?.metadata.response.contentEncoding),
            etag: part?.blob.entityTag, storedAt: now,
            expires: stale == nil ? opening.metadata.expires : min(now, opening.metadata.expires))
        var answer = CachedTile(
            key: loader.key, data: part?.data, metadata, origin: stale ?? part?.origin ?? opening.origin)
        answer.notStored = part?.notStored
        return answer
    }

    // MARK: What is known

    func state(of key: TileKey, in cache: TileCache) throws -> TileAtServer {
        let (version, freshUntil) = state.withLock { ($0.version, $0.freshUntil) }
        let isOld = version == nil || cache.now() >= freshUntil
        if let entry = try cache.store.entry(for: key), entry.blob != nil {
            return .entry(entry, isStale: isOld || entry.metadata.fileMark != version?.id)
        }
        guard let version, let tile = key.tile, case .absent = version.place(of: tile) else { return .unknown }
        return .absent(isStale: isOld)
    }

    var checkedAt: Timestamp? { state.withLock { $0.version == nil ? nil : $0.checkedAt } }

    func isThere(_ key: TileKey, in cache: TileCache) throws -> Bool {
        guard let version = state.withLock({ $0.version }), let tile = key.tile,
            try cache.store.entry(for: parts.start.key) != nil
        else { return false }
        var learned = 0
        while case .leaf(let leaf) = version.place(of: tile), learned < Self.mostDirectories {
            // Others have put it out of memory.
            guard let data = try cache.store.read(parts.leaf(leaf, of: version).key)?.data,
                version.objection(to: data, as: leaf) == nil
            else { break }
            try version.take(data, as: leaf)
            learned += 1
        }
        if case .absent = version.place(of: tile) { return true }
        guard let entry = try cache.store.entryWithBlob(key) else { return false }
        return entry.blob != nil && entry.metadata.fileMark == version.id
    }
}
