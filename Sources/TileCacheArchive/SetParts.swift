package import CacheEngine
package import TileArchive
package import TileSets
package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// The files of a published set at a server, as entries of a cache.
///
/// `set.json` is one like any response, with the server's word on how long it is fresh, but checked every few seconds. All others
/// lie under the names of their contents, so that they never change, tiles with equal bytes are fetched once, and a new version
/// costs what is new in it.
package struct SetParts: Sendable {
    /// Its `set.json`.
    package let document: ArchivePart
    private let source: SourceName

    /// After so many seconds a new version is looked for, so that it is taken up within ten, however clocks round.
    private static let checkedEvery: Int64 = 9

    /// - Parameter identity: What tells the set from others that the source may name; nothing that is secret.
    package init(of source: SourceName, identity: String) {
        self.source = source
        document = ArchivePart(
            key: TileKey(source: source, resource: ResourceAddress(uncheckedPath: "set/\(identity).json")),
            question: FileQuestion(document: SetBounds.document), lifetime: Self.checkedEvery
        ) { bytes, _ in
            do {
                _ = try Self.document(bytes)
                return nil
            } catch { return "\(error)" }
        }
    }

    /// What a `set.json` says.
    ///
    /// - Throws: ``SetError``.
    package static func document(_ bytes: Data) throws -> SetDocument {
        try SetDocument([UInt8](bytes), at: "the set's document")
    }

    /// The file of a tile's bytes.
    ///
    /// - Parameter isRepeated: Whether `set.json` was read anew because a file was missing.
    package func file(of tile: SetTile, isRepeated: Bool) -> ArchivePart {
        let (blob, size) = (tile.blob, tile.size)
        var part = object(SetPaths.blob(blob), "\(blob)", most: size, isRepeated, blob) { data in
            data.count == size && data.withUnsafeBytes { BlobDigest(hashing: $0) } == blob
                ? nil : "other bytes than the set's list says"
        }
        part.isTile = true
        return part
    }

    /// The file of a version's root.
    package func file(of version: SetVersion, isRepeated: Bool) -> ArchivePart {
        list(version.root, length: version.length ?? SetBounds.root, isRepeated) { _ = try version.list($0) }
    }

    /// The file of a chunk.
    package func file(of chunk: Int, in listing: SetListing, isRepeated: Bool) -> ArchivePart {
        let item = listing.items[chunk]
        return list(item.digest, length: item.length, isRepeated) {
            _ = try listing.chunk([UInt8]($0), number: chunk)
        }
    }

    /// The key of a list.
    package func key(of list: UsedList) -> TileKey { key("\(list.digest).gz") }

    /// The file of a list that is looked after.
    ///
    /// Where it is gone, it is left alone for a while: else it would be asked for with each tile that it leads to.
    package func file(of list: UsedList) -> ArchivePart {
        switch list {
        case .root(let version): file(of: version, isRepeated: true)
        case .chunk(let number, let listing): file(of: number, in: listing, isRepeated: true)
        }
    }

    private func key(_ name: String) -> TileKey {
        TileKey(source: source, resource: ResourceAddress(uncheckedPath: "set/" + name))
    }

    /// The file of a list, which has to make sense too: one that does not would be read again for each tile.
    private func list(
        _ list: BlobDigest, length: Int, _ isRepeated: Bool, _ read: @escaping @Sendable (Data) throws -> Void
    ) -> ArchivePart {
        object(SetPaths.list(list), "\(list).gz", most: SetBounds.stored(length), isRepeated, nil) { data in
            do {
                try read(data)
                return nil
            } catch { return "\(error)" }
        }
    }

    private func object(
        _ path: String, _ name: String, most: Int, _ isRepeated: Bool, _ blob: BlobDigest?,
        _ objection: @escaping @Sendable (Data) -> String?
    ) -> ArchivePart {
        ArchivePart(
            key: key(name), question: FileQuestion(object: most, isRepeated: isRepeated), path: path, blob: blob
        ) { data, _ in objection(data) }
    }
}
