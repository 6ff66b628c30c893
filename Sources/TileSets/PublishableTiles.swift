import ContentCoding
package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// Tiles that can be published: those of a source of a cache, or of an archive.
package protocol PublishableTiles {
    /// Goes through the tiles, in any order, each key once.
    ///
    /// - Returns: How many entries there are that are no tiles with bytes, or whose bytes a set cannot hold.
    /// - Throws: What the body throws, and what keeps them from being read.
    func forEachTile(_ body: (SetTile) throws -> Void) throws -> Int

    /// A tile's bytes, which need not be those that it was listed with; `nil` where there are none.
    func bytes(of tile: SetTile) throws -> [UInt8]?

    /// Whether a tile is still listed with the same bytes: then they are damaged if they are others.
    func lists(_ tile: SetTile) throws -> Bool

    /// The path of a file that has a tile's bytes and no others; `nil` if it has none.
    func file(of tile: SetTile) -> String?

    /// What to do about damaged tiles.
    var advice: String { get }
}

/// The tiles of a source of a cache.
package struct CacheTiles: PublishableTiles {
    private let store: TileStore
    private let folder: String
    private let source: SourceName
    private let selection: EntrySelection

    /// - Parameters:
    ///   - store: The cache, open for reading.
    ///   - folder: The cache's folder.
    ///   - selection: Which of the source's tiles.
    package init(
        _ store: TileStore, folder: String, source: SourceName, selection: EntrySelection = EntrySelection()
    ) {
        var selection = selection
        selection.source = source
        (self.store, self.folder, self.source, self.selection) = (store, folder, source, selection)
    }

    package func forEachTile(_ body: (SetTile) throws -> Void) throws -> Int {
        var others = 0
        var types = ContentTypes<BlobDigest>()
        try store.forEachEntry(where: selection) { entry in
            guard let tile = SetTile(entry) else {
                others += 1
                return
            }
            let (type, coding) = (tile.kind.type, tile.kind.coding)
            let found = try types.mediaType(stored: type, coding: coding, of: tile.blob) {
                try store.start(of: tile.blob, count: ContentTypes<BlobDigest>.bytes)
            }
            let kind = found == type ? tile.kind : SetKind(type: found, coding: coding) ?? tile.kind
            try body(SetTile(key: tile.key, blob: tile.blob, size: tile.size, kind: kind))
        }
        return others
    }

    package func bytes(of tile: SetTile) throws -> [UInt8]? {
        guard let file = try store.open(tile.blob) else { return nil }
        guard file.size == tile.size else { return [] }
        return try [UInt8](unsafeUninitializedCapacity: file.size) { room, count in
            try file.read(into: UnsafeMutableRawBufferPointer(room), at: 0)
            count = file.size
        }
    }

    package func lists(_ tile: SetTile) throws -> Bool {
        try store.entry(for: TileKey(source: source, tile: tile.key.tile))?.blob == tile.blob
    }

    package func file(of tile: SetTile) -> String? { "\(folder)/\(tile.blob.path)" }
    package var advice: String { "run 'tilegc verify --repair' and publish again" }
}

extension TileStore {
    /// The first bytes of a blob; `nil` if it is missing or damaged.
    ///
    /// - Throws: `StoreError` if the disk fails.
    package func start(of blob: BlobDigest, count: Int) throws -> Data? {
        guard let file = try open(blob) else { return nil }
        var data = Data(count: min(file.size, count))
        try data.withUnsafeMutableBytes { try file.read(into: $0, at: 0) }
        return data
    }
}
