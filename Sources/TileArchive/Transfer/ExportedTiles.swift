import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A tile that may be exported.
struct ExportedTile {
    var address: TileAddress
    var digest: BlobDigest
    var size: Int
    var response: ResponseFields
}

/// The tiles that an export writes: those of a source of a cache, or of an archive.
protocol ExportedTiles {
    /// Goes through the tiles, those of one place together.
    ///
    /// - Parameter body: Given `nil` for what is no tile with bytes; `false` to stop.
    func forEachTile(_ body: (ExportedTile?) throws -> Void) throws

    /// The bytes that a tile has now.
    ///
    /// - Parameter wasExpected: Whether bytes of a digest are those that the tile was seen with.
    func bytes(of address: TileAddress, _ wasExpected: (BlobDigest) -> Bool) throws -> TileReader.Outcome

    /// How a tile's bytes are encoded, for a message.
    func contentEncoding(of address: TileAddress) throws -> String?

    /// A tile's name, for messages.
    func name(of address: TileAddress) -> String
}

/// Tiles of a source of a cache.
struct CachedTilesToExport: ExportedTiles {
    let store: TileStore
    let source: SourceName
    let selection: EntrySelection
    let region: RegionFilter?

    func forEachTile(_ body: (ExportedTile?) throws -> Void) throws {
        try store.forEachEntry(in: .key, where: selection) { entry in
            if let region, !region.contains(entry.key) { return }
            guard let tile = entry.key.tile, let blob = entry.blob else { return try body(nil) }
            try body(
                ExportedTile(address: tile, digest: blob, size: entry.size, response: entry.metadata.response))
        }
    }

    func bytes(of address: TileAddress, _ wasExpected: (BlobDigest) -> Bool) throws -> TileReader.Outcome {
        try TileReader(store: store).bytes(of: TileKey(source: source, tile: address), wasExpected)
    }

    func contentEncoding(of address: TileAddress) throws -> String? {
        try store.entry(for: TileKey(source: source, tile: address))?.metadata.response.contentEncoding
    }

    func name(of address: TileAddress) -> String { TileKey(source: source, tile: address).description }
}

/// Tiles of an archive.
final class ArchivedTilesToExport: ExportedTiles {
    private let listing: ArchiveListing
    /// How much else there was.
    private(set) var others = ArchiveListing.Others()

    init(_ listing: ArchiveListing) { self.listing = listing }

    func forEachTile(_ body: (ExportedTile?) throws -> Void) throws {
        others = try listing.forEach { tile in
            try body(
                ExportedTile(address: tile.address, digest: tile.digest, size: tile.size, response: tile.response))
        }
    }

    func bytes(of address: TileAddress, _ wasExpected: (BlobDigest) -> Bool) throws -> TileReader.Outcome {
        guard let tile = try listing.content(of: address) else { return .gone }
        return .bytes(tile.data, of: tile.data.withUnsafeBytes { BlobDigest(hashing: $0) })
    }

    func contentEncoding(of address: TileAddress) throws -> String? {
        try listing.content(of: address)?.contentEncoding
    }

    func name(of address: TileAddress) -> String {
        "\(address.z)/\(address.x)/\(address.y)\(address.scale == 1 ? "" : "@\(address.scale)x")"
    }
}
