import TileSets
package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A tile's place and the SHA-256 of its bytes.
package struct DigestedTile: Sendable, Equatable {
    /// The source it belongs to; `nil` in an archive for which none was named.
    package var source: SourceName?
    /// Its place, scale and format; an archive has no format.
    package var address: TileAddress
    /// The SHA-256 of the bytes as they are stored.
    package var digest: BlobDigest
    /// How many bytes these are.
    package var size: Int
    /// Of several with the same address the lowest counts, before their order does.
    package var rank = 0
}

/// What distinguishes tiles, from the coarsest to the finest.
package enum TileDetail: Int, Comparable, Sendable {
    /// Zoom, column and row.
    case place
    /// These and the scale.
    case scale
    /// The whole key: source, place, scale and format.
    case key

    package static func < (a: TileDetail, b: TileDetail) -> Bool { a.rawValue < b.rawValue }
}

/// What cannot be compared.
package struct Uncompared: Sendable {
    /// Entries that have no bytes or are no tiles.
    package var skipped = 0
    /// Files that cannot be read.
    package var failed = 0
}

/// Tiles that can be compared with others by their digests: one kind of reader for each kind of collection.
package protocol TileDigests {
    /// What distinguishes its tiles.
    var detail: TileDetail { get }

    /// Visits all tiles, in any order; of several with the same address the first counts, unless ``laterCounts``.
    ///
    /// - Returns: How much else there is.
    /// - Throws: ``ArchiveError`` or `StoreError` where they cannot be read, and what the body throws.
    func forEachTile(observer: any TransferObserver, _ body: (DigestedTile) throws -> Void) throws -> Uncompared

    /// Whether of several tiles with the same address the last counts.
    var laterCounts: Bool { get }
}

/// The tiles of a cache: its manifest has their digests, so no tile is read.
package struct CacheDigests: TileDigests {
    private let store: TileStore
    private let selection: EntrySelection

    /// - Parameter source: Whose tiles; `nil` for all.
    package init(_ store: TileStore, source: SourceName?) {
        self.store = store
        var selection = EntrySelection()
        selection.source = source
        self.selection = selection
    }

    package var detail: TileDetail { .key }
    package var laterCounts: Bool { false }

    package func forEachTile(observer: any TransferObserver, _ body: (DigestedTile) throws -> Void) throws -> Uncompared
    {
        var others = Uncompared()
        try store.forEachEntry(where: selection) { entry in
            guard let tile = entry.key.tile, let blob = entry.blob, entry.size > 0 else {
                // Absent tiles and other resources are a normal part of a cache, and need no words.
                others.skipped += 1
                return
            }
            try body(DigestedTile(source: entry.key.source, address: tile, digest: blob, size: entry.size))
        }
        return others
    }
}

/// The tiles of an archive: each is read and hashed.
package struct ArchiveDigests: TileDigests {
    private let archive: any ArchiveReader
    private let source: SourceName?
    private let mostTiles: Int

    /// - Parameters:
    ///   - source: The source that the tiles are of.
    ///   - mostTiles: An archive with more is refused: a small file can claim billions.
    package init(_ archive: any ArchiveReader, source: SourceName?, mostTiles: Int = 10_000_000) {
        self.archive = archive
        self.source = source
        self.mostTiles = mostTiles
    }

    package var detail: TileDetail { archive.format == .folder ? .scale : .place }
    package var laterCounts: Bool { archive.format == .mbtiles }

    package func forEachTile(observer: any TransferObserver, _ body: (DigestedTile) throws -> Void) throws -> Uncompared
    {
        if let counting = archive as? any CountingReader, counting.hasMoreTiles(than: mostTiles) {
            throw tooManyTiles(archive, mostTiles)
        }
        var others = Uncompared()
        var seen = 0
        // Equal tiles that follow each other, such as a run of PMTiles, are hashed once.
        var last: (data: Data, digest: BlobDigest)?
        func skip(_ what: String, _ why: String, _ count: Int) {
            others.skipped += count
            observer.skipped(what, why, count: count)
        }
        try archive.forEachTile(stoppedBy: { observer.wantsStop }) { step, rank in
            seen += 1
            guard seen <= mostTiles else { throw tooManyTiles(archive, mostTiles) }
            switch step {
            case .skipped(let what, let why, let count): skip(what, why, count)
            case .failed(let what, let why):
                others.failed += 1
                observer.failed(what, why)
            case .tile(let z, let x, let y, let scale, _, let tile):
                if let why = tile.objection {
                    skip("\(archive.path): \(z)/\(x)/\(y)", why, 1)
                    break
                }
                let digest: BlobDigest
                if let last, last.data == tile.data {
                    digest = last.digest
                } else {
                    digest = tile.data.withUnsafeBytes { BlobDigest(hashing: $0) }
                    last = (tile.data, digest)
                }
                let address = try TileAddress(z: z, x: x, y: y, scale: scale)
                try body(
                    DigestedTile(
                        source: source, address: address, digest: digest, size: tile.data.count, rank: rank))
            }
            return !observer.wantsStop
        }
        return others
    }
}

/// The tiles of a published set: its lists have their digests, so no tile is read.
package struct SetDigests: TileDigests {
    private let set: SetReader
    private let source: SourceName?
    private let mostTiles: Int

    /// - Parameters:
    ///   - source: The source that the tiles are of.
    ///   - mostTiles: A set with more is refused.
    package init(_ set: SetReader, source: SourceName?, mostTiles: Int = 10_000_000) {
        self.set = set
        self.source = source
        self.mostTiles = mostTiles
    }

    package var detail: TileDetail { .key }
    package var laterCounts: Bool { false }

    package func forEachTile(observer: any TransferObserver, _ body: (DigestedTile) throws -> Void) throws -> Uncompared
    {
        if set.hasMoreTiles(than: mostTiles) { throw tooManyTiles(set, mostTiles) }
        try set.forEachListed { tile in
            try body(DigestedTile(source: source, address: tile.key.tile, digest: tile.blob, size: tile.size))
        }
        return Uncompared()
    }
}

/// What an archive with more tiles than are allowed is refused with.
package func tooManyTiles(_ archive: any ArchiveReader, _ most: Int) -> ArchiveError {
    ArchiveError(
        .tooMany, "\(archive.path) has more than \(most) tiles: if that is meant, allow more with --max-tiles")
}
