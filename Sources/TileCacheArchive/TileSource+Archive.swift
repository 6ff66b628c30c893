public import TileArchive
public import TileCache
import TileStore

extension TileSource {
    /// Describes a source whose tiles are in an archive: MBTiles, PMTiles or a folder.
    ///
    /// The archive is opened now and kept open; a file that is replaced later is read by a source that is made then. Its
    /// tiles are never copied into the cache, and no request is ever sent for them. Each has an entity tag made from its
    /// bytes, so that a client that revalidates loads only what differs between two editions.
    /// - Parameters:
    ///   - name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///   - path: The file, or the folder that holds the zooms; or a template such as `tiles/{z}/{x}/{y}.png`.
    ///   - format: What it is; `nil` for what its ending says.
    /// - Throws: ``ArchiveError`` if it cannot be opened; ``TileCacheError`` for a wrong name.
    public init(_ name: String, archive path: String, format: ArchiveFormat? = nil) throws {
        try self.init(name, archive: (format ?? ArchiveFormat(path: path)).open(path))
    }

    /// Describes a source whose tiles are in an archive that is open already.
    ///
    /// Its zooms are those that the archive's metadata says, if it does.
    /// - Throws: ``TileCacheError`` for a wrong name.
    public init(_ name: String, archive: any ArchiveReader) throws {
        let said = archive.metadata.zooms?.clamped(to: 0...28)
        try self.init(name, local: ArchiveTiles(archive), zooms: said ?? 0...28)
        switch archive.metadata.tileFormat {
        case "pbf", "mvt": kind = .vector
        case "json", "geojson": kind = .json
        default: kind = .any
        }
    }
}

/// The tiles of an archive, looked up one by one.
private final class ArchiveTiles: LocalTiles {
    private let archive: any ArchiveReader
    private let glancing: (any GlancingReader)?

    init(_ archive: any ArchiveReader) {
        self.archive = archive
        glancing = archive as? any GlancingReader
    }

    /// Usually the directories or inner pages are in memory, and the tiles in the page cache.
    func tileNow(_ address: TileAddress) throws -> ImmediateTile {
        guard address.scale == 1 else { return .absent }
        guard let glancing else { return .mustWait }
        return switch try glancing.tileNow(z: address.z, x: address.x, y: address.y) {
        // Decompressing takes its time, and has threads for it.
        case .tile(let tile) where tile.isCompressedPicture: .mustWait
        case .tile(let tile): .tile(try Self.local(tile))
        case .absent: .absent
        case .mustWait: .mustWait
        }
    }

    func tile(_ address: TileAddress) throws -> LocalTile? {
        guard address.scale == 1 else { return nil }
        return try archive.tile(z: address.z, x: address.x, y: address.y).map(Self.local)
    }

    /// Its entity tag is the one that the cache makes from the bytes.
    private static func local(_ archived: ArchivedTile) throws -> LocalTile {
        let tile = try archived.withPlainPicture()
        return LocalTile(data: tile.data, mediaType: tile.mediaType, contentEncoding: tile.contentEncoding)
    }
}
