public import TileStore

/// Writes the tiles of one source into an archive.
///
/// A package (MBTiles, PMTiles) is written under a temporary name next to its place, synced, and appears in one step;
/// one that is stopped or fails leaves nothing. Equal tiles are stored once. Memory stays bounded whatever the number
/// of tiles; what the store itself needs for its entries comes on top.
public struct ArchiveExport {
    /// The store to read from.
    public let store: TileStore
    /// Whose tiles are written.
    public let source: SourceName
    /// Which of them; its `source` is set to ``source``.
    public var selection: EntrySelection
    /// Only tiles of this region, if any.
    public var region: PinnedRegion?
    /// What to say in the package's metadata; zooms, bounds and format are filled in from the tiles.
    public var metadata = ArchiveMetadata()
    /// Whether rows in a folder are counted from the south (TMS).
    public var rowsFromSouth = false

    /// Prepares an export of all tiles of a source.
    public init(store: TileStore, source: SourceName) {
        self.store = store
        self.source = source
        selection = EntrySelection()
    }

    /// Writes the archive.
    ///
    /// Regions that the store pins for the source go along into a package's metadata.
    /// - Parameters:
    ///   - path: A file, or for ``ArchiveFormat/folder`` a folder. What is there is replaced.
    ///   - format: The kind of archive.
    ///   - observer: Who is told, and may stop it.
    /// - Throws: ``ArchiveError``, and `StoreError` where the store cannot be read.
    public func run(
        to path: String, format: ArchiveFormat, observer: any TransferObserver
    ) throws -> TransferReport {
        var selection = selection
        selection.source = source
        let tiles = CachedTilesToExport(
            store: store, source: source, selection: selection, region: region.map { RegionFilter($0) })
        var export = TileExport(tiles: tiles, name: source.description, observer: observer)
        export.metadata = metadata
        export.regions = { try self.region.map { [ArchiveRegion($0)] } ?? self.regions() }
        export.rowsFromSouth = rowsFromSouth
        return try export.run(to: path, format: format)
    }

    private func regions() throws -> [ArchiveRegion] {
        try store.regions().compactMap { $0.part(of: source) }.map { ArchiveRegion($0) }
    }
}
