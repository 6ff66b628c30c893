package import TileSets
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The tiles of an archive, to be published.
///
/// An archive is read twice: once to hash its tiles, and again for the bytes that the set has not. Of folders only tiles of scale 1
/// are published, since a look-up finds no others. A set's version knows its digests.
package struct ArchiveToPublish: PublishableTiles {
    private let archive: any ArchiveReader
    private let mostTiles: Int
    private let wantsStop: () -> Bool

    /// - Parameters:
    ///   - mostTiles: An archive with more is refused: a small file can claim billions.
    ///   - wantsStop: Asked between two tiles.
    package init(_ archive: any ArchiveReader, mostTiles: Int = 10_000_000, wantsStop: @escaping () -> Bool) {
        (self.archive, self.mostTiles, self.wantsStop) = (archive, mostTiles, wantsStop)
    }

    package func forEachTile(_ body: (SetTile) throws -> Void) throws -> Int {
        if let counting = archive as? any CountingReader, counting.hasMoreTiles(than: mostTiles) {
            throw tooManyTiles(archive, mostTiles)
        }
        if let set = archive as? SetReader {
            try set.forEachListed(body)
            return 0
        }
        var listed: [(tile: SetTile, number: Int)] = []
        var others = 0
        var last: (data: Data, digest: BlobDigest)?
        try archive.forEachTile(stoppedBy: wantsStop) { step in
            switch step {
            case .skipped(_, _, let count): others += count
            case .failed(let what, let why): throw ArchiveError(.io, "\(what) cannot be read: \(why)")
            case .tile(let z, let x, let y, let scale, _, let content):
                let digest =
                    last?.data == content.data
                    ? last?.digest : content.data.withUnsafeBytes { BlobDigest(hashing: $0) }
                guard scale == 1, content.objection == nil, let digest,
                    let tile = SetTile(
                        try TileAddress(z: z, x: x, y: y), digest, size: content.data.count,
                        mediaType: content.mediaType, coding: content.contentEncoding)
                else {
                    others += 1
                    break
                }
                last = (content.data, digest)
                listed.append((tile, listed.count))
                guard listed.count <= mostTiles else { throw tooManyTiles(archive, mostTiles) }
            }
            return !wantsStop()
        }
        if wantsStop() { throw SetError(.stopped, "interrupted: nothing was published") }
        // Of several rows for one tile that one counts which a look-up finds.
        let laterCounts = archive.format == .mbtiles
        listed.sort {
            if $0.tile.key != $1.tile.key { return $0.tile.key < $1.tile.key }
            return laterCounts ? $0.number > $1.number : $0.number < $1.number
        }
        var before: SetKey?
        for (tile, _) in listed {
            if tile.key == before {
                others += 1
            } else {
                try body(tile)
            }
            before = tile.key
        }
        return others
    }

    package func bytes(of tile: SetTile) throws -> [UInt8]? {
        if let set = archive as? SetReader { return [UInt8](try set.content(of: tile).data) }
        let address = tile.key.tile
        return try archive.tile(z: address.z, x: address.x, y: address.y).map { [UInt8]($0.data) }
    }

    /// An archive whose tiles are others than before has been changed meanwhile.
    package func lists(_ tile: SetTile) -> Bool { false }

    package func file(of tile: SetTile) -> String? {
        (archive as? SetReader).map { "\($0.location)/\(SetPaths.blob(tile.blob))" }
    }

    package var advice: String { "write the archive anew" }
}
