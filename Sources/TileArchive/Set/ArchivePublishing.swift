package import TileSets
import TileStore

/// The tiles of an archive, to be published.
///
/// An archive is read twice: once to hash its tiles, and again for the bytes that the set has not. A set's version knows its digests.
package struct ArchiveToPublish: PublishableTiles {
    private let listing: ArchiveListing

    /// - Parameters:
    ///   - mostTiles: An archive with more is refused: a small file can claim billions.
    ///   - observer: Who is told of what is passed over, and may stop it.
    package init(_ archive: any ArchiveReader, mostTiles: Int = 10_000_000, observer: any TransferObserver) {
        listing = ArchiveListing(archive: archive, mostTiles: mostTiles, observer: observer)
    }

    package func forEachTile(_ body: (SetTile) throws -> Void) throws -> Int {
        var unfit = 0
        let others = try listing.forEach { tile in
            let listed = SetTile(
                tile.address, tile.digest, size: tile.size, mediaType: tile.response.mediaType,
                coding: tile.response.contentEncoding)
            if let listed { try body(listed) } else { unfit += 1 }
        }
        if others.wasStopped { throw SetError(.stopped, "interrupted: nothing was published") }
        guard others.failed == 0 else {
            throw ArchiveError(
                .io, "\(listing.archive.path): \(others.failed) files cannot be read, so nothing was published")
        }
        return others.skipped + unfit
    }

    package func bytes(of tile: SetTile) throws -> [UInt8]? {
        try listing.content(of: tile.key.tile).map { [UInt8]($0.data) }
    }

    /// An archive whose tiles are others than before has been changed meanwhile.
    package func lists(_ tile: SetTile) -> Bool { false }

    package func file(of tile: SetTile) -> String? {
        (listing.archive as? SetReader).map { "\($0.location)/\(SetPaths.blob(tile.blob))" }
    }

    package var advice: String { "write the archive anew" }
}
