import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A source of a cache that is pulled from a set: what is there, and what is to be recorded.
///
/// Every function blocks: called on a thread that may.
struct PulledSource: Sendable {
    let store: TileStore
    let source: SourceName
    let region: String

    /// What the cache has of the source.
    struct Present: Sendable {
        /// Its tiles as sets have them.
        var tiles: [SetTile] = []
        /// What else is known of these, in the same order.
        var expires: [Timestamp] = []
        /// Tiles that no set has: absent ones, and those with another status.
        var others: [TileKey] = []
        /// Entries of blobs that an earlier pull has left.
        var parts: [TileKey] = []
    }

    /// Goes through the source's entries.
    func present() throws -> Present {
        var present = Present()
        var selection = EntrySelection()
        selection.source = source
        var found: [(tile: SetTile, expires: Timestamp)] = []
        try store.forEachEntry(where: selection) { entry in
            if PullState.isPart(entry.key) {
                present.parts.append(entry.key)
            } else if let tile = SetTile(entry), entry.metadata.response == response(tile.kind) {
                found.append((tile, entry.metadata.expires))
            } else if entry.key.tile != nil {
                present.others.append(entry.key)
            }
        }
        found.sort { $0.tile.key < $1.tile.key }
        present.tiles = found.map(\.tile)
        present.expires = found.map(\.expires)
        return present
    }

    /// The set that the source was pulled from last.
    func state() throws -> PullState? {
        // By the blob: looking is no use of the entry.
        guard let blob = try store.entry(for: PullState.key(source))?.blob else { return nil }
        return try bytes(of: blob, limit: SetBounds.document).flatMap { PullState(Data($0)) }
    }

    /// Removes it.
    func removeState() throws { _ = try store.remove([PullState.key(source)], includingPinned: true) }

    /// Writes which set the source's tiles are of.
    func write(_ state: PullState, now: Timestamp) throws {
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: "application/json"), storedAt: now, expires: .distantFuture)
        try store.put(state.encoded, for: PullState.key(source), metadata: metadata)
    }

    /// Stores bodies under the names of their blobs.
    func keep(_ bodies: [(digest: BlobDigest, data: Data)], now: Timestamp) throws {
        let metadata = TileMetadata(storedAt: now, expires: .distantFuture)
        let outcomes = try store.put(
            bodies.map { TilePut(key: try PullState.key(source, $0.digest), data: $0.data, metadata: metadata) })
        if outcomes.contains(.largerThanCapacity) {
            throw SetError(.tooLarge, "a tile of the set is larger than the cache's whole capacity ('tilegc limit')")
        }
        if outcomes.contains(.largerThanSourceCapacity) {
            throw SetError(.tooLarge, "a tile of the set is larger than the capacity of source \(source)")
        }
    }

    /// The bytes of a blob that the cache has, whoever has stored it.
    func bytes(of digest: BlobDigest, limit: Int) throws -> [UInt8]? {
        guard let file = try store.open(digest), file.size <= limit else { return nil }
        return try [UInt8](unsafeUninitializedCapacity: file.size) { room, count in
            try file.read(into: UnsafeMutableRawBufferPointer(room), at: 0)
            count = file.size
        }
    }

    // MARK: Recording

    /// Refuses a region's name that means something else here.
    func checkRegion() throws {
        guard let other = try store.regions().first(where: { $0.name == region }) else { return }
        let key = try PullState.key(source)
        guard other.source == source, other.resources.contains(key) else {
            throw SetError(
                .invalid, "the cache has a region \(region) that is not of a pull: name another one with --region")
        }
    }

    /// Pins what a list has, and the state.
    func pin(_ tiles: [SetTile]) throws {
        var boxes: [Int: (columns: ClosedRange<Int>, rows: ClosedRange<Int>)] = [:]
        for tile in tiles {
            let place = tile.key.tile
            let known = boxes[place.z] ?? (place.x...place.x, place.y...place.y)
            boxes[place.z] = (
                min(known.columns.lowerBound, place.x)...max(known.columns.upperBound, place.x),
                min(known.rows.lowerBound, place.y)...max(known.rows.upperBound, place.y)
            )
        }
        let spans = try boxes.sorted { $0.key < $1.key }.map {
            try TileSpan(zoom: $0.key, columns: $0.value.columns, rows: $0.value.rows)
        }
        let pinned = try PinnedRegion(
            name: region, tiles: spans.isEmpty ? [] : [SourceTiles(source: source, spans: spans)],
            resources: [PullState.key(source)])
        let (regions, key) = (try store.regions(), try PullState.key(source))
        if regions.first(where: { $0.name == region }) != pinned { try store.pin(pinned) }
        // Earlier pulls had another name for it.
        for other in regions where other.name != region && other.source == source && other.resources.contains(key) {
            _ = try store.unpin(other.name)
        }
    }

    /// Records tiles whose blobs are there; those that have none are returned.
    func record(_ tiles: [SetTile], times: (storedAt: Timestamp, expires: Timestamp)) throws -> [SetTile] {
        let records = tiles.map { tile in
            PresentBlob(
                key: TileKey(source: source, tile: tile.key.tile), blob: tile.blob, size: tile.size,
                metadata: TileMetadata(
                    response: response(tile.kind), storedAt: times.storedAt, expires: times.expires))
        }
        let missing = Set(try store.record(present: records).map(\.key))
        return missing.isEmpty ? [] : tiles.filter { missing.contains(TileKey(source: source, tile: $0.key.tile)) }
    }

    /// Removes entries, in short holds of the lock.
    func remove(_ keys: [TileKey], unless isStopped: () -> Bool) throws -> Int {
        var (removed, from) = (0, 0)
        while from < keys.count, !isStopped() {
            let to = min(from + 2048, keys.count)
            removed += try store.remove(Array(keys[from..<to]), includingPinned: true).removedEntries
            from = to
        }
        return removed
    }

    private func response(_ kind: SetKind) -> ResponseFields {
        ResponseFields(mediaType: kind.type, contentEncoding: kind.coding)
    }
}
