import ContentCoding
import TileSets
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

    /// Has the bytes say what it is where neither its key nor its type does.
    ///
    /// - Parameter start: Its first bytes.
    mutating func look(_ types: inout ContentTypes<BlobDigest>, _ start: () throws -> Data?) rethrows {
        guard address.format == nil else { return }
        let (stored, coding) = (response.mediaType, response.contentEncoding)
        let found = try types.mediaType(stored: stored, coding: coding, of: digest, start)
        if found != stored { response = ResponseFields(mediaType: found, contentEncoding: coding) }
    }
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
        var types = ContentTypes<BlobDigest>()
        try store.forEachEntry(in: .key, where: selection) { entry in
            if let region, !region.contains(entry.key) { return }
            guard let tile = entry.key.tile, let blob = entry.blob else { return try body(nil) }
            var exported = ExportedTile(
                address: tile, digest: blob, size: entry.size, response: entry.metadata.response)
            try exported.look(&types) {
                // Whether it can be read is said when it is its turn.
                do {
                    return try store.start(of: blob, count: ContentTypes<BlobDigest>.bytes)
                } catch let error as StoreError where error.isOfDisk {
                    return nil
                }
            }
            try body(exported)
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
        var types = ContentTypes<BlobDigest>()
        others = try listing.forEach { tile in
            var exported = ExportedTile(
                address: tile.address, digest: tile.digest, size: tile.size, response: tile.response)
            // A set says what was stored; of other archives' tiles the bytes were looked at.
            if listing.archive is SetReader {
                try exported.look(&types) { try listing.content(of: tile.address)?.data }
            }
            try body(exported)
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
